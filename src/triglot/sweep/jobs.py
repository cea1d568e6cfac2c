"""The batches of a sweep as jobs."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..core.errors import TriglotError
from ..core.loop.trainer import Program
from ..core.records import JSON
from ..runs.compilation_cache import configure
from ..runs.jobs.choose import DEVICES, LOCAL, SEQUENTIAL, Executor, choose_executor, on_cpu
from ..runs.jobs.job import RunningJob, Task
from ..runs.jobs.ledger import Ledger, read_facts
from ..runs.jobs.local import HereExecutor
from ..runs.jobs.run import run_tasks
from ..runs.registry.overrides import from_overrides
from ..runs.registry.own import own_parts
from ..shared.machine.cores import free_cores
from ..shared.machine.interrupt import Interrupt
from .batches import Batch
from .options import SweepCommandOptions
from .plan import SweepPlan, make_plan
from .report import MACHINE
from .results import Outcome, outcomes
from .search.confirm import fresh_plan
from .search.rounds import recorded
from .training import Runner, has_checkpoint

WHAT = "sweep"


def sweep_executor(plan: SweepPlan, begun: JSON | None, num_batches: int) -> Executor | None:
    """Choose what trains the batches; None trains one after the other in this process.

    Args:
      plan: the sweep.
      begun: the facts of its folder; None for a new one.
      num_batches: how many there are if each has all memory.

    Raises:
      TriglotError: if options contradict each other or the folder, or there is no cluster.
    """

    def custom() -> list[str]:
        parts = [own_parts(group.options, group.options.network) for group in plan.groups]
        return [part for group in parts for part in group]

    parallel = num_batches > 1 and len(free_cores()) > 1 and on_cpu()
    parallel = parallel and plan.options.devices in (None, 1)
    default = LOCAL if parallel else SEQUENTIAL
    return choose_executor(plan.options, WHAT, begun, custom, default=default)


def recorded_devices(out: Path | None) -> int | None:
    """Return the most devices of each batch in a sweep's folder; None if there is no sweep yet.

    Raises:
      TriglotError: if the folder holds something else.
    """
    begun = read_facts(out, WHAT)
    return None if begun is None else begun[DEVICES]


@dataclass
class Sweep:
    """A sweep that is under way.

    Attributes:
      plan: the sweep, with the settings of all rounds up to now.
      ledger: its folder.
      executor: trains the batches; None trains one after the other in this process.
      interrupt: whether to stop.
      sizes: the most trainings in a batch, by group.
      programs: compiled programs of this process; see `Runner`.
      stages: the batches of each stage up to now.
      names: of all batches up to now.
      confirmed: the winners' outcomes with fresh seeds.
    """

    plan: SweepPlan
    ledger: Ledger
    executor: Executor | None
    interrupt: Interrupt
    sizes: list[int]
    programs: dict[tuple[int, int], Program] = field(default_factory=dict)
    stages: list[list[Batch]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    confirmed: list[Outcome] = field(default_factory=list)

    def outcomes(self) -> list[Outcome]:
        """Read the outcomes of all settings up to now."""
        return outcomes(self.plan, self.ledger, self.stages)


def train_batches(
    sweep: Sweep,
    batches: Mapping[Batch, float],
    earlier: Sequence[Batch],
    *,
    where: str,
    done: float,
    total: float,
    best: Sequence[int] = (),
    options: SweepCommandOptions | None = None,
) -> None:
    """Train the batches of a stage that are not done.

    Args:
      sweep: of the batches.
      batches: with their environment steps.
      earlier: the batches of the stage before.
      where: begins the batches' labels.
      done: environment steps of the stages before.
      total: environment steps of the sweep.
      best: the settings that are trained with fresh seeds; none for those of the plan.
      options: of the sweep, if the plan is that of fresh seeds.

    Raises:
      TriglotError: if a batch failed, after the others were trained.
      Signalled: after an interruption, of which checkpoints are kept.
    """
    plan, ledger, interrupt = sweep.plan, sweep.ledger, sweep.interrupt
    shared = {
        "options": vars(options or plan.options),
        "best": list(best),
        "out": ledger.out.resolve(),
        "earlier": [asdict(batch) for batch in earlier],
    }
    tasks = [
        ledger.task(
            batch.name,
            f"{where}batch {number} of {len(batches)}",
            f"{__name__}:train_batch",
            {**shared, "batch": asdict(batch)},
            size,
        )
        for number, (batch, size) in enumerate(batches.items(), 1)
    ]
    runner, named = Runner(plan, ledger, sweep.programs), {batch.name: batch for batch in batches}

    def here(task: Task, job: RunningJob) -> None:
        runner.run(named[task.name], earlier, job)

    ended = run_tasks(
        sweep.executor or HereExecutor(here, interrupt),
        [task for task in tasks if not ledger.is_done(task.name)],
        interrupt,
        done=done + sum(task.size for task in tasks if ledger.is_done(task.name)),
        total=total,
    )
    interrupt.check()
    lost = [(name, outcome) for name, outcome in ended.items() if outcome.is_lost]
    if lost:
        name, outcome = lost[0]
        raise TriglotError(
            f"{len(lost)} of {len(tasks)} batches failed, and the others are kept. Batch {name}: "
            f"{outcome.message}"
        )


def train_batch(arguments: JSON, job: RunningJob) -> None:
    """Train one batch in a process of its own; see `Task`.

    Raises:
      Signalled: after an interruption, of which a checkpoint is kept.
    """
    options = from_overrides(SweepCommandOptions, arguments["options"])
    configure(options)
    job.enter("build")
    ledger = Ledger(Path(arguments["out"]))
    plan = recorded(make_plan(options), ledger)
    if arguments["best"]:
        plan = fresh_plan(plan, arguments["best"])
    batch = from_overrides(Batch, arguments["batch"])
    earlier = [from_overrides(Batch, values) for values in arguments["earlier"]]
    if has_checkpoint(ledger, batch.name):
        job.say(f"batch {batch.name} continues from its checkpoint on {platform.node()}")
    Runner(plan, ledger).run(batch, earlier, job)


def computing(options: SweepCommandOptions) -> JSON:
    """List the options that decide what is computed."""
    return {name: value for name, value in vars(options).items() if name not in MACHINE}
