"""Run the jobs of a comparison, one worker process after the other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from ....core.errors import TriglotError
from ....core.loop.chunks import chunk_sizes
from ...options import CompareOptions
from ...runs.plan import rounded_up
from ...storage.files import plain, replacing
from ..jobs import Job, Ledger
from ..results import Arrays, Record
from .worker import Worker

BAR = "{desc:<32.32}{bar} {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"  # counts chunks of training
# Parameters and outputs are kept at this many updates, or at fewer if they are large.
MAX_SNAPSHOTS, MIN_SNAPSHOTS, MAX_SNAPSHOT_BYTES = 40, 3, 2**27


@dataclass(frozen=True)
class Failure:
    """A job that could not be done.

    Attributes:
      job: which one.
      stage: what it was doing.
      message: why it failed.
    """

    job: Job
    stage: str
    message: str

    def as_json(self) -> dict[str, Any]:
        """Give the entry of `comparison.json`."""
        job = self.job
        return {
            "backend": job.backend,
            "rung": job.rung,
            "env": job.env,
            "stage": self.stage,
            "message": self.message,
        }


@dataclass
class Progress:
    """The bar, and where the running job is.

    Attributes:
      num_jobs: that are left to do.
      bar: counts chunks.
      records: results so far by job, also of a job that is interrupted.
    """

    num_jobs: int
    bar: Any = None
    records: dict[Job, Record] = field(default_factory=dict)
    stage: str = ""
    announced: bool = False

    def enter(self, job: Job, stage: str) -> None:
        """Show what is being done."""
        self.stage = stage
        self.bar.set_description_str(f"{job.rung} {job.backend}: {stage}")


def run_jobs(
    options: CompareOptions, ledger: Ledger, jobs: list[Job], progress: Progress
) -> list[Failure]:
    """Run jobs that are not done yet; a library that fails does not stop the others.

    Args:
      options: of the comparison.
      ledger: its folder.
      jobs: those that are left, the reference library first in each environment.
      progress: shown to the user; its records are filled.

    Returns:
      The failures, of which the job's results are missing.

    Raises:
      TriglotError: if no library could be trained.
    """
    failures: list[Failure] = []
    for job in jobs:
        try:
            _run(options, ledger, job, progress)
        except TriglotError as error:
            failures.append(Failure(job, progress.stage, str(error)))
            progress.bar.write(f"{job.rung} {job.backend}: {error}")
    if jobs and len(failures) == len(jobs):
        first = failures[0]
        raise TriglotError(f"no library could be trained. {first.job.backend}: {first.message}")
    return failures


def _run(options: CompareOptions, ledger: Ledger, job: Job, progress: Progress) -> None:
    record = progress.records[job] = Record()
    with Worker(job.backend) as worker:
        ask = worker.ask
        progress.enter(job, "import and build")
        task = {"options": plain(vars(options)), "env": job.env, "rung": job.rung}
        reference = options.libraries[0]
        record.facts |= ask("start", backend=job.backend, reference=reference, **task)[0]
        facts, params = ask("init")
        record.facts |= facts
        if not progress.announced:
            progress.bar.write(_announcement(options, job, record.facts))
            progress.announced = True
        if job.shared.shared_weights:
            _share_weights(ledger, job, worker, params)
        progress.enter(job, "probe")
        record.probe = ask("probe")[1]
        progress.enter(job, "compile")
        record.facts |= ask("compile")[0]
        progress.enter(job, "train")
        _train(worker, record, progress)
        progress.enter(job, "evaluate")
        facts, record.params = ask("finish", eval_episodes=options.eval_episodes)
        record.facts |= facts
        record.program = ask("program_text")[0]["text"]
        if job.backend == reference:
            record.facts |= ask("random_return", num_episodes=options.eval_episodes)[0]
    with ledger.writing(job.name) as folder:
        record.save(folder)


def _share_weights(ledger: Ledger, job: Job, worker: Worker, params: Arrays) -> None:
    """Load the shared weights; the first library that gets here gives its own."""
    weights = ledger.weights(job.position)
    if not weights.exists():
        with replacing(weights) as unfinished:
            save_file(params, unfinished)
    worker.ask("load", path=str(weights.resolve()))


def _train(worker: Worker, record: Record, progress: Progress) -> None:
    facts = record.facts
    first = worker.ask("snapshot")[1]
    record.add_snapshot(0, first)
    bytes_each = sum(array.nbytes for array in first.values())
    wanted = snapshot_updates(facts["num_updates"], MAX_SNAPSHOT_BYTES // max(bytes_each, 1))
    counts = list(chunk_sizes(facts["num_updates"], facts["chunk_size"]))
    bar = progress.bar
    bar.total = progress.num_jobs * len(counts)
    done = 0
    for count in counts:
        end = done + count
        while done < end:
            # A chunk is cut where a snapshot is due, which changes no number.
            stop = min((update for update in wanted if update > done), default=end)
            piece = min(stop, end) - done
            timing, metrics = worker.ask("train", count=piece)
            record.add_chunk(piece, timing, metrics)
            done += piece
            if done in wanted:
                record.add_snapshot(done, worker.ask("snapshot")[1])
        bar.update()


def snapshot_updates(num_updates: int, limit: int) -> list[int]:
    """Choose the updates after which parameters and outputs are kept, about evenly on a log axis.

    Args:
      num_updates: of the training.
      limit: how many fit into memory.

    >>> snapshot_updates(100, 6)
    [1, 3, 6, 16, 40, 100]
    """
    count = max(MIN_SNAPSHOTS, min(MAX_SNAPSHOTS, limit))
    points = np.geomspace(1, num_updates, count)
    return sorted({round(point) for point in points})


def _announcement(options: CompareOptions, job: Job, facts: Mapping[str, Any]) -> str:
    """Describe the comparison, and whether the total was rounded up."""
    updates, per_update = facts["num_updates"], facts["steps_per_update"]
    text = (
        f"{options.algorithm} on {job.env}, {' '.join(options.libraries)}:\n{options.num_seeds} "
        f"seeds x {updates * per_update:,} steps, {updates:,} updates of {per_update:,} steps"
    )
    if updates * per_update == options.total_steps:
        return text
    return f"{text}\n{rounded_up(options.total_steps, per_update, updates * per_update)}"
