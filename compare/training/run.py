"""Run the jobs of a comparison, one worker process after the other.

Where costs are measured by themselves, the next worker imports and compiles meanwhile.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from ...core.errors import TriglotError
from ...machine.cores import free_cores
from ...machine.files import plain, replacing
from ...machine.interrupt import Interrupt, Signalled
from ...terminal.wrapping import wrapped
from ...training.plan import rounded_up
from ..jobs import Job, Ledger
from ..options import CompareOptions
from ..results import Arrays, Record
from .ahead import ahead
from .saved import Saved, Unusable
from .worker import Worker, WorkerDied

BAR = "{desc:<36.36}{bar} {n_fmt}/{total_fmt} [{elapsed}]"  # counts chunks of training
# Parameters and outputs are kept at this many updates, or at fewer if they are large.
MAX_SNAPSHOTS, MIN_SNAPSHOTS, MAX_SNAPSHOT_BYTES = 40, 3, 2**27
CHECKPOINT_SECONDS = 60.0
MAX_SAVING_SHARE = 0.05  # of the time of a training, which a large replay buffer may exceed


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
      stage: what the running job is doing.
      announced: whether the comparison was described.
      num_saved: updates of the running job that are in its checkpoint.
      interrupt: whether to save a checkpoint and stop.
      training: whether a job trains; the next ones are not shown then.
    """

    num_jobs: int
    bar: Any = None
    records: dict[Job, Record] = field(default_factory=dict)
    stage: str = ""
    announced: bool = False
    num_saved: int = 0
    interrupt: Interrupt = field(default_factory=Interrupt)
    training: bool = False
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    def enter(self, job: Job, stage: str) -> None:
        """Show what is being done."""
        self.stage = stage
        self.show(job, stage)

    def show(self, job: Job, stage: str) -> None:
        """Show what is being done for a job, which may be one of the next."""
        self.bar.set_description_str(f"{job.rung} {job.backend}: {stage}")

    def say(self, text: str) -> None:
        """Print a text above the bar."""
        self.bar.write(wrapped(text))

    def announce(self, options: CompareOptions, job: Job, facts: Mapping[str, Any]) -> None:
        """Describe the comparison once, whichever job knows its size first."""
        with self._lock:
            if not self.announced:
                self.say(_announcement(options, job, facts))
            self.announced = True


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
    preparations: list[Preparation] = []
    for job in jobs:
        before = preparations[-1] if preparations else None
        preparations.append(Preparation(options, ledger, job, progress, before))
    with ExitStack() as stack:
        results = ahead([one.run for one in preparations], _at_once(options))
        stack.callback(results.close)
        for one in preparations:  # before their threads are waited for
            stack.callback(one.close)
        for one, prepare in zip(preparations, results, strict=True):
            try:
                run_job(options, ledger, one.job, progress, one, prepare)
            except TriglotError as error:
                failures.append(Failure(one.job, progress.stage, str(error)))
                progress.say(f"{one.job.rung} {one.job.backend}: {error}")
    check_any_done(jobs, failures)
    return failures


def _at_once(options: CompareOptions) -> int:
    """Count the jobs that are prepared at once: one if the report shows how long that takes.

    Their memory is checked, since costs are measured with one process per library.
    """
    return 2 if options.repetitions and len(free_cores()) > 1 else 1


def check_any_done(jobs: Sequence[Job], failures: Sequence[Failure]) -> None:
    """Check that a job was done.

    Raises:
      TriglotError: if all failed.
    """
    if jobs and len(failures) == len(jobs):
        first = failures[0]
        raise TriglotError(f"no library could be trained. {first.job.backend}: {first.message}")


def run_job(
    options: CompareOptions,
    ledger: Ledger,
    job: Job,
    progress: Progress,
    preparation: "Preparation | None" = None,
    prepare: Callable[[], None] | None = None,
) -> None:
    """Run a job, from its checkpoint if there is one that can be used.

    Args:
      options: of the comparison.
      ledger: its folder.
      job: which one.
      progress: shown to the user.
      preparation: of the job; None begins it.
      prepare: waits for it.

    Raises:
      TriglotError: if the library cannot be trained.
      Signalled: after an interruption, of which a checkpoint is kept.
    """
    preparation = preparation or Preparation(options, ledger, job, progress)
    try:
        _attempt(options, ledger, progress, preparation, prepare or preparation.run)
    except Unusable as error:
        progress.say(f"{job.rung} {job.backend} begins again: {error}")
        preparation.saved.drop()
        again = Preparation(options, ledger, job, progress)
        _attempt(options, ledger, progress, again, again.run)


