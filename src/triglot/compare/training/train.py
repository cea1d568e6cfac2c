"""Train one library on one rung: the function of a comparison's jobs."""

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ...core.errors import TriglotError, counted
from ...core.loop.checkpoint import Checkpoints
from ...core.loop.state import RunnerState
from ...core.loop.trainer import CompiledProgram
from ...core.manifest import belongs_to
from ...core.records import JSONDict
from ...runs import identity
from ...runs.jobs.job import RunningJob
from ...runs.jobs.ledger import Ledger
from ...runs.registry.environments import make_env
from ...shared.machine import version
from ...shared.machine.files import replacing
from ..jobs import Job, weights_file
from ..options import CompareOptions
from ..programs import Program, describe, program_text
from ..results import Arrays, Record
from ..rungs import Rung
from ..start import Started
from .library import LibraryExperiment
from .measuring import compile_timed, peak_memory_bytes, resident_bytes, timed

# Parameters and outputs are kept at this many updates, or at fewer if they are large.
MAX_SNAPSHOTS, MIN_SNAPSHOTS, MAX_SNAPSHOT_BYTES = 40, 3, 2**27
CHECKPOINT_SECONDS = 60.0
MAX_SAVING_SHARE = 0.05  # of the time of a training, which a large replay buffer may exceed
POLL_SECONDS = 0.05
ESTIMATE_SECONDS = 3.0  # of training, from which the time of the whole is estimated


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
    start = time.perf_counter() - started.seconds["import_seconds"]
    job, ledger = Job(**arguments["job"]), Ledger(options.out)
    library, facts = build(options, job.backend, job.shared, job.env, started.seconds)
    experiment = library.experiment
    state, facts["init_seconds"] = timed(experiment.start)
    if job.shared.shared_weights:
        path = weights_file(options.out, job.position)
        while not (path.exists() or arguments["leads"] or running.has_turn):
            time.sleep(POLL_SECONDS)
        share_weights(path, library.named_params(state))
        state = library.start_from(path)
    running.enter("compile")
    program, seconds = compile_timed(experiment, state)
    checkpoints = Checkpoints(ledger.checkpoints(job.name), keep=1)
    saving = Saving(library, checkpoints, origin(program, facts["device"]))
    try:
        continued = saving.restore()
    except TriglotError as error:  # it is damaged, or belongs to another training
        running.say(f"{job.label} begins again: {error}")
        shutil.rmtree(checkpoints.folder, ignore_errors=True)
        continued = None
    if continued is None:
        running.enter("probe")
        record = Record(probe=library.probe(state))
    else:
        record, state = continued
        done = f"{record.updates:,} of {counted(experiment.num_updates, 'update')}"
        running.say(f"{job.label} continues after {done}")
    record.facts = facts | seconds
    preparation = time.perf_counter() - start
    running.wait_for_turn()
    state = _train(saving, program, state, record, running, job, preparation)
    running.enter("evaluate")
    # Before the evaluation; saving takes memory that training does not need.
    record.facts["peak_memory_bytes"] = saving.peak_memory_bytes or peak_memory_bytes()
    record.params = library.named_params(state)
    record.facts |= _results(library, state, record.params)
    record.facts["program"] = describe(program.compiled)
    record.program = program_text(program.compiled)
    if job.backend == options.libraries[0]:
        record.facts["random_return"] = library.random_return()
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
            library, _ = build(options, job.backend, job.shared, job.env, started.seconds)
            params = library.named_params(library.experiment.start())
        except TriglotError:
            continue  # the job itself reports why
        share_weights(weights_file(options.out, job.position), params)
        return


def build(
    options: CompareOptions, backend: str, rung: Rung, env_name: str, seconds: Mapping[str, float]
) -> tuple[LibraryExperiment, JSONDict]:
    """Build the experiment of a library.

    Args:
      options: of the comparison.
      backend: the library.
      rung: what all libraries share.
      env_name: one of the comparison's environments.
      seconds: that imports took, by name.

    Returns:
      The experiment; and the facts known of it, as JSON values: seconds, sizes, the device.

    Raises:
      TriglotError: if the parts do not fit each other.
    """
    env, env_seconds = timed(lambda: make_env(env_name))
    device = version.device()  # starts XLA, outside the timed construction
    library, construct_seconds = timed(
        lambda: LibraryExperiment.build(options, backend, rung=rung, env=env)
    )
    experiment = library.experiment
    return library, {
        **seconds,
        "import_seconds": seconds["import_seconds"] + env_seconds,
        "env_seconds": env_seconds,
        "device": device,
        "construct_seconds": construct_seconds,
        "guessed": library.names.guessed,
        "num_updates": experiment.num_updates,
        "chunk_size": experiment.chunk_size,
        "steps_per_update": experiment.steps_per_update,
    }


def share_weights(path: Path, params: Arrays) -> None:
    """Write the shared weights, unless another library has."""
    if not path.exists():
        with replacing(path) as unfinished:
            save_file(params, unfinished)


