"""Batches of a sweep as jobs of an executor."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..core.errors import TriglotError
from ..core.hyper import check_count
from ..jobs.choose import LOCAL, SEQUENTIAL, chosen, make_executor, on_cpu
from ..jobs.custom import custom_files
from ..jobs.executor import Executor, Task
from ..jobs.ledger import FILE, JOBS, Ledger, load, other_options
from ..jobs.run import run_tasks, running_folder
from ..jobs.running import RunningJob
from ..jobs.view import View
from ..machine.cores import free_cores
from ..machine.files import plain
from ..machine.interrupt import Interrupt, Signalled
from ..registry.overrides import from_overrides
from ..registry.own import own_parts
from ..training.compilation_cache import configure
from ..training.devices import most_devices
from .batches import Batch
from .options import SweepOptions
from .plan import SweepPlan, make_plan
from .training import Progress, Runner, saved_batches

# Facts of the sweep's folder: whether each batch has one core; else, the most devices for each.
ONE_CORE, DEVICES = "one_core", "devices"


def choose_executor(plan: SweepPlan, out: Path | None, num_batches: int) -> Executor | None:
    """Choose what trains the batches; None trains one after the other in this process.

    Args:
      plan: the sweep.
      out: its folder, which may hold an interrupted one.
      num_batches: how many there are if each has all memory.

    Raises:
      TriglotError: if options contradict each other or the folder, or there is no cluster.
    """
    options = plan.options
    name = chosen(options)
    facts = _facts(out)
    begun = None if facts is None else facts.get(ONE_CORE, False)
    if name is None:
        parallel = num_batches > 1 and len(free_cores()) > 1 and on_cpu()
        parallel = parallel and options.devices in (None, 1)
        name = LOCAL if (parallel if begun is None else begun) else SEQUENTIAL
    if begun is not None and begun != (name != SEQUENTIAL):
        had = "one core for each batch" if begun else "all cores for each batch"
        other = "--executor local" if begun else "--executor sequential"
        raise TriglotError(
            f"{out} holds a sweep with {had}, which decides the last bits of its results: continue "
            f"it with {other}, or choose another --out."
        )

    def modules() -> Mapping[str, Path]:
        parts = [own_parts(group.options, group.options.network) for group in plan.groups]
        return custom_files(part for group in parts for part in group)

    return make_executor(name, options, modules)


def recorded_devices(out: Path | None) -> int | None:
    """Return the most devices of each batch in a sweep's folder; None if there is no sweep yet."""
    facts = _facts(out)
    return None if facts is None else facts.get(DEVICES, 1)


def num_devices(options: SweepOptions, out: Path | None, executor: Executor | None) -> int:
    """Choose among how many devices a batch is divided at most.

    Args:
      options: of the sweep.
      out: its folder, which may hold an interrupted one.
      executor: what trains the batches.

    Raises:
      TriglotError: if options contradict each other or the folder.
    """
    given, recorded = options.devices, recorded_devices(out)
    if executor is not None:
        if given not in (None, 1):
            raise TriglotError(
                f"--devices {given} divides a batch among devices, and each batch has one core "
                f"here ({executor.title}): leave out --devices, or --jobs and --executor."
            )
        return 1
    if given is not None:
        check_count("devices", given)
    if recorded is None:
        return most_devices() if given is None else given
    if given not in (None, recorded):
        assert out is not None
        raise other_options(out, "sweep", DEVICES, recorded, given)
    return recorded


def _facts(out: Path | None) -> Mapping[str, Any] | None:
    """Read what was decided when the sweep in a folder was begun; None if there is none."""
    if out is None or not (out / FILE).exists():
        return None
    found = load(out / FILE)
    return found.get("facts", {}) if isinstance(found, dict) else None


def train_batches(
    executor: Executor,
    plan: SweepPlan,
    ledger: Ledger,
    left: Mapping[Batch, float],
    earlier: Sequence[Batch],
    *,
    done: float,
    total: float,
    interrupt: Interrupt,
) -> bool:
    """Train the batches of a stage that are not done.

    Args:
      executor: trains them.
      plan: the sweep.
      ledger: its folder.
      left: the batches, with their environment steps.
      earlier: the batches of the stage before.
      done: environment steps of other batches that are done.
      total: environment steps of the sweep.
      interrupt: whether to stop.

    Returns:
      Whether all are done; False after an interruption.

    Raises:
      TriglotError: if a batch failed, after the others were trained.
    """
    out = ledger.out.resolve()
    shared = {
        "options": plain(vars(plan.options)),
        "out": str(out),
        "earlier": [asdict(batch) for batch in earlier],
    }
    tasks = [
        Task(
            name=batch.name,
            label=f"batch {batch.name}",
            function=f"{__name__}:train_batch",
            arguments={**shared, "batch": asdict(batch)},
            folder=str(running_folder(out / JOBS)),
            size=steps,
        )
        for batch, steps in left.items()
    ]
    with View(tasks, done, total) as view:
        outcomes = run_tasks(executor, tasks, view, interrupt)
    lost = [(name, one) for name, one in outcomes.items() if one.is_lost]
    if lost and not interrupt.pressed:
        name, one = lost[0]
        raise TriglotError(
            f"{len(lost)} of {len(tasks)} batches failed, and the others are kept. Batch {name}: "
            f"{one.message}"
        )
    return not interrupt.pressed


def num_saved(ledger: Ledger, batches: Sequence[Batch]) -> int:
    """Count the batches that are not done and have a checkpoint."""
    return sum(not ledger.is_done(batch.name) for batch in saved_batches(ledger, batches))


def train_batch(arguments: Mapping[str, Any], job: RunningJob) -> None:
    """Train one batch in a process of its own; see `Task`.

    Raises:
      Signalled: after an interruption, of which a checkpoint is kept.
    """
    options = from_overrides(SweepOptions, arguments["options"])
    configure(options)
    job.bar.set_description_str("batch: build")
    plan = make_plan(options)
    batch, earlier = _batch(arguments["batch"]), [_batch(each) for each in arguments["earlier"]]
    trainer = plan.groups[batch.group].trainer
    ledger = Ledger(Path(arguments["out"]), {})
    if saved_batches(ledger, [batch]):
        job.bar.write(f"batch {batch.name} continues from its checkpoint on {platform.node()}")
    job.bar.total = len(batch) * (batch.stop - batch.start) * trainer.steps_per_update
    progress = Progress(job.bar, label=f"batch {batch.name}")
    runner = Runner(plan, ledger, progress, job.interrupt)
    if not runner.run(batch, earlier):
        raise Signalled(job.interrupt.number or 0)


def _batch(values: Mapping[str, Any]) -> Batch:
    pairs = {name: tuple(values[name]) for name in ("settings", "seeds")}
    return Batch(**{**values, **pairs})
