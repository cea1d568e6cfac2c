"""Measure what each library costs: a process per library and repetition, in random order."""

import json
import shutil
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ...core.errors import TriglotError
from ...core.records import JSON, JSONDict
from ...runs.jobs.job import Task
from ...runs.jobs.local import JobProcess
from ...shared.machine.files import write_json
from ...shared.statistics.estimate import bootstrap
from ...shared.terminal.progress import Bar
from ..assemble import Finished
from ..jobs import START, arguments_of
from ..options import CompareOptions
from .noise import Noise, slower

MEASURE_ONE = f"{__package__}.session:measure_one"
COSTS = "costs"
COST_BAR = "{desc:<36.36}{bar} {n_fmt}/{total_fmt} [{elapsed}]"  # counts processes
ROUNDS = 5  # of the steady parts in each process


@dataclass(frozen=True)
class Stage:
    """What is measured, and how it is shown.

    Attributes:
      name: in the result.
      title: for a table.
      unit: of the numbers.
      meaning: one sentence.
      scale: from seconds or bytes to the unit.
    """

    name: str
    title: str
    unit: str
    meaning: str
    scale: float


STAGES = (
    Stage("import", "Import", "s", "Import of the library, after JAX and before triglot.", 1),
    Stage("construct", "Construct", "s", "Construction of the agent and its networks.", 1),
    Stage("init", "Initialize", "s", "Initial weights and environments, compilation included.", 1),
    Stage("trace", "Trace", "s", "Tracing of the training program to a jaxpr.", 1),
    Stage("lower", "Lower", "s", "Lowering of the jaxpr to StableHLO.", 1),
    Stage("compile", "Compile", "s", "Compilation by XLA, without a cache.", 1),
    Stage("first_step", "First step", "ms", "First update of the compiled program.", 1e3),
    Stage(
        "steps_per_second",
        "Training speed",
        "steps/s",
        "Environment steps of all seeds per second of compiled training.",
        1,
    ),
    Stage("rollout", "Rollout", "ms", "One rollout of all seeds, compiled.", 1e3),
    Stage("update", "Update", "ms", "One update of all seeds from a given rollout, compiled.", 1e3),
    Stage(
        "evaluation",
        "Evaluation",
        "µs",
        "One step of all evaluation episodes of all seeds, compiled.",
        1e6,
    ),
    Stage("dispatch", "Call", "µs", "One call of the jitted policy from Python.", 1e6),
    Stage("memory", "Peak memory", "MB", "Peak memory of the process, up to the training.", 1e-6),
)
ONCE = ("construct", "init", "trace", "lower", "compile", "first_step")
FACTS = {
    "import": "import_library_seconds",
    **{name: f"{name}_seconds" for name in ONCE},
    "memory": "peak_memory_bytes",
}


def measure_costs(finished: Finished) -> JSONDict | None:
    """Measure the costs of the libraries that were trained, unless that was done before."""
    options, ledger = finished.options, finished.ledger
    backends = [job.backend for job in finished.jobs_of(options.env, finished.main)]
    if options.repetitions == 0 or not backends:
        return None
    path = ledger.folder(COSTS) / f"{COSTS}.json"
    if ledger.is_done(COSTS):
        stored = json.loads((ledger.results(COSTS) / path.name).read_text())
        if stored["repetitions"] == options.repetitions:
            return stored["cost"]
    with Bar(bar_format=COST_BAR, leave=False) as bar:
        bar.total = options.repetitions * len(backends)

        def announce(text: str) -> None:
            bar.set_description_str(text)
            bar.update()

        cost = measure(options, backends, options.repetitions, announce=announce)
    shutil.rmtree(path.parent, ignore_errors=True)
    with ledger.writing(COSTS) as folder:
        write_json(folder / path.name, {"repetitions": options.repetitions, "cost": cost})
    return cost


