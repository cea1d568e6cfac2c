"""Functions of small jobs for the tests; they run in processes of their own."""

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triglot.core.errors import TriglotError
from triglot.runs.jobs.job import RunningJob, Task
from triglot.shared.machine.interrupt import Signalled


def task(folder: Path, name: str, function: Any, **arguments: Any) -> Task:
    """Build a task that calls one of the functions below."""
    return Task(
        name=name,
        label=f"job {name}",
        function=f"{__name__}:{function.__name__}",
        arguments={"out": str(folder / f"{name}.json"), **arguments},
        folder=str(folder / "jobs" / ".running"),
    )


def write(arguments: Mapping[str, Any], job: RunningJob) -> None:
    """Write on which cores this process runs, and with how many threads."""
    time.sleep(arguments.get("seconds", 0))
    print("printed by a job")
    facts = {"cores": sorted(os.sched_getaffinity(0)), "threads": os.environ.get("NPROC")}
    Path(arguments["out"]).write_text(json.dumps(facts))


def fail(arguments: Mapping[str, Any], job: RunningJob) -> None:
    """Report an error."""
    job.enter("think")
    raise TriglotError("the sum is too large: lower it.")


def die(arguments: Mapping[str, Any], job: RunningJob) -> None:
    """Die as if the machine had no memory."""
    os.write(2, b"last words\n")
    os.kill(os.getpid(), signal.SIGKILL)


def crash(arguments: Mapping[str, Any], job: RunningJob) -> None:
    """Raise what no user can have caused."""
    raise ZeroDivisionError("in a job")


def takes_turns(arguments: Mapping[str, Any], job: RunningJob) -> None:
    """Write the time at which each of two turns begins."""
    times = []
    for _ in range(2):
        job.wait_for_turn()
        times.append(time.monotonic())
    Path(arguments["out"]).write_text(json.dumps(times))


def until_killed(arguments: Mapping[str, Any], job: RunningJob) -> None:
    """Do what cannot be saved, until the process ends."""
    job.enter("compile")
    time.sleep(600)


def until_stopped(arguments: Mapping[str, Any], job: RunningJob) -> None:
    """Run until a stop is asked for, then save and end."""
    job.enter("train")
    job.saves = True
    while not job.interrupt.pressed:
        time.sleep(0.02)
    Path(arguments["out"]).write_text("saved")
    raise Signalled(job.interrupt.number or 0)
