"""Measure what each library costs: a process per library and repetition, in random order."""

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from ...core.errors import TriglotError
from ...machine.files import plain
from ...report.statistics.estimate import bootstrap
from ..options import CompareOptions
from ..rungs import rung_of_arithmetic
from ..training.worker import Worker
from .noise import Noise
from .slower import slower

SESSION = f"{__package__}.session:CostSession"
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
    scale: float = field(repr=False)

    def as_json(self) -> dict[str, str]:
        """Return what a report shows."""
        names = ("name", "title", "unit", "meaning")
        return {name: getattr(self, name) for name in names}


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
SECONDS_OF = {
    "import": "import_library_seconds",
    **{name: f"{name}_seconds" for name in ("construct", "init", "trace", "lower", "compile")},
}


def measure(
    options: CompareOptions,
    backends: Sequence[str],
    repetitions: int,
    *,
    announce: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
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
      `slower`: costs surely above the cheapest library's; see `slower.slower`.
      `noise`: `noisy`, `sentence`, `load` and `spread`.
      `failed`: an error by backend, which then is not in `backends`.

    Raises:
      TriglotError: if `repetitions` is below 1, or all backends fail: the first one's error.
    """
    if repetitions < 1:
        raise TriglotError(f"repetitions must be at least 1, got {repetitions}.")
    noise = Noise()
    run = _Measurement(options, announce, noise)
    with tempfile.TemporaryDirectory(prefix="triglot-cost-") as folder:
        for repetition in range(repetitions):
            names = [name for name in backends if name not in run.failed]
            run.repeat(
                names, Path(folder) / "params.safetensors", f"{repetition + 1}/{repetitions}"
            )
    done = [name for name in backends if name not in run.failed]
    if not done:
        raise next(iter(run.failed.values()))
    stages = [s for s in STAGES if all(s.name in run.samples[name] for name in done)]
    shown = [stage.as_json() for stage in stages]
    rows = {
        name: {s.name: summary(np.array(run.samples[name][s.name]) * s.scale) for s in stages}
        for name in done
    }
    return {
        "stages": shown,
        "backends": rows,
        "slower": slower(shown, rows),
        "noise": noise.as_json(),
        "failed": {name: str(error) for name, error in run.failed.items()},
    }


def summary(values: np.ndarray) -> dict[str, Any]:
    """Compute the median of `[R]` values and its bootstrap interval."""
    (found,) = bootstrap(
        lambda sample, axis: np.median(sample, axis=axis), [values[None]], len(values)
    )
    return {"median": found.value, "low": found.low, "high": found.high, "count": found.count}


class _Measurement:
    """Collects samples in seconds or bytes, `samples[backend][stage]`."""

    def __init__(
        self, options: CompareOptions, announce: Callable[[str], None], noise: Noise
    ) -> None:
        self.options, self.announce, self.noise = options, announce, noise
        self.rng = np.random.default_rng(options.seed)
        self.samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.failed: dict[str, TriglotError] = {}
        self.steps: dict[str, int] = {}  # environment steps of all seeds in one update

    def repeat(self, backends: Sequence[str], weights: Path, number: str) -> None:
        """Run one process per backend, first all stages that happen once, then the others."""
        with ExitStack() as stack:
            parts: dict[Worker, list[str]] = {}
            for name in self._shuffled(backends):
                self.announce(f"measure speed {number}: {name}")
                worker = stack.enter_context(Worker(name))
                try:
                    parts[worker] = self._once(worker, weights)
                except TriglotError as error:
                    self.failed[name] = error
            turns: dict[tuple[str, str], list[float]] = defaultdict(list)
            for _ in range(ROUNDS):
                for index in self.rng.permutation(len(parts)):
                    worker = list(parts)[index]
                    try:
                        self._turn(worker, parts[worker], turns)
                    except TriglotError as error:
                        self.failed[worker.backend] = error
                parts = {w: names for w, names in parts.items() if w.backend not in self.failed}
            for (backend, stage), values in turns.items():
                median = statistics.median(values)
                if stage == "training":
                    stage, median = "steps_per_second", self.steps[backend] / median
                self.samples[backend][stage].append(median)

    def _once(self, worker: Worker, weights: Path) -> list[str]:
        samples = self.samples[worker.backend]
        self.noise.calibrate()
        task = plain(vars(replace(self.options, devices=1)))
        place = {
            "env": self.options.env,
            "rung": rung_of_arithmetic(self.options.arithmetic).name,
            "reference": self.options.libraries[0],
        }
        facts, _ = worker.ask(
            "start", backend=worker.backend, options=task, session=SESSION, **place
        )
        self.steps[worker.backend] = facts["steps_per_update"] * self.options.num_seeds
        more, params = worker.ask("init")
        if not weights.exists():
            save_file(params, weights)
        worker.ask("load", path=str(weights))
        facts |= more | worker.ask("compile")[0]
        for stage, name in SECONDS_OF.items():
            samples[stage].append(facts[name])
        samples["first_step"].append(worker.ask("train", count=1)[0]["seconds"])
        memory = worker.ask("memory")[0]["peak_memory_bytes"]
        if memory is not None:
            samples["memory"].append(memory)
        return worker.ask("prepare")[0]["parts"]

    def _turn(
        self, worker: Worker, parts: list[str], turns: dict[tuple[str, str], list[float]]
    ) -> None:
        self.noise.calibrate()
        for part in self._shuffled(parts):
            seconds = worker.ask("time", part=part)[0]["seconds"]
            turns[worker.backend, part].append(seconds)
        calls = worker.ask("dispatch", calls=100)[0]["seconds"]
        turns[worker.backend, "dispatch"].append(statistics.median(calls))

    def _shuffled(self, names: Sequence[str]) -> list[str]:
        return [str(name) for name in self.rng.permutation(list(names))]