def measure(
    options: CompareOptions,
    backends: Sequence[str],
    repetitions: int,
    *,
    announce: Callable[[str], None] = lambda text: None,
) -> JSONDict:
    """Measure every stage of a training with each library, from the same weights.

    In each repetition every library gets a new process, in random order, and only one process works
    at a time, on one device. Steady parts run in turns, again in random order; a repetition's value
    is the median over the turns.

    Args:
      options: the training; `out` is ignored.
      backends: the libraries.
      repetitions: at least 1; at least 5 for intervals.
      announce: is called with what is done next.

    Returns:
      `stages`: a list of `name`, `title`, `unit` and `meaning`.
      `backends`: for each and each stage `median`, `low`, `high` (a 95% bootstrap interval of the
        median over repetitions; None below 5) and `count`.
      `slower`: costs surely above the cheapest library's; see `noise.slower`.
      `noise`: `noisy`, `sentence`, `load` and `spread`.
      `failed`: an error by backend, which then is not in `backends`.

    Raises:
      TriglotError: if `repetitions` is below 1, or all backends fail.
    """
    if repetitions < 1:
        raise TriglotError(f"repetitions must be at least 1, got {repetitions}.")
    with tempfile.TemporaryDirectory(prefix="triglot-cost-") as folder:
        run = _Measurement(options, Path(folder), np.random.default_rng(options.seed))
        for number in range(repetitions):
            where = f"measure speed {number + 1}/{repetitions}"
            run.repeat(backends, number, lambda name, where=where: announce(f"{where}: {name}"))
    done = [name for name in backends if name not in run.failed]
    if not done:
        raise TriglotError("; ".join(f"{name}: {why}" for name, why in run.failed.items()))
    stages = [s for s in STAGES if all(s.name in run.samples[name] for name in done)]
    shown = [
        {name: getattr(stage, name) for name in ("name", "title", "unit", "meaning")}
        for stage in stages
    ]
    rows = {
        name: {s.name: summary(np.array(run.samples[name][s.name]) * s.scale) for s in stages}
        for name in done
    }
    return {
        "stages": shown,
        "backends": rows,
        "slower": slower(shown, rows),
        "noise": run.noise.as_json(),
        "failed": run.failed,
    }


def summary(values: np.ndarray) -> JSONDict:
    """Compute the median of `[R]` values and its bootstrap interval."""
    median = bootstrap(np.median, [values])
    return {"median": median.value, "low": median.low, "high": median.high, "count": median.count}


@dataclass(frozen=True)
class _Measurement:
    """Collects samples in seconds or bytes, `samples[backend][stage]`, and errors by backend."""

    options: CompareOptions
    folder: Path
    rng: np.random.Generator
    noise: Noise = field(default_factory=Noise)
    samples: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    failed: dict[str, str] = field(default_factory=dict)

    def repeat(self, backends: Sequence[str], number: int, announce: Callable[[str], None]) -> None:
        """Run one process per backend, first all that happens once, then the rounds in turns."""
        running: dict[str, JobProcess] = {}
        with ExitStack() as stack:
            for name in self._shuffled([name for name in backends if name not in self.failed]):
                announce(name)
                self.noise.calibrate()
                running[name] = JobProcess(self._task(name, number), one_core=False)
                stack.callback(running[name].kill)
                self._wait(name, running)
            for _ in range(ROUNDS):
                for name in self._shuffled(list(running)):
                    self.noise.calibrate()
                    running[name].go()
                    self._wait(name, running)
        for name, process in running.items():
            self._add(name, json.loads(Path(process.task.arguments["result"]).read_text()))

    def _task(self, backend: str, number: int) -> Task:
        name = f"{number}-{backend}"
        arguments = {
            **arguments_of(replace(self.options, devices=1), backend, MEASURE_ONE),
            "weights": str(self.folder / "params.safetensors"),
            "result": str(self.folder / f"{name}.json"),
            "number": number,
            "rounds": ROUNDS,
        }
        return Task(
            name=name,
            label=backend,
            function=START,
            arguments=arguments,
            folder=str(self.folder),
        )

    def _wait(self, name: str, running: dict[str, JobProcess]) -> None:
        """Wait until a process has done its turn; drop the library if it failed."""
        outcome = running[name].wait()
        if outcome is not None and outcome.end != "done":
            self.failed[name] = outcome.message
            del running[name]

    def _add(self, backend: str, measured: JSON) -> None:
        samples, facts = self.samples[backend], measured["facts"]
        for stage, name in FACTS.items():
            if facts[name] is not None:
                samples[stage].append(facts[name])
        for part, seconds in measured["times"].items():
            median = statistics.median(seconds)
            if part == "training":
                steps = facts["steps_per_update"] * self.options.num_seeds
                part, median = "steps_per_second", steps / median
            samples[part].append(median)

    def _shuffled(self, names: Sequence[str]) -> list[str]:
        return [str(name) for name in self.rng.permutation(list(names))]
