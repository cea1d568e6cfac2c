"""A job that was interrupted continues where it was, and gives the same numbers."""

import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import triglot
from tests.compare.in_process import OPTIONS, SMALL, train
from triglot.compare.jobs import Job
from triglot.compare.results import Record
from triglot.compare.training import train as module
from triglot.compare.training.library import LibraryExperiment
from triglot.compare.training.train import Saving
from triglot.core.errors import CannotWrite, TriglotError
from triglot.core.loop.checkpoint import Checkpoints
from triglot.core.loop.chunks import Chunk
from triglot.core.manifest import MANIFEST, belongs_to, write_manifest
from triglot.runs.jobs.job import RunningJob
from triglot.runs.jobs.ledger import Ledger
from triglot.shared.machine.interrupt import Signalled

JOB = Job(OPTIONS.env, "weights", "linen")
NUM_UPDATES, INTERRUPTED = 24, 10


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Train without an interruption."""
    return train(tmp_path_factory.mktemp("whole") / "out")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ask the job to stop in its middle; return the folder of the comparison."""
    folder = tmp_path_factory.mktemp("stopped") / "out"
    running = RunningJob(lambda event: None)

    def stop() -> None:
        assert running.saves
        running.interrupt.number = signal.SIGTERM

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Signalled) as signalled:
        at_update(patch, INTERRUPTED, stop)
        train(folder, running=running)
    assert signalled.value.number == signal.SIGTERM
    return folder


@pytest.fixture
def interrupted(stopped: Path, tmp_path: Path) -> Path:
    """Return a copy of the interrupted comparison."""
    return shutil.copytree(stopped, tmp_path / "copy")


def checkpoints_in(folder: Path) -> Checkpoints:
    return Checkpoints(Ledger(folder).checkpoints(JOB.name), keep=1)


def newest_in(folder: Path) -> Path:
    checkpoints = checkpoints_in(folder)
    return checkpoints.path(checkpoints.numbers()[-1])


class Saying(RunningJob):
    """Keeps what is printed above the bar."""

    def __init__(self) -> None:
        self.said: list[str] = []
        super().__init__(lambda event: self.said.append(event["text"]) if "text" in event else None)


def at_update(monkeypatch: pytest.MonkeyPatch, update: int, act: Callable[[], None]) -> None:
    """Call `act` while an experiment trains this update."""
    train_chunks = triglot.Experiment.chunks

    def chunks(*args: Any, **options: Any) -> Iterator[Chunk]:
        for chunk in train_chunks(*args, **options):
            if chunk.num_updates == update:
                act()
            yield chunk

    monkeypatch.setattr(triglot.Experiment, "chunks", chunks)


def assert_equal(one: Record, other: Record) -> None:
    """Compare all arrays of two jobs, bit for bit."""
    for mine, sound in (
        (one.metrics, other.metrics),
        (one.params, other.params),
        (one.probe, other.probe),
    ):
        assert mine.keys() == sound.keys() and mine
        for name, array in mine.items():
            np.testing.assert_array_equal(array, sound[name], err_msg=name, strict=True)
    assert one.snapshots.keys() == other.snapshots.keys()
    for update, arrays in one.snapshots.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, other.snapshots[update][name], strict=True)
    assert one.facts["params_sha256"] == other.facts["params_sha256"]
    assert one.facts["final_returns"] == other.facts["final_returns"]
    assert one.updates == other.updates == NUM_UPDATES


@pytest.mark.slow
def test_a_signal_saves_and_the_job_continues(whole: Record, interrupted: Path) -> None:
    assert checkpoints_in(interrupted).numbers() == [INTERRUPTED]
    running = Saying()
    record = train(interrupted, running=running)
    assert_equal(record, whole)
    said = f"weights linen continues after {INTERRUPTED} of {NUM_UPDATES} updates"
    assert said in running.said
    processes = [chunk["process"] for chunk in record.chunks]
    assert processes == [0] * INTERRUPTED + [1] * (NUM_UPDATES - INTERRUPTED)
    assert not list(interrupted.rglob(".unfinished-*")), "what is done has no checkpoint"


def save_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save after every update."""
    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(module, "MAX_SAVING_SHARE", np.inf)


@pytest.mark.slow
def test_a_kill_costs_what_came_after_the_last_checkpoint(
    whole: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed() -> None:
        raise KeyboardInterrupt  # not one of the signals: nothing is saved any more

    save_always(monkeypatch)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        at_update(patch, 5, killed)
        train(tmp_path)
    folder = checkpoints_in(tmp_path).folder
    assert [path.name for path in folder.iterdir()] == ["00000004"], "only the last one is kept"
    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", 1e9)
    running = Saying()
    assert_equal(train(tmp_path, running=running), whole)
    assert "weights linen continues after 4 of 24 updates" in running.said


def flip(file: Path) -> None:
    """Change one byte in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def damage_record(saved: Path) -> None:
    flip(saved / "metrics.safetensors")


