"""Let one program at a time write a run."""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ...core.errors import TriglotError, writing
from ...machine.files import (
    HOLDER,
    LOCK,
    DamagedRecord,
    Fields,
    read_record,
    sweep,
    write_json,
)

HOLDER_FIELDS: Fields = {"pid": int, "host": str, "since": str}
WAIT_SECONDS = 0.5  # `is_written` holds the lock for a moment


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run; the operating system releases it when the program dies.

    Raises:
      TriglotError: if another program holds it, with that program's name.
      CannotWrite: if the folder is read-only.
    """
    lock = FileLock(folder / LOCK)
    with writing(folder):
        try:
            lock.acquire(timeout=WAIT_SECONDS)
        except Timeout:
            raise TriglotError(
                f"{folder} is in use by {_holder(folder)}: wait until it has finished, or stop it."
            ) from None
    try:
        sweep(folder)
        facts = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%F %T")}
        write_json(folder / HOLDER, facts)
        yield
    finally:
        lock.release()


def is_written(folder: Path, *, until: str) -> bool:
    """Return whether a program writes a run; the folder is not changed.

    The lock of a program on another machine may not be seen here: it counts until it writes its
    last file.

    Args:
      folder: the run directory.
      until: the name of that file.

    Raises:
      DamagedRecord: if the record of the program is damaged.
    """
    import fcntl  # not on Windows

    if (folder / LOCK).exists():
        with (folder / LOCK).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    advice = "Delete it: it only names the program that writes the run."
    holder = read_record(folder / HOLDER, HOLDER_FIELDS, advice)
    if holder is None or holder["host"] == platform.node():
        return False
    last = folder / until
    return not last.exists() or last.stat().st_mtime < (folder / HOLDER).stat().st_mtime


def _holder(folder: Path) -> str:
    try:
        facts = read_record(folder / HOLDER, HOLDER_FIELDS)
    except DamagedRecord:
        facts = None
    if facts is None:  # it is just being written
        return "another program"
    return f"process {facts['pid']} on {facts['host']} since {facts['since']}"