class Preparation:
    """A worker that imports, builds and compiles the training of one job.

    Attributes:
      job: which one.
      saved: its checkpoint.
      record: its results so far.
      worker: its process, once it is started.
      continued: whether there is a checkpoint.
      stage: what is being done.
    """

    def __init__(
        self,
        options: CompareOptions,
        ledger: Ledger,
        job: Job,
        progress: Progress,
        before: "Preparation | None" = None,
    ) -> None:
        """Take a job; `before` is the one whose weights are shared before this one's."""
        self.job, self.stage = job, "import and build"
        self.saved = Saved(ledger.unfinished(job.name))
        self.record, self.continued = Record(), False
        self.worker: Worker | None = None
        self._options, self._ledger, self._progress = options, ledger, progress
        self._before, self._weights_shared = before, threading.Event()
        self._lock, self._closed = threading.Lock(), False

    def run(self) -> None:
        """Start the worker and let it compile; the first library's weights are shared first.

        Raises:
          TriglotError: if the library cannot be trained.
        """
        try:
            self._run()
        finally:
            self._weights_shared.set()

    def _run(self) -> None:
        self._enter(self.stage)
        begun = self.saved.load()
        self.continued, self.record = begun is not None, begun or Record()
        self.record.facts = {}
        worker = self._start_worker()
        params = start(worker, self._options, self.job, self.record)
        self._progress.announce(self._options, self.job, self.record.facts)
        if self._before is not None:
            self._before._weights_shared.wait()
        if self.job.shared.shared_weights:
            weights = share_weights(self._ledger, self.job, params)
            self._weights_shared.set()
            worker.ask("load", path=str(weights.resolve()))
        else:
            self._weights_shared.set()
        if not self.continued:
            self._enter("probe")
            self.record.probe = worker.ask("probe")[1]
        self._enter("compile")
        self.record.facts |= worker.ask("compile")[0]

    def close(self) -> None:
        """End the worker; if it has not been started, it never will be."""
        with self._lock:
            worker, self.worker, self._closed = self.worker, None, True
        if worker is not None:
            worker.__exit__()

    def _start_worker(self) -> Worker:
        with self._lock:
            if self._closed:
                raise TriglotError("the comparison was stopped.")
            self.worker = Worker(self.job.backend)
            return self.worker

    def _enter(self, stage: str) -> None:
        self.stage = stage
        if not self._progress.training:
            self._progress.show(self.job, stage)


def _attempt(
    options: CompareOptions,
    ledger: Ledger,
    progress: Progress,
    preparation: Preparation,
    prepare: Callable[[], None],
) -> None:
    job, saved = preparation.job, preparation.saved
    with closing(preparation):
        try:
            prepare()
        finally:
            progress.stage = preparation.stage
        record, worker = preparation.record, preparation.worker
        assert worker is not None
        progress.records[job], progress.num_saved = record, record.updates
        if preparation.continued:
            saved.restore(worker)
            done = f"{record.updates:,} of {record.facts['num_updates']:,}"
            progress.say(f"{job.rung} {job.backend} continues after {done} updates")
        progress.training = True
        try:
            _train_and_evaluate(options, worker, record, job, progress, saved)
        finally:
            progress.training = False
    with ledger.writing(job.name) as folder:
        record.save(folder)
    progress.num_saved = 0


def _train_and_evaluate(
    options: CompareOptions,
    worker: Worker,
    record: Record,
    job: Job,
    progress: Progress,
    saved: Saved,
) -> None:
    progress.enter(job, "train")
    _train(worker, record, progress, saved)
    progress.enter(job, "evaluate")
    facts, record.params = worker.ask("finish", eval_episodes=options.eval_episodes)
    record.facts |= facts
    record.program = worker.ask("program_text")[0]["text"]
    if job.backend == options.libraries[0]:
        record.facts |= worker.ask("random_return", num_episodes=options.eval_episodes)[0]


def start(worker: Worker, options: CompareOptions, job: Job, record: Record) -> Arrays:
    """Build the agent of a job and return its initial weights; facts are added to the record."""
    task = {"options": plain(vars(options)), "env": job.env, "rung": job.rung}
    reference = options.libraries[0]
    record.facts |= worker.ask("start", backend=job.backend, reference=reference, **task)[0]
    facts, params = worker.ask("init")
    record.facts |= facts
    return params


def share_weights(ledger: Ledger, job: Job, params: Arrays) -> Path:
    """Return the file of the shared weights; the first library that gets here gives its own."""
    weights = ledger.weights(job.position)
    if not weights.exists():
        with replacing(weights) as unfinished:
            save_file(params, unfinished)
    return weights


def _train(worker: Worker, record: Record, progress: Progress, saved: Saved) -> None:
    """Train what is left; a signal saves a checkpoint and ends it."""
    num_updates, chunk_size = (record.facts[name] for name in ("num_updates", "chunk_size"))
    if not record.snapshots:
        record.add_snapshot(0, worker.ask("snapshot")[1])
    bytes_each = sum(array.nbytes for array in record.snapshots[0].values())
    wanted = snapshot_updates(num_updates, MAX_SNAPSHOT_BYTES // max(bytes_each, 1))
    bar, done = progress.bar, record.updates
    bar.total = progress.num_jobs * -(-num_updates // chunk_size)
    bar.update(done // chunk_size)
    last, pause = time.monotonic(), CHECKPOINT_SECONDS
    with progress.interrupt as interrupt:
        while done < num_updates:
            end = min(done - done % chunk_size + chunk_size, num_updates)
            # A chunk is cut where a snapshot is due, which changes no number.
            stop = min((update for update in wanted if done < update < end), default=end)
            timing, metrics = worker.ask("train", count=stop - done)
            record.add_chunk(stop - done, timing, metrics)
            done = stop
            if done in wanted:
                record.add_snapshot(done, worker.ask("snapshot")[1])
            if done == end:
                bar.update(1)
            start = time.monotonic()
            if interrupt.pressed or start - last >= pause:
                _save(worker, record, progress, saved)
                last = time.monotonic()
                pause = max(pause, (last - start) / MAX_SAVING_SHARE)
            if interrupt.number is not None:
                raise Signalled(interrupt.number)


def _save(worker: Worker, record: Record, progress: Progress, saved: Saved) -> None:
    """Write a checkpoint; the training goes on without one, since the disk may have room later."""
    try:
        saved.save(worker, record)
    except WorkerDied:
        raise
    except TriglotError as error:
        progress.say(f"no checkpoint after {record.updates:,} updates: {error}")
    else:
        progress.num_saved = record.updates


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
