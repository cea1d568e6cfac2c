"""Let one program at a time write a run."""

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ...core.errors import TriglotError, writing
from ...machine.files import HOLDER, LOCK, sweep, write_json


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
            lock.acquire(blocking=False)
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


def _holder(folder: Path) -> str:
    try:
        facts = json.loads((folder / HOLDER).read_text())
        return f"process {facts['pid']} on {facts['host']} since {facts['since']}"
    except (OSError, ValueError, TypeError, KeyError):  # it is just being written
        return "another program"


def is_locked(folder: Path) -> bool:
    """Return whether a program holds the lock of a run; False if the folder cannot be locked."""
    if not (folder / LOCK).exists():
        return False
    lock = FileLock(folder / LOCK)
    try:
        with lock.acquire(blocking=False):
            return False
    except Timeout:
        return True
    except OSError:  # read-only: nothing writes there
        return False
