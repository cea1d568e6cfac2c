"""Train one library on one rung: the function of a comparison's jobs."""

import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ...core.errors import TriglotError
from ...runs.jobs.job import RunningJob
from ...runs.jobs.ledger import Ledger
from ...shared.machine.files import replacing
from ...shared.machine.interrupt import Signalled
from ..jobs import Job, weights_file
from ..options import CompareOptions
from ..programs import program_text
from ..results import Arrays, Record, Saved
from ..start import Started
from .session import Session

# Parameters and outputs are kept at this many updates, or at fewer if they are large.
MAX_SNAPSHOTS, MIN_SNAPSHOTS, MAX_SNAPSHOT_BYTES = 40, 3, 2**27
CHECKPOINT_SECONDS = 60.0
MAX_SAVING_SHARE = 0.05  # of the time of a training, which a large replay buffer may exceed
POLL_SECONDS = 0.05


def train(started: Started) -> None:
    """Train one library on one rung in one environment, and write its results.

    Args:
      started: its arguments are `job`, the fields of a `Job`, and `leads`, whether its initial
        weights are shared.

    Raises:
      TriglotError: if the library cannot be trained.
      Signalled: after an interruption, of which a checkpoint is kept.
    """
    options, arguments, running = started.options, started.arguments, started.running
    assert options.out is not None
    job, ledger = Job(**arguments["job"]), Ledger(options.out)
    saved = Saved(ledger.unfinished(job.name))
    session = _session(options, job)
    session.facts |= started.seconds
    session.facts["import_seconds"] += session.facts["env_seconds"]
    params = session.init()
    if job.shared.shared_weights:
        path = weights_file(options.out, job.position)
        while not (path.exists() or arguments["leads"] or running.has_turn):
            time.sleep(POLL_SECONDS)
        share_weights(path, params)
        session.load(path)
    del params
    running.enter("compile")
    session.compile()
    record = _continued(session, running, saved, job)
    if record is None:
        running.enter("probe")
        record = Record(probe=session.probe())
    record.facts = session.facts
    running.wait_for_turn()
    _train(session, record, running, saved, job)
    running.enter("evaluate")
    record.params = session.finish()
    record.program = program_text(session.program.compiled)
    if job.backend == options.libraries[0]:
        record.facts["random_return"] = session.random_return()
    with ledger.writing(job.name) as folder:
        record.save(folder)


def write_weights(started: Started) -> None:
    """Write the initial weights that all libraries share in one environment; see `train`.

    They are those of the first library in `jobs` that can be built.
    """
    options = started.options
    assert options.out is not None
    for job in (Job(**values) for values in started.arguments["jobs"]):
        started.running.enter("initialize")
        try:
            params = _session(options, job).init()
        except TriglotError:
            continue  # the job itself reports why
        share_weights(weights_file(options.out, job.position), params)
        return


def _continued(session: Session, running: RunningJob, saved: Saved, job: Job) -> Record | None:
    """Restore the job's checkpoint; None if there is none, or it cannot be used."""
    try:
        record, newest = saved.load(), saved.newest()
        if record is not None and newest is not None:
            session.restore(newest)
            done = f"{record.updates:,} of {session.experiment.num_updates:,} updates"
            running.say(f"{job.label} continues after {done}")
        return record
    except TriglotError as error:  # it is damaged, or belongs to another training
        running.say(f"{job.label} begins again: {error}")
        saved.drop()
        return None


def _session(options: CompareOptions, job: Job) -> Session:
    return Session(options, job.backend, env=job.env, rung=job.shared)


def share_weights(path: Path, params: Arrays) -> None:
    """Write the shared weights, unless another library has."""
    if not path.exists():
        with replacing(path) as unfinished:
            save_file(params, unfinished)


def _train(session: Session, record: Record, running: RunningJob, saved: Saved, job: Job) -> None:
    """Train what is left; a signal saves a checkpoint and ends it."""
    num_updates, chunk_size = session.experiment.num_updates, session.experiment.chunk_size
    if not record.snapshots:
        record.snapshots[0] = session.snapshot()
    bytes_each = sum(array.nbytes for array in record.snapshots[0].values())
    wanted = snapshot_updates(num_updates, MAX_SNAPSHOT_BYTES // max(bytes_each, 1))
    done, running.total = record.updates, num_updates
    running.advance(done)
    last, pause = time.monotonic(), CHECKPOINT_SECONDS
    running.saves = True
    running.enter("train")
    while done < num_updates:
        end = min(done - done % chunk_size + chunk_size, num_updates)
        # A chunk is cut where a snapshot is due, which changes no number.
        stop = min((update for update in wanted if done < update < end), default=end)
        facts, metrics = session.train(stop - done)
        facts["resident_bytes"] -= record.nbytes  # what is kept grows, and is no leak
        record.add_chunk(stop - done, facts, metrics)
        running.advance(stop - done)
        done = stop
        if done in wanted:
            record.snapshots[done] = session.snapshot()
        start = time.monotonic()
        if running.interrupt.pressed or start - last >= pause:
            try:
                saved.save(session.save, record)
            except TriglotError as error:  # the disk may have room later
                running.say(f"{job.label}: no checkpoint after {done:,} updates: {error}")
            last = time.monotonic()
            pause = max(pause, (last - start) / MAX_SAVING_SHARE)
        if running.interrupt.number is not None:
            raise Signalled(running.interrupt.number)
    running.saves = False


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
