"""Jobs in local processes: pinned, independent of each other, stopped with a checkpoint."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from tests.printed import unwrapped
from tests.runs.jobs.small import (
    crash,
    die,
    fail,
    takes_turns,
    task,
    until_killed,
    until_stopped,
    write,
)
from triglot.runs.jobs.job import Event, Outcome, RunningJob, Task
from triglot.runs.jobs.local import HereExecutor, JobProcess, LocalExecutor
from triglot.runs.jobs.run import View, run_tasks
from triglot.shared.machine import memory
from triglot.shared.machine.cores import free_cores
from triglot.shared.machine.interrupt import Interrupt, Signalled


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no other job on this machine hold a core."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def stop() -> Iterator[Interrupt]:
    yield Interrupt()


def run(tasks: list[Task], stop: Interrupt, at_once: int = 2) -> dict[str, Outcome]:
    return run_tasks(LocalExecutor(at_once), tasks, stop)


def test_each_job_has_one_thread_on_a_core_of_its_own(tmp_path: Path, stop: Interrupt) -> None:
    names = ["a", "b"]
    outcomes = run([task(tmp_path, name, write, seconds=0.5) for name in names], stop)
    assert set(outcomes.values()) == {Outcome("done")}
    facts = [json.loads((tmp_path / f"{name}.json").read_text()) for name in names]
    assert [one["threads"] for one in facts] == ["1", "1"]
    assert [len(one["cores"]) for one in facts] == [1, 1]
    if len(free_cores()) > 1:
        assert facts[0]["cores"] != facts[1]["cores"]
    assert not (tmp_path / "jobs").exists(), "what running jobs report is deleted"


def test_a_job_that_fails_or_dies_stops_no_other(
    tmp_path: Path, stop: Interrupt, capfd: pytest.CaptureFixture[str]
) -> None:
    functions = {"a": fail, "b": die, "c": crash, "d": write}
    outcomes = run([task(tmp_path, name, each) for name, each in functions.items()], stop)
    assert outcomes["a"] == Outcome("failed", "the sum is too large: lower it.", "think")
    for name, words in {"b": ["SIGKILL", "last words"], "c": ["ZeroDivisionError"]}.items():
        assert outcomes[name].end == "died"
        assert all(word in outcomes[name].message for word in words)
    assert outcomes["d"] == Outcome("done") and (tmp_path / "d.json").exists()
    out, err = capfd.readouterr()
    assert "job a: the sum is too large" in out
    assert "printed by a job" not in out + err


def test_an_interruption_saves_what_runs_and_starts_no_more(
    tmp_path: Path, stop: Interrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [task(tmp_path, name, until_stopped) for name in "abc"]
    shown: list[int] = []

    def draw(view: View, num_running: int) -> None:
        shown.append(num_running)
        if num_running == 2:
            stop.number = 2

    monkeypatch.setattr(View, "draw", draw)
    outcomes = run(tasks, stop)
    assert outcomes == {"a": Outcome("stopped"), "b": Outcome("stopped")}
    assert [(tmp_path / f"{name}.json").exists() for name in "abc"] == [True, True, False]


def test_what_cannot_be_saved_ends_at_once(tmp_path: Path, stop: Interrupt) -> None:
    one = task(tmp_path, "a", until_killed)
    Path(one.folder).mkdir(parents=True)
    process = JobProcess(one)
    while not one.events.exists():
        time.sleep(0.02)
    process.stop()
    assert process._process.wait(10) == 0
    assert process.poll() == Outcome("stopped")
    process.kill()


@pytest.mark.slow
def test_a_job_begins_ahead_and_waits_for_its_turn(tmp_path: Path, stop: Interrupt) -> None:
    tasks = [task(tmp_path, "a", write, seconds=2), task(tmp_path, "b", takes_turns)]
    started: list[float] = []

    class Notes(LocalExecutor):
        def start(self, task: Task, show: Any) -> JobProcess:
            started.append(time.monotonic())
            process = super().start(task, show)
            if len(started) == 2:
                process.go()  # and once more when it has the turn
            return process

    outcomes = run_tasks(Notes(1, one_core=False, ahead=1), tasks, stop)
    assert {one.end for one in outcomes.values()} == {"done"}
    _, second = json.loads((tmp_path / "b.json").read_text())
    assert started[1] - started[0] < 1.5 and second - started[0] >= 2


def test_the_bar_shows_the_job_that_runs_and_not_the_one_that_prepares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with View([task(tmp_path, n, write) for n in "ab"], 0.0, None, at_once=1) as view:
        view.show("b", {"phase": "import", "share": 0.0})  # it reports first
        view.show("a", {"phase": "import", "share": 0.0})
        view.show("b", {"phase": "compile", "share": 0.0})
        view.show("a", {"phase": "train", "share": 0.5})
        view.end("a", done=True)
        view.draw(1)
    lines = [line.split("  ")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines[-4:] == [
        f"job {one}" for one in ("b: import", "a: import", "a: train", "b: compile")
    ]


@pytest.mark.parametrize(("at_once", "whole"), [(1, "10 min"), (2, "6 min")])
def test_the_time_of_all_jobs_is_estimated_once_from_the_first(
    at_once: int, whole: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events: list[Event] = []
    RunningJob(events.append).estimate(120.0, "the first 30 updates")
    jobs = [task(tmp_path, name, write) for name in "abcde"]
    with View(jobs, 0.0, None, at_once=at_once) as view:
        view.show("b", events[0])
        view.show("a", {**events[0], "seconds": 7.0})
    (line,) = unwrapped(capsys, "out").splitlines()
    assert f"about {whole} in all" in line and "120 s" not in line
    assert "2 min for each" in line and "the first 30 updates of job b" in line


def test_a_process_is_waited_for_at_each_turn(tmp_path: Path) -> None:
    one = task(tmp_path, "a", takes_turns)
    Path(one.folder).mkdir(parents=True)
    process = JobProcess(one, one_core=False)
    assert process.wait() is None
    process.go()
    assert process.wait() is None
    process.go()
    assert process.wait() == Outcome("done")
    process.kill()


def test_jobs_run_in_this_process_and_stop_there(tmp_path: Path, stop: Interrupt) -> None:
    seen: list[str] = []

    def here(given: Task, job: RunningJob) -> None:
        job.enter("work")
        seen.append(given.name)
        stop.number = 2
        raise Signalled(2)

    outcomes = run_tasks(HereExecutor(here, stop), [task(tmp_path, n, write) for n in "ab"], stop)
    assert outcomes == {"a": Outcome("stopped")} and seen == ["a"]


def test_a_job_ends_with_its_parent(tmp_path: Path) -> None:
    one = task(tmp_path, "a", until_stopped)
    Path(one.folder).mkdir(parents=True)
    process = JobProcess(one)
    while not one.events.exists():
        time.sleep(0.02)
    assert process._process.stdin is not None
    process._process.stdin.close()  # as the parent's death does
    assert process._process.wait(10) == 0
    assert not (tmp_path / "a.json").exists()
    process.kill()


@pytest.mark.slow
def test_a_job_waits_for_an_older_process_of_the_same_job(tmp_path: Path) -> None:
    one = task(tmp_path, "a", write)
    Path(one.folder).mkdir(parents=True)
    with FileLock(one.lock):
        process = JobProcess(one)
        with pytest.raises(subprocess.TimeoutExpired):
            process._process.wait(2)
        assert psutil.Process(process._process.pid).is_running()
        assert not (tmp_path / "a.json").exists()
    assert process._process.wait(10) == 0
    assert process.poll() == Outcome("done")
    process.kill()


def test_memory_is_shared_by_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free", lambda: 900)
    assert LocalExecutor(3).bytes_per_job == 300
