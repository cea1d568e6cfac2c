"""The next library is prepared while the first one is, and trains."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.compare.in_process import OPTIONS, InProcessWorker, NoBar
from triglot.compare.jobs import Ledger, job_list
from triglot.compare.training import run
from triglot.compare.training.ahead import ahead
from triglot.compare.training.run import Failure, Progress
from triglot.compare.training.worker import WorkerDied
from triglot.core.errors import TriglotError

BAR: Any = NoBar()


def train(
    folder: Path, monkeypatch: pytest.MonkeyPatch, worker: Any, **changes: Any
) -> list[Failure]:
    """Train two libraries with a kind of worker, on two cores."""
    monkeypatch.setattr(run, "Worker", worker)
    monkeypatch.setattr(run, "free_cores", lambda: [0, 1])
    options = replace(OPTIONS, out=folder, total_steps=64, **changes)
    jobs = job_list(options)
    return run.run_jobs(options, Ledger(folder), jobs, Progress(num_jobs=2, bar=BAR))


def test_two_libraries_are_prepared_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=20)

    class Waits(InProcessWorker):
        def ask(self, stage: str, **arguments: Any) -> Any:
            both.wait()
            raise WorkerDied(f"{self.backend} died")

    with pytest.raises(TriglotError, match="haiku: haiku died"):
        train(tmp_path, monkeypatch, Waits, repetitions=1)


def test_one_library_at_a_time_compiles_where_the_report_shows_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, threads = [], threading.active_count()

    class Fails(InProcessWorker):
        def ask(self, stage: str, **arguments: Any) -> Any:
            begun.append(self.backend)
            if self.backend == "linen":
                raise KeyboardInterrupt
            raise WorkerDied("it died")

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, monkeypatch, Fails, repetitions=0)
    assert begun == ["haiku", "linen"] and threading.active_count() == threads


def test_an_interruption_ends_the_worker_of_the_next_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, killed, noticed = threading.Event(), threading.Event(), []

    class Waits(InProcessWorker):
        def ask(self, stage: str, **arguments: Any) -> Any:
            if self.backend == "linen":
                begun.set()
                noticed.append(killed.wait(60))
                raise WorkerDied("it was killed")
            begun.wait(60)
            raise KeyboardInterrupt

        def __exit__(self, *exception: object) -> None:
            if self.backend == "linen":
                killed.set()

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, monkeypatch, Waits, repetitions=1)
    assert noticed == [True]


def test_the_calls_ahead_are_bounded_and_keep_their_errors() -> None:
    begun: list[int] = []

    def call(number: int) -> int:
        begun.append(number)
        return 1 // number

    results, found = ahead([lambda n=n: call(n) for n in (1, 0, 1, 1)], at_once=2), []
    for number, result in enumerate(results):
        try:
            found.append(result())
        except ZeroDivisionError:
            found.append(None)
        assert len(begun) <= number + 2
    assert found == [1, None, 1, 1]
