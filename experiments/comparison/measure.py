"""Seconds, memory, and what a compiled program is made of."""

import hashlib
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Call a function, wait for its arrays, and count the seconds."""
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return result, time.perf_counter() - start


def peak_memory_bytes() -> int:
    """Give the most memory this process has held.

    Linux reports in `ru_maxrss` also what the parent held when it started the process, so that the
    kernel's own mark of this program is read where there is one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        mark = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if mark:
            return int(mark[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def program_facts(compiled: Any) -> dict[str, Any]:
    """Describe an optimised program: XLA's count of operations, its instructions, and its text.

    A loop whose length is not known before it runs is counted once, so `flops` is of about one
    update of all seeds.
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
    """Strip a program's text of source places, and number its names in order of appearance.

    >>> print(plain_program("%add.7 (x: f32[]) -> f32[] {\\n  %x.1 = f32[] parameter(0)\\n}"))
    %0 {
      %1 = f32[] parameter(0)
    }
    """
    text = text[max(text.find("\n%"), 0) :].lstrip()  # what stands before lists source files
    text = re.sub(r", metadata=\{[^}]*\}", "", text)
    # The head of a computation repeats the types of its parameters, under names of its own.
    text = re.sub(r"^((?:ENTRY )?%\S+) \(.*\{$", r"\1 {", text, flags=re.MULTILINE)
    names: dict[str, str] = {}
    return re.sub(r"%[\w.\-]+", lambda name: names.setdefault(name[0], f"%{len(names)}"), text)
