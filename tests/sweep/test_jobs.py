"""A sweep whose batches run in processes of their own: the same bits, also after interruptions."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.printed import unwrapped
from tests.sweep.small import arrays, options
from triglot.core.errors import TriglotError
from triglot.runs.jobs.local import WORKER
from triglot.shared.machine.interrupt import Signalled
from triglot.sweep import jobs, run
from triglot.sweep.batches import bytes_of_one
from triglot.sweep.options import SweepCommandOptions
from triglot.sweep.run import sweep

pytestmark = [pytest.mark.packaging, pytest.mark.usefixtures("no_pages")]

LONG = {"total_steps": 500_000, "checkpoint_seconds": 0.5, "eval_episodes": 0}


def two_batches(out: Path, **changes: Any) -> SweepCommandOptions:
    return options(out, **{"batch": 4, **changes})


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Train the long sweep in this process, without an interruption."""
    out = tmp_path_factory.mktemp("long") / "out"
    sweep(two_batches(out, **{**LONG, "checkpoint_seconds": 0.0}))
    return arrays(out)


@contextmanager
def when_saved(out: Path, act: Callable[[], None], count: int = 1) -> Any:
    """Act once when so many running batches have a checkpoint."""
    over, acted = threading.Event(), []

    def watch() -> None:
        while not over.is_set():
            found = out.glob("jobs/.unfinished-*/checkpoints/[0-9]*/manifest.json")
            if len({path.parts[-4] for path in found}) >= count:
                acted.append(act())
                return
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert acted, "it ended before it had a checkpoint"


def workers() -> list[psutil.Process]:
    """List the processes of jobs that this process started."""
    below = psutil.Process().children(recursive=True)
    return [one for one in below if WORKER in one.cmdline()]


def assert_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys() and one
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.covering(2)
@pytest.mark.parametrize("number", [1, 2])
def test_the_number_of_jobs_changes_no_bit(
    tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(two_batches(tmp_path / "sequential", executor="sequential"))
    assert sweep(two_batches(tmp_path / "local", jobs=number))[0] == 0
    # On one thread: products here are too small to be split over several.
    assert_equal(arrays(tmp_path / "local"), arrays(tmp_path / "sequential"))
    processes = "local process" + ("es" if number > 1 else "")
    assert f"{number} {processes}" in unwrapped(capsys)
    assert not list(tmp_path.glob("local/jobs/.*"))


@pytest.mark.slow
def test_a_stopped_sweep_continues_where_each_batch_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], long: dict[str, np.ndarray]
) -> None:
    out = tmp_path / "out"
    chosen = two_batches(out, jobs=2, **LONG)
    with when_saved(out, lambda: os.kill(os.getpid(), signal.SIGTERM)):
        assert sweep(chosen) == (128 + signal.SIGTERM, None)
    said = r"Stopped: 0 of 2 batches are done .*, and [12] more ha(s|ve) a checkpoint. Continue by:"
    error = " ".join(capsys.readouterr().err.split())
    assert re.search(rf"{said} triglot sweep q_learning .* --out {out}", error)
    assert not workers()
    with pytest.raises(TriglotError, match="continue it with --executor local"):
        sweep(two_batches(out, executor="sequential", **LONG))
    # Its folder says that each batch has one core.
    assert sweep(two_batches(out, executor=None, **LONG))[0] == 0
    assert "continues from its checkpoint" in unwrapped(capsys)
    assert_equal(arrays(out), long)


@pytest.mark.slow
def test_a_batch_that_dies_costs_the_others_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def kill() -> None:
        workers()[0].kill()

    with (
        when_saved(out, kill),
        pytest.raises(TriglotError, match=r"1 of 2 batches failed, and the others .*KILL"),
    ):
        sweep(two_batches(out, jobs=2, **LONG))
    assert len(list(out.glob("jobs/[!.]*"))) == 1
    assert sweep(two_batches(out, jobs=2, **LONG))[0] == 0


def test_one_batch_runs_here_by_default_and_several_in_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []

    def make(*given: Any, default: str) -> None:
        names.append(default)
        raise TriglotError("enough")

    monkeypatch.setattr(jobs, "choose_executor", make)
    monkeypatch.setattr(jobs, "free_cores", lambda: [0, 1])
    for batch in (8, 4):
        with pytest.raises(TriglotError, match="enough"):
            sweep(options(tmp_path / "out", executor=None, batch=batch))
    assert names == ["sequential", "local"]
    assert not (tmp_path / "out").exists()


def test_the_memory_is_shared_by_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def stop(under_way: Any, *given: Any) -> None:
        seen.append(under_way.stages[0])
        raise Signalled(signal.SIGINT)

    monkeypatch.setattr(run, "train", stop)
    # The folder is not removed, since something else is in it.
    monkeypatch.setattr(run, "locked", lambda out: (out / "file").touch() or nullcontext())
    plan = run.make_plan(options(None))
    one = sum(bytes_of_one(plan.groups[0]).values())
    monkeypatch.setattr("triglot.shared.machine.memory.free", lambda: 8 * one)
    sweep(options(tmp_path / "out", jobs=2))
    # Half of the memory is used, and each of two jobs has half of that.
    assert [len(batch) for batch in seen[0]] == [2, 2, 2, 2]
    facts = json.loads((tmp_path / "out" / "jobs.json").read_text())["facts"]
    assert facts == {"sizes": [2], "cores_per_job": "one", "devices": 1}
