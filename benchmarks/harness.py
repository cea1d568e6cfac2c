"""Paired, interleaved timing: ratios within rounds, so that a shared machine's drift cancels.

Absolute times on a shared machine vary by half from minute to minute, but those of two programs
timed within the same second vary together. So each round runs every program once, in a new random
order; the result is the median over rounds of the ratio to a baseline, with a bootstrap interval.
"""

import json
import math
import os
import platform
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from tqdm import tqdm

Thunk: TypeAlias = Callable[[], object]
Seconds: TypeAlias = dict[str, np.ndarray]

# Of libraries, in tables and pictures.
TITLES = {
    "haiku": "Haiku",
    "linen": "Linen",
    "nnx": "NNX",
    "equinox": "Equinox",
    "keras": "Keras",
    "torch": "PyTorch",
    "jax": "plain JAX",
    "table": "tables",
}


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median over rounds and its 95% bootstrap interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def measure(
    thunks: Mapping[str, Thunk],
    *,
    rounds: int = 20,
    warmups: int = 1,
    seed: int = 0,
    max_seconds: float = math.inf,
) -> Seconds:
    """Time each thunk once per round, in a random order in each.

    Args:
      thunks: by name; each returns the arrays it computes, or None, and the clock stops when they
        are ready. A thunk must do the same work at every call and take at least about 0.1 s, so
        that dispatch and clock resolution do not matter.
      rounds: rounds that are kept.
      warmups: rounds before them, which compile and are discarded.
      seed: random seed of the orders.
      max_seconds: begin no further round after this time, but keep at least three.

    Returns:
      Seconds by name, float64 `[rounds]`; entry `i` of every array is of round `i`.
    """
    rng = np.random.default_rng(seed)
    names = list(thunks)
    kept: dict[str, list[float]] = {name: [] for name in names}
    began = time.perf_counter()
    for index in tqdm(range(warmups + rounds), desc="rounds", unit="round", leave=False):
        if index >= warmups + 3 and time.perf_counter() - began > max_seconds:
            break
        for name in rng.permutation(names):
            start = time.perf_counter()
            jax.block_until_ready(thunks[name]())
            elapsed = time.perf_counter() - start
            if index >= warmups:
                kept[name].append(elapsed)
    return {name: np.asarray(values) for name, values in kept.items()}


def interval(values: np.ndarray, *, resamples: int = 10_000, seed: int = 0) -> Interval:
    """Bootstrap the median of `values` `[rounds]`: percentile method, 95%.

    Source: Efron 1979, https://doi.org/10.1214/aos/1176344552.
    """
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(values), size=(resamples, len(values)))
    low, high = np.quantile(np.median(values[picks], axis=1), [0.025, 0.975])
    return Interval(median=float(np.median(values)), low=float(low), high=float(high))


def time_ratio(seconds: Seconds, name: str, baseline: str) -> Interval:
    """Divide `name`'s time by `baseline`'s, round by round; above 1 is slower."""
    return interval(seconds[name] / seconds[baseline])


class Compiled(NamedTuple):
    """A program compiled ahead of time; `trace_seconds` has tracing and lowering."""

    call: jax.stages.Compiled
    trace_seconds: float
    compile_seconds: float


def compile_timed(function: jax.stages.Wrapped, *args: object) -> Compiled:
    """Trace, lower and compile a jitted function for these arguments, timing the stages.

    Call `jax.clear_caches()` first and disable the persistent compilation cache: cached traces and
    programs would be measured otherwise.
    """
    start = time.perf_counter()
    lowered = function.trace(*args).lower()
    between = time.perf_counter()
    call = lowered.compile()
    return Compiled(call, between - start, time.perf_counter() - between)


def environment() -> dict[str, Any]:
    """Describe the machine and the versions a result depends on."""
    # Here, since `benchmarks.versions` imports this module beside an older triglot.
    from triglot.shared.machine.cores import free_cores
    from triglot.shared.machine.version import versions

    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "cores_allowed": len(free_cores()),
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "versions": versions(),
    }


def cpu_model() -> str:
    """Name the processor, from /proc/cpuinfo on Linux."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def table(
    header: Sequence[str], rows: Iterable[Iterable[object]], left: Collection[str] = ()
) -> str:
    """Format a table in Markdown, aligned.

    Args:
      header: the names of the columns.
      rows: cells.
      left: columns of text, besides the first, which are aligned to the left.
    """
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    is_left = [number == 0 or name in left for number, name in enumerate(header)]
    columns = list(zip(widths, is_left, strict=True))
    rule = ["-" * width if to_left else "-" * (width - 1) + ":" for width, to_left in columns]
    lines = []
    for row in [cells[0], rule, *cells[1:]]:
        aligned = [
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, (width, to_left) in zip(row, columns, strict=True)
        ]
        lines.append(f"| {' | '.join(aligned)} |")
    return "\n".join(lines)


def rounded(number: float) -> str:
    """Show four digits of a positive number, such as 182,200."""
    digits = max(0, math.floor(math.log10(number)) - 3)
    return f"{round(number, -digits):,.0f}"


def plain(value: Any) -> Any:
    """Convert an array or a dataclass to what JSON has; for `json.dumps(default=)`."""
    return value.tolist() if isinstance(value, np.ndarray) else asdict(value)


def write_json(path: Path, result: Mapping[str, object]) -> None:
    """Write a result as JSON, and create its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2, default=plain) + "\n")
