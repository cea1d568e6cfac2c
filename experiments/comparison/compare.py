"""Train one agent on several libraries from the same weights and keys, and say what differed."""

import os
import shlex
import sys
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ...backends import libraries
from ...backends.canonical import ARITHMETICS
from ...core.errors import TriglotError, unknown
from .. import version
from ..registry import components as registry
from ..runs.files import check_free
from ..runs.plan import check_numbers
from . import report, tables
from .identity import Trace, compare_traces
from .results import Record, save_records
from .session import Task
from .turns import run_all


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What to compare.

    Attributes:
      algorithm, env: names as the command line takes them.
      backends: at least two; the first one's initial weights are given to all.
      num_seeds: trainings side by side in one program.
      seed: of every random choice.
      total_steps: environment steps per seed, rounded up to whole updates.
      out: a folder to make; it must not hold anything yet.
      arithmetic: `native`, `leaf_order` or `canonical`.
      config, hyper: by name, what departs from the algorithm's own; JSON-able.
      eval_episodes: greedy episodes per seed at the end.
    """

    algorithm: str
    env: str
    backends: tuple[str, ...]
    num_seeds: int
    seed: int
    total_steps: int
    out: Path
    arithmetic: str = "canonical"
    config: dict[str, Any] = field(default_factory=dict)
    hyper: dict[str, Any] = field(default_factory=dict)
    eval_episodes: int = 128

    def task(self, backend: str) -> Task:
        """Describe one backend's part."""
        shared = {spec.name for spec in fields(Task)} - {"backend"}
        return Task(backend=backend, **{name: getattr(self, name) for name in shared})

    def command(self) -> str:
        """Spell the command line that does the same."""
        words = ["triglot", "compare", self.algorithm, self.env, "--backends", *self.backends]
        for name in ("num_seeds", "seed", "total_steps", "eval_episodes", "arithmetic", "out"):
            words += _option(name, getattr(self, name))
        for name, value in (self.config | self.hyper).items():
            words += _option(name, value)
        return shlex.join(words)


def _option(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    values = value if isinstance(value, list | tuple) else [value]
    return [f"--{flag}", *(str(each) for each in values)]


def compare(options: CompareOptions) -> dict[str, Any]:
    """Run a comparison, print its table and write its folder.

    Returns:
      What `comparison.json` holds.

    Raises:
      TriglotError: before any process starts, if an option cannot be served, a library is missing
        or the folder holds something; later, if a worker refuses its task or dies.
    """
    check(options)
    records = {backend: Record() for backend in options.backends}
    try:
        run_all(options, records)
    except BaseException:
        _keep_what_is_there(options, records)
        raise
    result = _result(options, records)
    save_records(options.out, records)
    report.write(options.out, result, {name: made.metrics for name, made in records.items()})
    print(tables.as_text(tables.MAIN, result))
    print(f"\n{result['verdict']}\n\nThe report: {options.out / 'report.html'}")
    return result


def check(options: CompareOptions) -> None:
    """Refuse options that cannot be served, before anything starts.

    Raises:
      TriglotError: saying which, and the nearest choice that can.
    """
    algorithm = registry.find_algorithm(options.algorithm)
    registry.from_overrides(algorithm.Config, options.config)
    registry.from_overrides(algorithm.Hyperparams, options.hyper)
    for backend in options.backends:
        libraries.find(backend).require()
    if len(set(options.backends)) < max(2, len(options.backends)):
        raise TriglotError(
            "compare needs at least two backends, each named once; got "
            f"{' '.join(options.backends) or 'none'}."
        )
    if options.arithmetic not in ARITHMETICS:
        raise unknown("arithmetic", options.arithmetic, ARITHMETICS)
    check_numbers(options, num_seeds=1, total_steps=1, eval_episodes=1)
    check_free(options.out)


def _result(options: CompareOptions, records: dict[str, Record]) -> dict[str, Any]:
    facts = next(iter(records.values())).facts
    traces = {
        name: Trace(metrics=made.metrics, params=made.params) for name, made in records.items()
    }
    result = {
        "command": options.command(),
        **{
            name: value
            for name, value in asdict(options).items()
            if name not in ("backends", "total_steps", "out")
        },
        "num_updates": facts["num_updates"],
        "steps_per_update": facts["steps_per_update"],
        "env_steps_per_seed": facts["num_updates"] * facts["steps_per_update"],
        "identity": compare_traces(traces, facts["steps_per_update"]),
        "backends": {name: made.summary(options.num_seeds) for name, made in records.items()},
        "versions": version.versions(),
        "device": facts["device"],
        "cpu_cores": os.cpu_count(),
    }
    return {**result, "verdict": report.verdict(result)}


def _keep_what_is_there(options: CompareOptions, records: dict[str, Record]) -> None:
    if not any(record.updates for record in records.values()):
        return  # at most the initial weights were written
    save_records(options.out, records)
    told = ", ".join(f"{name} {record.updates}" for name, record in records.items())
    print(
        f"The comparison did not end. Updates done: {told}. Their metrics are in "
        f"{options.out / 'metrics'}; no comparison was written.",
        file=sys.stderr,
    )
