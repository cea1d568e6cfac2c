"""`triglot.sweep.sweep`: a sweep from Python, with the options of the command."""

import io
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ..core.errors import TriglotError, shown
from ..core.records import JSON
from ..runs.options import TrainOptions
from ..runs.plan import default_folder
from ..runs.registry.origins import importable_name
from ..shared.machine.interrupt import Signalled
from ..shared.terminal.progress import on_terminals_only
from . import run
from .options import SweepCommandOptions, SweepOptions
from .settings import algorithms_of, train_options

# A name or package.module:object, or the class or function itself. Its name is stored, not a pickle
# of it: workers import it, and the folder holds no code.
Named: TypeAlias = str | type | Callable[..., object]


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
    rows: list[JSON]
    ranking: list[JSON]
    confirmed: Mapping[str, JSON]
    _options: SweepCommandOptions = field(repr=False)

    def best(self, env: str | None = None) -> TrainOptions:
        """Return all options of the best setting, among them `config` and `hyper` by field name.

        Args:
          env: of which environment; None for the first.

        Raises:
          TriglotError: if the sweep has no such environment.
        """
        envs = list(dict.fromkeys(setting["env"] for setting in self.ranking))
        env = envs[0] if env is None else env
        if env not in envs:
            raise TriglotError(f"the sweep has no environment {env!r}: it has {', '.join(envs)}.")
        values = next(setting["values"] for setting in self.ranking if setting["env"] == env)
        options = replace(self._options, env=env)  # with the paths of runs that play in it
        return train_options(options, values, algorithms_of(options))


def sweep(
    algorithm: Named,
    env: Named,
    *,
    over: Mapping[str, Iterable[object] | str],
    options: SweepOptions | None = None,
    network: Named | Sequence[str] | Mapping[str, Named] = (),
    optimizer: Named | None = None,
    config: object = None,
    hyper: object = None,
    verbose: bool = True,
) -> SweepResult:
    """Train many settings of an algorithm, with several seeds each, and rank them.

    The same call with the same `options.out` continues an interrupted sweep. Ctrl-C saves a
    checkpoint.

    >>> from triglot.sweep import SweepOptions, sweep
    >>> sweep(  # doctest: +SKIP
    ...     "ppo",
    ...     "gymnax:CartPole-v1",
    ...     over={"learning_rate": [1e-4, 3e-4]},
    ...     options=SweepOptions(num_seeds=10),
    ... ).best().hyper
    {'learning_rate': 0.0003}

    Args:
      algorithm: a name, `package.module:object`, or a class of a module.
      env: a name, `package.module:object`, or a function or class of a module.
      over: values by name: a list, `[1e-4, 3e-4]` or `[(64, 64), (256,)]`; or a range as text,
        `"0.1..0.3"` or `"log:1e-5..1e-2"`, from which `options.num_settings` are drawn. A name is a
        field of the algorithm's `Config` or `Hyperparams`, or algorithm, env, backend, arithmetic
        or optimizer.
      options: seeds, steps, search, memory and folder; None for the defaults of `SweepOptions`,
        which are those of the command `triglot sweep`.
      network: a custom network, a function of obs_spec and action_spec that returns one, or a
        dictionary of them by the names that the algorithm gives.
      optimizer: a name, or a function of the hyperparameters; None for the algorithm's own.
      config: the algorithm's `Config`, or values by field name.
      hyper: the algorithm's `Hyperparams`, or values by field name.
      verbose: print the plan and the ranking, as `triglot sweep` does.

    Raises:
      TriglotError: before anything compiles, if an argument or a swept value is invalid, more
        memory is needed than is free, or the folder holds something else.
      KeyboardInterrupt: after Ctrl-C, once the checkpoint is saved.
    """
    options = SweepOptions() if options is None else options
    algorithm, env = _name("algorithm", algorithm), _name("environment", env)
    out = options.out or default_folder("sweep", algorithm, env)
    command = SweepCommandOptions(
        algorithm=algorithm,
        env=env,
        over=tuple(_texts(over)),
        network=_networks(network),
        optimizer=None if optimizer is None else _name("optimizer", optimizer),
        config={} if config is None else config,
        hyper={} if hyper is None else hyper,
        **{**vars(options), "out": Path(out)},
    )
    with ExitStack() as quiet:
        if not verbose:
            quiet.enter_context(redirect_stdout(io.StringIO()))
            quiet.enter_context(on_terminals_only())
        code, result = run.sweep(command)
    if result is None:
        raise Signalled(code - 128 if code > 128 else signal.SIGINT)
    ranking = result["settings"]
    return SweepResult(
        folder=Path(out),
        rows=_rows(ranking),
        ranking=ranking,
        confirmed=result["confirmed"],
        _options=command,
    )


def _rows(ranking: Iterable[JSON]) -> list[JSON]:
    return [
        {
            "setting": record["setting"],
            "seed": seed,
            **record["values"],
            "status": record["statuses"][seed],
            "steps": record["steps"],
            "return": float(record["returns"][seed]),
            "training_return": float(record["training_returns"][seed]),
        }
        for record in sorted(ranking, key=lambda record: record["setting"])
        for seed in range(len(record["returns"]))
    ]


def _texts(over: Mapping[str, Iterable[object] | str]) -> Iterable[str]:
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


def _text(name: str, value: object) -> str:
    """Write a value without loss."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple | list):
        return "/".join(_text(name, item) for item in value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else _name(name, value)


def _networks(network: Named | Sequence[str] | Mapping[str, Named]) -> tuple[str, ...]:
    if isinstance(network, Mapping):
        return tuple(
            f"{part}={_name('network', network_of_part)}"
            for part, network_of_part in network.items()
        )
    if isinstance(network, tuple | list):
        return tuple(network)
    return (_name("network", network),)


def _name(kind: str, named: object) -> str:
    """Name a class or function as `package.module:object`, by which the folder finds it again.

    Raises:
      TriglotError: if it is not at the top level of a module.
    """
    name = importable_name(named)
    if name is None:
        raise TriglotError(
            f"{kind} {shown(named)} is not at the top level of a module, and the sweep's folder "
            "names what it trains: put it in a file, and give package.module:object or import it."
        )
    return name
