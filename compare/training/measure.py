"""Measure time and memory."""

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Call a function, wait for its arrays, and return them with the seconds it took."""
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return result, time.perf_counter() - start


def peak_memory_bytes() -> int | None:
    """Return this process's peak memory; None where the system does not report it (Windows).

    On Linux, `ru_maxrss` includes the parent's memory at the time of the fork, so the kernel's
    high-water mark of this process is read instead.
    """
    status = Path("/proc/self/status")
    if status.exists():
        mark = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if mark:
            return int(mark[1]) * 1024
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
