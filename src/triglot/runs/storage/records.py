"""The records of a run beside its options, its lock, and what they say about its state."""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from ...core.errors import TriglotError, writing
from ...core.folders import require_plain
from ...core.records import JSON
from ...shared.machine.files import (
    COUNT,
    FLAG,
    HOLDER,
    LOCK,
    NOTHING,
    NUMBER,
    TEXT,
    DamagedRecord,
    Fields,
    Kind,
    read_record,
    sweep,
    table_of,
    write_json,
)

PROGRESS = "progress.json"  # outside the checkpoints, so that their loss is noticed
SUMMARY = "summary.json"
BEST = "best.json"
REACHED = "reached"  # a field of the summary
RUNNING = "running"
PID = Kind("the number of a process", lambda value: type(value) is int and 0 < value < 2**31)
# Of each record, the fields that are read, and what to do if it is damaged.
_KINDS: dict[str, tuple[Fields, str]] = {
    PROGRESS: ({"num_updates": COUNT}, "Delete it: the run continues from its last checkpoint."),
    SUMMARY: (
        {
            "num_updates": COUNT,
            "interrupted": FLAG,
            "diverged": TEXT | NOTHING,
            "evaluation": table_of("an evaluation", {"return_mean": NUMBER}) | NOTHING,
            "num_steps": COUNT,
            REACHED: table_of("an early stop", {"return": NUMBER}) | NOTHING,
        },
        "Delete it: `triglot resume` writes it again.",
    ),
    BEST: (
        {"num_updates": COUNT, "return_mean": NUMBER},
        "Delete it: the next evaluation writes it again, and keeps its checkpoint as the best.",
    ),
    HOLDER: (
        {"pid": PID, "host": TEXT, "since": TEXT, "started": NUMBER},
        "Delete it: it only names the program that writes the run.",
    ),
}


def recorded(folder: Path, name: str) -> JSON | None:
    """Read a record of a run, such as `summary.json`; None if there is none.

    Raises:
      DamagedRecord: if it is damaged.
    """
    return read_record(folder / name, *_KINDS[name])


def recorded_progress(folder: Path) -> int:
    """Read after how many updates the last checkpoint was written; 0 if none was.

    Raises:
      DamagedRecord: if the record is damaged.
    """
    record = recorded(folder, PROGRESS)
    return record["num_updates"] if record else 0


def state_of(folder: Path) -> str:
    """Name the state of a run: running, finished, stopped, interrupted, diverged or killed.

    Raises:
      DamagedRecord: if a record is damaged.
    """
    summary = recorded(folder, SUMMARY)
    if _is_written(folder):
        return RUNNING
    if summary is None or recorded_progress(folder) > summary["num_updates"]:
        return "killed"
    if summary["diverged"]:
        return "diverged"
    if summary[REACHED]:
        return "stopped"
    return "interrupted" if summary["interrupted"] else "finished"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run; the operating system releases it when the program dies.

    Reading needs no lock, since files are replaced by a rename.

    The lock may be gone, deleted by hand: a program of this machine that is named as the holder and
    is still running counts too.

    Raises:
      TriglotError: if another program holds it, with that program's name.
      CannotWrite: if the folder is read-only.
    """
    require_plain(folder)
    lock = FileLock(folder / LOCK)
    with writing(folder):
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise _in_use(folder) from None
    try:
        if _holder_runs(folder):
            raise _in_use(folder)
        sweep(folder)
        facts = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%F %T")}
        write_json(folder / HOLDER, {**facts, "started": psutil.Process().create_time()})
        try:
            yield
        finally:
            (folder / HOLDER).unlink(missing_ok=True)
    finally:
        lock.release()


def _is_written(folder: Path) -> bool:
    """Return whether a program writes a run; the folder is not changed, and nothing is locked.

    That of another machine or user cannot be seen: it counts until it writes the summary.
    """
    holder = recorded(folder, HOLDER)
    if holder is None:
        return False
    if holder["host"] == platform.node():
        return _holder_runs(folder)
    last = folder / SUMMARY
    return not last.exists() or last.stat().st_mtime < (folder / HOLDER).stat().st_mtime


def _holder_runs(folder: Path) -> bool:
    """Return whether the program of this machine that is named as the holder is still running.

    It removes its name when it ends, so a name that stays is that of a program that was killed, or
    of another one that got its number since: that one has another start time.
    """
    try:
        holder = recorded(folder, HOLDER)
    except DamagedRecord:  # the lock alone counts
        return False
    if holder is None or holder["host"] != platform.node():
        return False
    try:
        process = psutil.Process(holder["pid"])
        return abs(process.create_time() - holder["started"]) < 1.0
    except psutil.Error:
        return False


def _in_use(folder: Path) -> TriglotError:
    return TriglotError(
        f"{folder} is in use by {_holder(folder)}: wait until it has finished, or stop it."
    )


def _holder(folder: Path) -> str:
    try:
        facts = recorded(folder, HOLDER)
    except DamagedRecord:
        facts = None
    if facts is None:  # it is just being written
        return "another program"
    return f"process {facts['pid']} on {facts['host']} since {facts['since']}"
