"""Measure time and memory, and describe compiled programs."""

import hashlib
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


def program_facts(compiled: Any) -> dict[str, Any]:
    """Describe an optimized program: XLA's FLOP count, its instructions, and a hash of its text.

    XLA counts a loop of dynamic length once, so `flops` is about one update of all seeds.
    """
    cost = compiled.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    text = plain_program(compiled.as_text())
    return {
        "flops": cost.get("flops"),
        "instructions": len(re.findall(r"^\s+(?:ROOT )?%\d+ = ", text, re.MULTILINE)),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def plain_program(text: str) -> str:
    """Remove source locations from a program's text, and number its names by first appearance.

    >>> print(plain_program("%add.7 (x: f32[]) -> f32[] {\\n  %x.1 = f32[] parameter(0)\\n}"))
    %0 {
      %1 = f32[] parameter(0)
    }
    """
    text = text[max(text.find("\n%"), 0) :].lstrip()  # the text before it lists source files
    text = re.sub(r", metadata=\{[^}]*\}", "", text)
    # The head of a computation repeats its parameters' types, with other names.
    text = re.sub(r"^((?:ENTRY )?%\S+) \(.*\{$", r"\1 {", text, flags=re.MULTILINE)
    names: dict[str, str] = {}
    return re.sub(r"%[\w.\-]+", lambda name: names.setdefault(name[0], f"%{len(names)}"), text)
