"""Pin each job to a core of its own."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


def free_cores() -> list[int]:
    """List the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def one_core() -> Iterator[int]:
    """Pin this process to a core that no other job holds; yield its number.

    Jobs of all commands of this user on this machine share one set of locks. With more jobs than
    cores, several share a core. Call it before JAX starts its threads.
    """
    cores = free_cores()
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"triglot-cores-{user}"
    folder.mkdir(exist_ok=True)
    for core in cores:
        lock = FileLock(folder / f"{core}.lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            continue
        try:
            yield _pinned(core)
        finally:
            lock.release()
        return
    yield _pinned(cores[os.getpid() % len(cores)])


def _pinned(core: int) -> int:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    return core
