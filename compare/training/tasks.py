"""Trainings of a comparison as jobs of an executor."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ...core.errors import TriglotError
from ...jobs.executor import Executor, Outcome, Task
from ...jobs.ledger import JOBS
from ...jobs.run import run_tasks, running_folder
from ...jobs.running import RunningJob
from ...jobs.view import View
from ...machine.files import plain
from ...machine.interrupt import Interrupt, Signalled
from ...registry.overrides import from_overrides
from ..jobs import Job, Ledger
from ..options import CompareOptions
from ..results import Record
from .run import Failure, Progress, check_any_done, run_job, share_weights, start
from .saved import Saved
from .worker import Worker


def run_at_once(
    executor: Executor, options: CompareOptions, ledger: Ledger, jobs: Sequence[Job]
) -> list[Failure]:
    """Run jobs that are not done yet; a library that fails does not stop the others.

    Args:
      executor: runs them.
      options: of the comparison.
      ledger: its folder.
      jobs: those that are left, the reference library first in each environment.

    Returns:
      The failures, of which the job's results are missing.

    Raises:
      TriglotError: if no library could be trained.
      Signalled: after an interruption, of which checkpoints are kept.
    """
    out = ledger.out.resolve()
    mapping = options.mapping.resolve() if options.mapping else None
    shared = {"options": plain(vars(replace(options, out=out, mapping=mapping)))}

    def task(name: str, label: str, function: Any, **arguments: Any) -> Task:
        return Task(
            name=name,
            label=label,
            function=f"{__name__}:{function.__name__}",
            arguments={**shared, **arguments},
            folder=str(running_folder(out / JOBS)),
        )

    # All libraries load the weights of the first, whichever of them is trained first.
    sharing = [job for job in jobs if job.shared.shared_weights]
    missing = {job.position: job for job in sharing if not ledger.weights(job.position).exists()}
    weights = [
        task(
            f"weights-{position}",
            f"initial weights on {job.env}",
            write_weights,
            jobs=[asdict(one) for one in sharing if one.position == position],
        )
        for position, job in missing.items()
    ]
    trainings = [
        task(
            job.name,
            f"{job.rung} {job.backend}",
            train_job,
            job=asdict(job),
            announced=number > 0,
        )
        for number, job in enumerate(jobs)
    ]
    with Interrupt() as interrupt:
        outcomes = _run(executor, weights, interrupt) | _run(executor, trainings, interrupt)
    if interrupt.number is not None:
        raise Signalled(interrupt.number)
    for one in (outcomes[each.name] for each in weights):
        if one.is_lost:
            raise TriglotError(f"the initial weights could not be computed. {one.message}")
    failures = [
        Failure(job, found.phase or "train", found.message)
        for job in jobs
        if (found := outcomes[job.name]).is_lost
    ]
    check_any_done(jobs, failures)
    return failures


def _run(executor: Executor, tasks: Sequence[Task], interrupt: Interrupt) -> dict[str, Outcome]:
    if not tasks or interrupt.pressed:
        return {}
    with View(tasks) as view:
        return run_tasks(executor, tasks, view, interrupt)


def num_saved(ledger: Ledger, jobs: Sequence[Job]) -> int:
    """Count the trainings that are not done and have a checkpoint."""
    left = [job for job in jobs if not ledger.is_done(job)]
    return sum(Saved(ledger.unfinished(job.name)).newest() is not None for job in left)


def write_weights(arguments: Mapping[str, Any], running: RunningJob) -> None:
    """Write the initial weights that all libraries share in one environment; see `Task`.

    They are those of the first library that can be built.
    """
    options = from_overrides(CompareOptions, arguments["options"])
    for job in (Job(**values) for values in arguments["jobs"]):
        running.bar.set_description_str(f"{job.backend}: initialize")
        try:
            with Worker(job.backend) as worker:
                share_weights(_ledger(options), job, start(worker, options, job, Record()))
        except TriglotError:
            continue  # the job itself reports why
        return


def train_job(arguments: Mapping[str, Any], running: RunningJob) -> None:
    """Train one library on one rung in one environment; see `Task`.

    Raises:
      TriglotError: if the library cannot be trained.
      Signalled: after an interruption, of which a checkpoint is kept.
    """
    options = from_overrides(CompareOptions, arguments["options"])
    progress = Progress(
        num_jobs=1,
        bar=running.bar,
        announced=arguments["announced"],
        interrupt=running.interrupt,
    )
    run_job(options, _ledger(options), Job(**arguments["job"]), progress)


def _ledger(options: CompareOptions) -> Ledger:
    assert options.out is not None
    return Ledger(options.out)