def origin(program: CompiledProgram, device: str) -> dict[str, str | None]:
    """Describe what must be equal, so that a training that continues has the same numbers."""
    versions = {f"version of {name}": text for name, text in version.versions().items()}
    # Names and places in the source differ between a compiled program and one from the cache.
    compiled = Program(program_text(program.compiled)).sha256
    return {**versions, "device": device, "compiled program": compiled}


@dataclass
class Saving:
    """Saves checkpoints of a training that is not finished: its state, and its record so far.

    Attributes:
      library: what is trained.
      checkpoints: where they are; only the last one is kept.
      origin: see `origin`.
      peak_memory_bytes: of the process before the first one was saved; None before.
      taken_bytes: memory that saving took and kept.
      last: when the last one was saved, and `pause`, the seconds between two.
    """

    library: LibraryExperiment
    checkpoints: Checkpoints
    origin: Mapping[str, str | None]
    peak_memory_bytes: int | None = None
    taken_bytes: int = 0
    last: float = field(default_factory=time.monotonic)
    pause: float = field(default_factory=lambda: CHECKPOINT_SECONDS)

    def restore(self) -> tuple[Record, RunnerState] | None:
        """Read the last checkpoint; None if there is none.

        Raises:
          TriglotError: if another program wrote it, or it is damaged.
        """
        numbers = self.checkpoints.numbers()
        if not numbers:
            return None
        path = self.checkpoints.path(numbers[-1])
        written_by = belongs_to(path)
        for name, value in self.origin.items():
            if written_by.get(name) != value:
                raise TriglotError(f"its checkpoint was written with another {name}.")
        state = self.library.experiment.restore(self.checkpoints.folder)
        return Record.of_checkpoint(path), state

    def save(self, state: RunnerState, record: Record) -> None:
        """Write a checkpoint, unless there is one of as many updates.

        Raises:
          CannotWrite: if the disk is full, or the folder is read-only; the one before is kept.
        """
        if self.peak_memory_bytes is None:
            self.peak_memory_bytes = peak_memory_bytes()
        before, start = resident_bytes(), time.monotonic()
        try:
            self.library.experiment.save(
                self.checkpoints.folder,
                state,
                of=self.origin,
                write_files=record.save,
                keep=self.checkpoints.keep,
            )
        finally:
            self.taken_bytes += resident_bytes() - before
            self.last = time.monotonic()
            self.pause = max(self.pause, (self.last - start) / MAX_SAVING_SHARE)

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint should be saved."""
        return time.monotonic() - self.last >= self.pause


def _train(
    saving: Saving,
    program: CompiledProgram,
    state: RunnerState,
    record: Record,
    running: RunningJob,
    job: Job,
    preparation: float,
) -> RunnerState:
    """Train what is left, and return the last state; a signal saves a checkpoint and ends it.

    It reports how long the whole job takes, with the seconds of `preparation` before this.
    """
    library, experiment = saving.library, saving.library.experiment
    if not record.snapshots:
        record.snapshots[0] = library.snapshot(state)
    bytes_each = sum(array.nbytes for array in record.snapshots[0].values())
    running.total = experiment.num_updates
    running.advance(record.updates)
    running.saves = True
    running.enter("train")
    saving.last = time.monotonic()
    seconds, updates = 0.0, 0  # of this process, until the estimate
    # A chunk ends where a snapshot is due, which changes no number.
    for stop in snapshot_updates(experiment.num_updates, MAX_SNAPSHOT_BYTES // max(bytes_each, 1)):
        for chunk in experiment.chunks(state, program=program, until=stop):
            state = chunk.runner_states
            # What is kept grows, and is no leak.
            resident = resident_bytes() - saving.taken_bytes - record.nbytes
            record.add_chunk(chunk, resident)
            running.advance(chunk.count)
            if seconds < ESTIMATE_SECONDS:
                seconds, updates = seconds + chunk.seconds, updates + chunk.count
                if seconds >= ESTIMATE_SECONDS or chunk.num_updates == experiment.num_updates:
                    in_training = seconds * experiment.num_updates / updates
                    running.estimate(
                        preparation + in_training, f"the first {counted(updates, 'update')}"
                    )
            if chunk.num_updates == stop:
                record.snapshots[stop] = library.snapshot(state)
            if running.interrupt.pressed or saving.is_due:
                try:
                    saving.save(state, record)
                except TriglotError as error:  # the disk may have room later
                    done = counted(chunk.num_updates, "update")
                    running.say(f"{job.label}: no checkpoint after {done}: {error}")
            running.interrupt.check()
    running.saves = False
    return state


def _results(library: LibraryExperiment, state: RunnerState, params: Arrays) -> JSONDict:
    """Evaluate greedily, and describe the final parameters, as JSON values."""
    returns = library.experiment.greedy_returns(state, library.options.eval_episodes)
    names = ("final_returns", "final_returns_unseen")
    return {
        **{name: values.tolist() for name, values in zip(names, returns, strict=False)},
        "num_params": sum(array[0].size for array in params.values()),
        "params_sha256": identity.params_sha256(params),
    }


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
