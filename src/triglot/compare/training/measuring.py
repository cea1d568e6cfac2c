"""The seconds and the memory that the stages of a training take in this process."""

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import jax
import psutil

from ...core.experiment import Experiment
from ...core.loop.state import RunnerState
from ...core.loop.trainer import CompiledProgram

Result = TypeVar("Result")


def timed(function: Callable[[], Result]) -> tuple[Result, float]:
    """Call a function, wait for its arrays, and return them with the seconds it took."""
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return result, time.perf_counter() - start


def compile_timed(
    experiment: Experiment, state: RunnerState
) -> tuple[CompiledProgram, dict[str, float]]:
    """Trace, lower and compile the program of a training, without a cache.

    Args:
      experiment: of an environment in JAX.
      state: `[S, ...]`, read for its shapes only.

    Returns:
      The program, and the seconds of each stage by name.
    """
    program = experiment.program()
    assert isinstance(program, CompiledProgram)
    traced, trace_seconds = timed(lambda: program.trace(state))
    lowered, lower_seconds = timed(traced.lower)
    cpu = time.process_time()
    program.compiled, compile_seconds = timed(lowered.compile)
    return program, {
        "trace_seconds": trace_seconds,
        "lower_seconds": lower_seconds,
        "compile_seconds": compile_seconds,
        "compile_cpu_seconds": time.process_time() - cpu,
    }


def resident_bytes() -> int:
    """Return the memory of this process."""
    return psutil.Process().memory_info().rss


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
