"""`triglot.sweep.sweep`: a sweep from Python, with the options of the command."""

import io
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..core.errors import TriglotError, shown
from ..runs.options import TrainOptions
from ..runs.plan import default_folder
from ..runs.registry.algorithms import ALGORITHMS
from ..runs.registry.environments import with_resolved_runs
from ..shared.machine.interrupt import Signalled
from ..shared.terminal.progress import on_terminals_only
from . import run
from .options import SweepOptions
from .settings import algorithms_of, train_options

# A name or package.module:object, or the class or function itself. Its name is stored, not a pickle
# of it: workers import it, and the folder holds no code.
Named: TypeAlias = Any


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The result of `triglot.sweep.sweep`.

    Attributes:
      folder: with tables, plots and a report, as `triglot sweep` writes it.
      rows: one dictionary per setting and seed, for `pandas.DataFrame(rows)` for example: `setting`
        (from 1), `seed`, the swept values, `status` (finished, stopped or diverged), `steps`,
        `return` and `training_return` (NaN without one).
      ranking: one dictionary per setting, the best first: `rank`, `setting`, `env`, `values`,
        `status`, `steps`, `num_diverged`, and `return` and `iqm` with `value`, `low`, `high` (95%
        interval; None below 5 seeds) and `count`. Several environments are ranked one by one.
      confirmed: by environment, the best setting's `return` and `returns` with fresh seeds, if
        `confirm` asked for them.
    """

    folder: Path
    rows: list[dict[str, Any]]
    ranking: list[dict[str, Any]]
    confirmed: dict[str, dict[str, Any]]
    _options: SweepOptions = field(repr=False)

    def best(self, env: str | None = None) -> TrainOptions:
        """Return all options of the best setting, among them `config` and `hyper` by field name.

        Args:
          env: of which environment; None for the first.

        Raises:
          TriglotError: if the sweep has no such environment.
        """
        envs = list(dict.fromkeys(one["env"] for one in self.ranking))
        env = envs[0] if env is None else env
        if env not in envs:
            raise TriglotError(f"the sweep has no environment {env!r}: it has {', '.join(envs)}.")
        values = next(one["values"] for one in self.ranking if one["env"] == env)
        return train_options(self._options, values, algorithms_of(self._options))


def sweep(
    algorithm: Named,
    env: Named,
    *,
    over: Mapping[str, Iterable[Any] | str],
    num_seeds: int = 5,
    seed: int = 0,
    total_steps: int = 500_000,
    eval_episodes: int = 128,
    num_settings: int | None = None,
    search: str | None = None,
    search_batch: int | None = None,
    confirm: int | None = None,
    halving: bool = False,
    eta: int = 2,
    batch: int | None = None,
    devices: int | None = None,
    backend: str = "linen",
    arithmetic: str | None = None,
    network: Named | Mapping[str, Named] = (),
    optimizer: Named | None = None,
    config: Any = None,
    hyper: Any = None,
    out: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    executor: str | None = None,
    jobs: int | None = None,
    address: str | None = None,
    verbose: bool = True,
) -> SweepResult:
    """Train many settings of an algorithm, with several seeds each, and rank them.

    The same call with the same `out` continues an interrupted sweep. Ctrl-C saves a checkpoint.

    >>> from triglot.sweep import sweep
    >>> sweep(  # doctest: +SKIP
    ...     "ppo", "gymnax:CartPole-v1", over={"learning_rate": [1e-4, 3e-4]}, num_seeds=10
    ... ).best().hyper
    {'learning_rate': 0.0003}

    Args:
      algorithm: a name, `package.module:object`, or a class of a module.
      env: a name, `package.module:object`, or a function or class of a module.
      over: values by name: a list, `[1e-4, 3e-4]` or `[(64, 64), (256,)]`; or a range as text,
        `"0.1..0.3"` or `"log:1e-5..1e-2"`, from which `num_settings` are drawn. A name is a field
        of the algorithm's `Config` or `Hyperparams`, or algorithm, env, backend, arithmetic or
        optimizer.
      num_seeds: independent seeds of each setting, vmapped; at least 5 for intervals.
      seed: random seed of the trainings, and of settings drawn from ranges.
      total_steps: environment steps per seed, rounded up to whole rollouts.
      eval_episodes: greedy evaluation episodes per seed after training; with 0, settings are ranked
        by the return of the last tenth of training.
      num_settings: train this many settings, drawn at random or proposed by `search`; None trains
        every combination.
      search: `grid`, `random`, or Optuna's `tpe`, `cma-es` or `gp`, which propose settings from the
        results of earlier rounds; None for `random` with `num_settings`, else `grid`.
      search_batch: settings of each round, which train at the same time; None for an eighth of
        `num_settings`, at least 4.
      confirm: train the best setting again with this many fresh seeds; None does not.
      halving: stop the worse settings early, by the mean return of training episodes.
      eta: halving keeps the best 1/eta of the settings, and multiplies their steps by eta.
      batch: trainings in one compiled program; None for as many as fit in memory.
      devices: the most devices that the trainings of a batch are divided among; None for those of a
        CPU that JAX has: one, unless `jax_num_cpu_devices` was set before JAX started.
      backend: the network library: haiku, linen, nnx, equinox, keras, torch, jax (none), table.
      arithmetic: `native`, `leaf_order` or `canonical`; None as for `make_agent`.
      network: a custom network, a function of obs_spec and action_spec that returns one, or a
        dictionary of them by the names that the algorithm gives.
      optimizer: a name, or a function of the hyperparameters; None for the algorithm's own.
      config: the algorithm's `Config`, or values by field name.
      hyper: the algorithm's `Hyperparams`, or values by field name.
      out: a folder for the results; None for a new one under `runs`.
      checkpoint_seconds: seconds between checkpoints; 0 writes one after Ctrl-C only.
      executor: sequential, one batch after the other in this process; local, each
        batch in a process pinned to one core; ray, each batch on one core of a Ray cluster. None
        for local with `jobs`, else sequential.
      jobs: how many batches run at the same time; None for as many as there are cores.
      address: HOST:PORT of the Ray cluster; None for the cluster of this machine.
      verbose: print the plan and the ranking, as `triglot sweep` does.

    Raises:
      TriglotError: before anything compiles, if an argument or a swept value is invalid, more
        memory is needed than is free, or the folder holds something else.
      KeyboardInterrupt: after Ctrl-C, once the checkpoint is saved.
    """
    algorithm = _name("algorithm", algorithm)
    env = with_resolved_runs(_name("environment", env))
    options = SweepOptions(
        algorithm=algorithm,
        env=env,
        over=tuple(_texts(over)),
        num_seeds=num_seeds,
        seed=seed,
        total_steps=total_steps,
        eval_episodes=eval_episodes,
        num_settings=num_settings,
        search=search,
        search_batch=search_batch,
        confirm=confirm,
        halving=halving,
        eta=eta,
        batch=batch,
        devices=devices,
        backend=backend,
        arithmetic=arithmetic,
        network=_networks(network),
        optimizer=None if optimizer is None else _name("optimizer", optimizer),
        config={} if config is None else config,
        hyper={} if hyper is None else hyper,
        out=default_folder("sweep", algorithm, env) if out is None else Path(out),
        checkpoint_seconds=checkpoint_seconds,
        executor=executor,
        jobs=jobs,
        address=address,
    )
    with ExitStack() as quiet:
        if not verbose:
            quiet.enter_context(redirect_stdout(io.StringIO()))
            quiet.enter_context(on_terminals_only())
        code, result = run.sweep(options)
    if result is None:
        raise Signalled(code - 128 if code > 128 else signal.SIGINT)
    assert options.out is not None  # for the type checker
    ranking = result["settings"]
    return SweepResult(
        folder=options.out,
        rows=_rows(ranking),
        ranking=ranking,
        confirmed=result["confirmed"],
        _options=options,
    )


def _rows(ranking: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "setting": one["setting"],
            "seed": seed,
            **one["values"],
            "status": one["statuses"][seed],
            "steps": one["steps"],
            "return": float(one["returns"][seed]),
            "training_return": float(one["training_returns"][seed]),
        }
        for one in sorted(ranking, key=lambda one: one["setting"])
        for seed in range(len(one["returns"]))
    ]


def _texts(over: Mapping[str, Any]) -> Iterable[str]:
    """Write what is swept as `--over` takes it, so that both are checked alike."""
    if not isinstance(over, Mapping):
        raise TriglotError(
            "over must be a dictionary from a name to its values, such as "
            f"{{'learning_rate': [1e-4, 3e-4]}}; got {shown(over)}."
        )
    for name, values in over.items():
        if not isinstance(values, Iterable):
            raise TriglotError(
                f"over[{name!r}] must be a list of values, or a range such as 'log:1e-5..1e-2'; "
                f"got {shown(values)}."
            )
        listed = values if isinstance(values, str) else ",".join(_text(name, v) for v in values)
        yield f"{name}={listed}"


def _text(name: str, value: Any) -> str:
    """Write a value without loss."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple | list):
        return "/".join(_text(name, each) for each in value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else _name(name, value)


def _networks(given: Any) -> tuple[str, ...]:
    if isinstance(given, Mapping):
        return tuple(f"{part}={_name('network', one)}" for part, one in given.items())
    return tuple(given) if isinstance(given, tuple | list) else (_name("network", given),)


def _name(kind: str, given: Named) -> str:
    """Name a class or function as `package.module:object`, by which the folder finds it again.

    Raises:
      TriglotError: if it is not at the top level of a module.
    """
    if isinstance(given, str):
        return given
    module, name = (getattr(given, each, "") for each in ("__module__", "__qualname__"))
    if module == "__main__" or getattr(sys.modules.get(module), name, None) is not given:
        raise TriglotError(
            f"{kind} {shown(given)} is not at the top level of a module, and the sweep's folder "
            "names what it trains: put it in a file, and give package.module:object or import it."
        )
    path = f"{module}:{name}"
    return next((short for short, full in ALGORITHMS.items() if full == path), path)
