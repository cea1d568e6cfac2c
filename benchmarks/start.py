"""Where the time of a cold process goes, from Python's start to a trained policy.

    python -m benchmarks.start
    python -m benchmarks.start --row sac --total-steps 5000

Each process of triglot, and of the row's installed peers, is new, interleaved with the others, and
has no compilation cache. It prints the seconds of its stages, by the clock and of its processor;
which modules its imports take longest for; its largest programs with their seconds; and the size of
its training program, in equations of the jaxpr and in instructions of the compiled program.
"""

import collections
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .peers import cold
from .peers.cold import TRIGLOT
from .programs import count_equations, count_instructions, count_operations

if TYPE_CHECKING:  # a process imports no more than its framework does
    from jax.stages import Compiled, Lowered, Traced

COMPILED = "backend_compile_duration"
SHOWN = 10  # rows of each table of causes


@dataclass
class Report:
    """What one process tells."""

    stages: list[tuple[str, float, float]] = field(default_factory=list)
    """Name, seconds by the clock, seconds of the processor."""
    programs: list[tuple[str, str, float]] = field(default_factory=list)
    """Name, what was done (traced, lowered, compiled) and seconds."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Of the largest program: equations, operations before and instructions after XLA."""


class Watch:
    """Notes the stages of this process."""

    def __init__(self, report: Report) -> None:
        self._report, self._clock, self._cpu = report, time.perf_counter(), time.process_time()

    def lap(self, name: str) -> None:
        """End a stage."""
        clock, cpu = time.perf_counter(), time.process_time()
        self._report.stages.append((name, clock - self._clock, cpu - self._cpu))
        self._clock, self._cpu = clock, cpu