def damage_state(saved: Path) -> None:
    files = (file for file in (saved / "d").rglob("*") if file.is_file())  # orbax's arrays
    flip(max(files, key=lambda file: file.stat().st_size))


def lose_manifest(saved: Path) -> None:
    (saved / MANIFEST).unlink()


def empty_record(saved: Path) -> None:
    began = belongs_to(saved)
    (saved / "facts.json").write_text('{"facts": {}}')
    write_manifest(saved, began)


@pytest.fixture(scope="module")
def library() -> LibraryExperiment:
    """Build the experiment that could continue the job."""
    return LibraryExperiment.build(OPTIONS, JOB.backend, rung=JOB.shared)


def saving(library: LibraryExperiment, folder: Path, **changes: str) -> Saving:
    """Continue a job of which everything is as it was, but for some of what it began with."""
    began = belongs_to(newest_in(folder))
    return Saving(library, checkpoints_in(folder), began | changes)


@pytest.mark.covering(2)
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_record, r"its file metrics\.safetensors was modified\."),
        (damage_state, r"was modified\."),
        (lose_manifest, "is not a complete checkpoint: FileNotFoundError"),
        (empty_record, "KeyError: 'chunks'"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_damage_is_noticed(
    damage: Callable[[Path], None], reason: str, library: LibraryExperiment, interrupted: Path
) -> None:
    continuing = saving(library, interrupted)
    assert continuing.restore() is not None
    damage(newest_in(interrupted))
    with pytest.raises(TriglotError, match=reason):
        continuing.restore()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"compiled program": "0"}, "with another compiled program"),
        ({"version of jax": "0.1"}, "with another version of jax"),
        ({"device": "tpu"}, "with another device"),
    ],
)
def test_the_checkpoint_of_another_training_is_refused(
    changes: dict[str, str], reason: str, library: LibraryExperiment, interrupted: Path
) -> None:
    with pytest.raises(TriglotError, match=reason):
        saving(library, interrupted, **changes).restore()


def test_the_checkpoint_of_other_arrays_is_refused(interrupted: Path) -> None:
    wider = replace(OPTIONS, config=SMALL | {"hidden_sizes": [9]})
    library = LibraryExperiment.build(wider, JOB.backend, rung=JOB.shared)
    with pytest.raises(TriglotError, match="belongs to another training"):
        saving(library, interrupted).restore()


@pytest.mark.slow
def test_a_job_whose_checkpoint_cannot_be_used_begins_again(
    whole: Record, interrupted: Path
) -> None:
    newest = newest_in(interrupted)
    write_manifest(newest, {"device": "tpu"})
    running = Saying()
    assert_equal(train(interrupted, running=running), whole)
    (line,) = (line for line in running.said if "again" in line)
    assert line.startswith("weights linen begins again: its checkpoint was written with another")
    assert not list(interrupted.rglob(".unfinished-*"))


@pytest.mark.slow
def test_a_training_goes_on_if_no_checkpoint_can_be_written(
    whole: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *rest: object) -> None:
        time.sleep(0.5)  # a twentieth of the time until the next attempt
        raise CannotWrite(f"{path} cannot be written: No space left on device.")

    monkeypatch.setattr("triglot.core.loop.checkpoint.save", full)
    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", 0.0)
    running = Saying()
    assert_equal(train(tmp_path, running=running), whole)
    (line,) = (text for text in running.said if "no checkpoint" in text)
    assert re.search("no checkpoint after 1 update: .* No space left", line)


def test_unfinished_results_of_an_earlier_version_are_no_checkpoint(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    left = ledger.unfinished(JOB.name)
    left.mkdir(parents=True)
    (left / "metrics.safetensors").write_bytes(b"half")
    assert not checkpoints_in(tmp_path).numbers()
    with ledger.writing(JOB.name) as folder:
        (folder / "new").touch()
    found = {path.name for path in ledger.folder(JOB.name).iterdir()}
    assert found == {"new", "manifest.json"} and not left.exists()


def test_unfinished_folders_of_finished_jobs_are_removed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for name in (JOB.name, "0-weights-nnx"):
        ledger.unfinished(name).mkdir(parents=True)
    ledger.folder(JOB.name).mkdir()
    ledger.tidy()
    assert [path.name for path in (tmp_path / "jobs").iterdir() if path.name.startswith(".")] == [
        ".unfinished-0-weights-nnx"
    ]


def test_a_process_warms_up_and_has_its_own_memory() -> None:
    record = Record(facts={"final_returns": [1.0], "steps_per_update": 8})
    for process, seconds in ((0, (9.0, 2.0)), (1, (9.0, 2.0, 1.0, 2.0))):
        record.process = process
        for each in seconds:
            metrics = {"episode_return": np.ones((1, 1))}
            chunk: Any = SimpleNamespace(count=1, seconds=each, metrics=metrics)
            record.add_chunk(chunk, 100 * process)
    assert record.summary(num_seeds=1)["steps_per_second"] == 4.0
    assert [chunk["resident_bytes"] for chunk in record.of_one_process().chunks] == [100] * 4
