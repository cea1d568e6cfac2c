"""Train one agent with several libraries from the same weights and keys, and report differences."""

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...backends import libraries
from ...backends.canonical import ARITHMETICS
from ...core.errors import TriglotError, unknown, user_error_context
from ...core.host_environment import require_jittable
from ...core.hyper import fill_schedule_horizon
from ...core.loop.trainer import updates_for
from ...core.trainers import make_trainer
from .. import version
from ..options import CompareOptions
from ..registry.agents import make_agent
from ..registry.algorithms import find_algorithm
from ..registry.effects import check_effects
from ..registry.environments import make_env
from ..registry.overrides import from_overrides, overrides_of
from ..runs import memory
from ..runs.interrupt import raising
from ..runs.plan import check_minimums, default_folder
from ..storage.files import check_free, make_new_folder
from . import identity, report, tables
from .identity import Trace, compare_traces
from .results import Record, save_records
from .turns import run_all

# Options that `comparison.json` shows in another form or under another name.
SHOWN_OTHERWISE = ("backends", "total_steps", "out")


def compare(options: CompareOptions) -> dict[str, Any]:
    """Run a comparison, print its table and write its folder.

    Returns:
      The contents of `comparison.json`.

    Raises:
      TriglotError: before any process starts, if an option is invalid, a library is not installed
        or the folder is not empty; later, if a worker rejects the options or dies.
    """
    config, hyper = overrides_of(options.config), overrides_of(options.hyper)
    options = replace(options, config=config, hyper=hyper)
    check(options)
    out = options.out
    if out is None:
        out = make_new_folder(default_folder("compare", options.algorithm, options.env))
    options = replace(options, out=out)
    records = {backend: Record() for backend in options.backends}
    try:
        with raising():
            run_all(options, out, records)
    except BaseException:
        _save_unfinished(out, records)
        with suppress(OSError):  # keeps it if anything was written
            out.rmdir()
        raise
    result = _result(options, records)
    save_records(out, records)
    report.write(out, result, {name: record.metrics for name, record in records.items()})
    print(tables.as_text(tables.MAIN, result))
    print(f"\n{result['verdict']}\n\nReport: {out / 'report.html'}")
    return result


def check(options: CompareOptions) -> None:
    """Reject invalid options before anything starts.

    Raises:
      TriglotError: with the option and the nearest valid choice.
    """
    algorithm = find_algorithm(options.algorithm)
    config = from_overrides(algorithm.Config, options.config)
    from_overrides(algorithm.Hyperparams, options.hyper)
    for backend in options.backends:
        libraries.find(backend).require()
    if len(set(options.backends)) < max(2, len(options.backends)):
        raise TriglotError(
            "compare needs at least two backends, each named once; got "
            f"{' '.join(options.backends) or 'none'}."
        )
    if options.arithmetic not in ARITHMETICS:
        raise unknown("arithmetic", options.arithmetic, ARITHMETICS)
    check_minimums(options, num_seeds=1, eval_episodes=1)
    if options.out is not None:
        check_free(options.out)
    _check_programs(options, config)


def _check_programs(options: CompareOptions, config: Any) -> None:
    """Build every backend's agent, without computing anything, and compare what they need."""
    env = make_env(options.env)
    require_jittable(env)
    check_effects(options, find_algorithm(options.algorithm), env, config)
    agents = [
        make_agent(
            options.algorithm,
            env,
            backend=backend,
            arithmetic=options.arithmetic,
            config=options.config,
            hyper=options.hyper,
            optimizer=options.optimizer,
        )
        for backend in options.backends
    ]
    trainer = make_trainer(agents[0], env)
    num_updates = updates_for(trainer, options.total_steps)
    with user_error_context(f"{options.algorithm} on {options.env} failed when it was traced"):
        shapes = [identity.shapes_of(agent.network) for agent in agents]
        for backend, own in zip(options.backends, shapes, strict=True):
            identity.check_architecture(backend, own, shapes[0])
        needed = memory.of_training(
            trainer,
            fill_schedule_horizon(agents[0].hyper, num_updates),
            num_seeds=options.num_seeds,
            num_lines=num_updates,
            eval_episodes=options.eval_episodes,
        )
    memory.check(needed, num_seeds=options.num_seeds, copies=len(options.backends))


def command(options: CompareOptions) -> str:
    """Format the command line of a comparison."""
    words = ["triglot", "compare", options.algorithm, options.env, "--backends", *options.backends]
    for name in ("num_seeds", "seed", "total_steps", "eval_episodes", "arithmetic", "out"):
        words += _option(name, getattr(options, name))
    if options.optimizer is not None:
        words += _option("optimizer", options.optimizer)
    for name, value in (options.config | options.hyper).items():
        words += _option(name, value)
    return shlex.join(words)


def _option(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    values = value if isinstance(value, list | tuple) else [value]
    return [f"--{flag}", *(str(each) for each in values)]


def _result(options: CompareOptions, records: Mapping[str, Record]) -> dict[str, Any]:
    facts = next(iter(records.values())).facts
    traces = {name: Trace(metrics=r.metrics, params=r.params) for name, r in records.items()}
    chosen = {name: value for name, value in asdict(options).items() if name not in SHOWN_OTHERWISE}
    result = {
        "command": command(options),
        **chosen,
        "num_updates": facts["num_updates"],
        "steps_per_update": facts["steps_per_update"],
        "env_steps_per_seed": facts["num_updates"] * facts["steps_per_update"],
        "identity": compare_traces(traces, facts["steps_per_update"]),
        "backends": {name: record.summary(options.num_seeds) for name, record in records.items()},
        "versions": version.versions(),
        "device": facts["device"],
        "cpu_cores": os.cpu_count(),
    }
    return {**result, "verdict": report.verdict(result)}


def _save_unfinished(out: Path, records: Mapping[str, Record]) -> None:
    if not any(record.updates for record in records.values()):
        return  # at most the initial weights were written
    save_records(out, records)
    done = ", ".join(f"{name} {record.updates}" for name, record in records.items())
    print(
        f"The comparison did not finish. Updates done: {done}. Their metrics are in "
        f"{out / 'metrics'}; no comparison was written.",
        file=sys.stderr,
    )