def run_here(
    name: str, row_name: str, total_steps: int, folder: Path | None, *, sizes: bool
) -> Report:
    """Import, compile and train in this process, as a user of the framework does."""
    report = Report()
    watch = Watch(report)
    import jax

    watch.lap("import jax")
    jax.config.update("jax_enable_compilation_cache", False)

    def note(event: str, duration_secs: float, **details: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            kind = event.rpartition("/")[2]
            report.programs.append((str(details.get("fun_name")), kind, duration_secs))

    jax.monitoring.register_event_duration_secs_listener(note)
    if sizes:
        note_sizes(report)
    cold.train(name, row_name, total_steps, "linen", folder, watch.lap)
    return report


def note_sizes(report: Report) -> None:
    """Note the sizes of the largest program that is compiled ahead of time."""
    from jax import stages

    lower, compile_ = stages.Traced.lower, stages.Lowered.compile
    equations: dict[int, int] = {}

    def lowered(self: "Traced", *args: Any, **options: Any) -> "Lowered":
        result = lower(self, *args, **options)
        equations[id(result)] = count_equations(self.jaxpr.jaxpr)
        return result

    def compiled(self: "Lowered", *args: Any, **options: Any) -> "Compiled":
        result = compile_(self, *args, **options)
        sizes = {
            "equations": equations.get(id(self), 0),
            "operations": count_operations(self),
            **count_instructions(result),
        }
        if sizes["instructions"] > report.sizes.get("instructions", 0):
            report.sizes = sizes
        return result

    stages.Traced.lower, stages.Lowered.compile = lowered, compiled  # of this process only


def run_in_process(name: str, *words: str) -> tuple[Report, list[tuple[str, float]]]:
    """Run a framework in a new process.

    Returns:
      Its report; and the top modules that it imported, with the seconds of their own code.

    Raises:
      subprocess.CalledProcessError: if the process fails, as for a peer that is not installed.
    """
    command = [sys.executable, "-X", "importtime", "-m", "benchmarks.start", "--child", name]
    start = time.perf_counter()
    done = subprocess.run([*command, *words], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    report = Report(**json.loads(done.stdout.splitlines()[-1]))
    clocked = sum(clock for _, clock, _ in report.stages)
    report.stages.append(("start and end Python", seconds - clocked, float("nan")))
    own: dict[str, float] = collections.defaultdict(float)
    for line in done.stderr.splitlines():
        if found := re.match(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\w+)", line):
            own[found[2]] += int(found[1]) / 1e6
    return report, sorted(own.items(), key=lambda item: -item[1])[:SHOWN]


def main(
    row: str = "ppo",
    total_steps: int = 51_200,
    rounds: int = 3,
    purejaxrl: Path | None = None,
    child: str | None = None,
    sizes: bool = False,
) -> None:
    """Print where the time of cold processes goes.

    Args:
      row: the setting, a row of `benchmarks.peers`.
      total_steps: environment steps of the training.
      rounds: processes of each framework; the tables show medians.
      purejaxrl: folder of a clone of PureJaxRL's repository, which is left out without it.
      child: the framework to run in this process, whose report is printed as JSON.
      sizes: report the size of the training program; the seconds are then those of counting too.
    """
    if child is not None:
        print(json.dumps(asdict(run_here(child, row, total_steps, purejaxrl, sizes=sizes))))
        return
    from . import harness
    from .peers.rows import ROWS

    words = ["--row", row, "--total-steps", str(total_steps)]
    given: Mapping[str, Path | None] = {"PureJaxRL": purejaxrl}
    names = [TRIGLOT, *(peer for peer in ROWS[row].peers if peer not in given or given[peer])]
    for name in list(names):
        folder = [] if given.get(name) is None else ["--purejaxrl", str(given[name])]
        try:
            counted, _ = run_in_process(name, *words, *folder, "--sizes")
        except subprocess.CalledProcessError as error:
            print(f"{name} is left out: {error.stderr.splitlines()[-1]}")
            names.remove(name)
            continue
        shown = ", ".join(f"{number:,} {what}" for what, number in counted.sizes.items())
        print(f"{name}'s training program: {shown}")
    reports: dict[str, list[Report]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            folder = [] if given.get(name) is None else ["--purejaxrl", str(given[name])]
            report, modules = run_in_process(name, *words, *folder)
            reports[name].append(report)
            if len(reports[name]) == rounds:
                print_causes(name, report, modules)
    for name in names:
        stages = [stage for stage, _, _ in reports[name][0].stages]
        rows = []
        for index, stage in enumerate(stages):
            clock, cpu = zip(*(each.stages[index][1:] for each in reports[name]), strict=True)
            rows.append([stage, f"{statistics.median(clock):.2f}", f"{statistics.median(cpu):.2f}"])
        print(f"\n{name}, medians of {rounds}\n")
        print(harness.table(["stage", "s", "s of the processor"], rows))
    whole = {
        name: np.array([sum(clock for _, clock, _ in each.stages) for each in reports[name]])
        for name in names
    }
    for name in names[1:]:
        ratio = harness.time_ratio(whole, name, TRIGLOT)
        print(f"\nthe whole process: triglot is {ratio} times as fast as {name}")


def print_causes(name: str, report: Report, modules: list[tuple[str, float]]) -> None:
    """Print the packages that take longest to import, and the largest programs."""
    from . import harness

    print(f"\n{name}: packages by the seconds of their own modules\n")
    print(harness.table(["package", "s"], [[each, f"{s:.2f}"] for each, s in modules]))
    programs: dict[str, dict[str, float]] = {}
    for program, kind, seconds in report.programs:
        programs.setdefault(program, collections.defaultdict(float))[kind] += seconds
    compiled = [kind for _, kind, _ in report.programs].count(COMPILED)
    print(f"\n{name}: {compiled} programs compiled; the largest, in seconds\n")
    kinds = sorted({kind for _, kind, _ in report.programs})
    largest = sorted(programs.items(), key=lambda item: -sum(item[1].values()))[:SHOWN]
    rows = [[program, *(f"{spent[kind]:.2f}" for kind in kinds)] for program, spent in largest]
    print(harness.table(["program", *(kind.removesuffix("_duration") for kind in kinds)], rows))


if __name__ == "__main__":
    import tyro

    tyro.cli(main)
