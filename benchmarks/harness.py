"""Paired, interleaved timing: ratios within rounds, so that a shared machine's drift cancels.

Absolute times on a shared machine vary by half from minute to minute, but those of two programs
timed within the same second vary together. So each round runs every program once, in a new random
order; the result is the median over rounds of the ratio to a baseline, with a bootstrap interval.
"""

import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

Thunk: TypeAlias = Callable[[], Any]
Seconds: TypeAlias = dict[str, np.ndarray]

PACKAGES = ("jax", "jaxlib", "numpy", "optax", "rlax", "dm-haiku", "flax", "equinox", "gymnax")


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A median over rounds and its 95% bootstrap interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def measure(
    thunks: Mapping[str, Thunk], *, rounds: int = 20, warmups: int = 1, seed: int = 0
) -> Seconds:
    """Time each thunk once per round, in a random order in each.

    Args:
      thunks: by name; each returns the arrays it computes, and the clock stops when they are
        ready. A thunk must do the same work at every call and take at least about 0.1 s, so that
        dispatch and clock resolution do not matter.
      rounds: rounds that are kept.
      warmups: rounds before them, which compile and are discarded.
      seed: random seed of the orders.

    Returns:
      Seconds by name, float64 `[rounds]`; entry `i` of every array is of round `i`.
    """
    rng = np.random.default_rng(seed)
    names = list(thunks)
    kept: dict[str, list[float]] = {name: [] for name in names}
    for index in tqdm(range(warmups + rounds), desc="rounds", unit="round"):
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


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A program compiled ahead of time, with the seconds that each stage took."""

    call: Callable[..., Any]
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float

    @property
    def seconds(self) -> float:
        """Seconds of all stages."""
        return self.trace_seconds + self.lower_seconds + self.compile_seconds


def compile_timed(function: Any, *args: Any, **options: Any) -> Compiled:
    """Trace, lower and compile a jitted function for these arguments, timing each stage.

    Call `jax.clear_caches()` first and disable the persistent compilation cache: cached traces and
    programs would be measured otherwise.
    """
    stamps = [time.perf_counter()]
    traced = function.trace(*args, **options)
    stamps.append(time.perf_counter())
    lowered = traced.lower()
    stamps.append(time.perf_counter())
    compiled = lowered.compile()
    stamps.append(time.perf_counter())
    trace_seconds, lower_seconds, compile_seconds = (float(s) for s in np.diff(stamps))
    return Compiled(
        call=compiled,
        trace_seconds=trace_seconds,
        lower_seconds=lower_seconds,
        compile_seconds=compile_seconds,
    )


def matmul_thunk(rows: int, size: int, repeats: int) -> tuple[Thunk, float]:
    """Build `repeats` chained products `[rows, size] @ [size, size]` in float32.

    Pass it to `measure` with the other thunks, so that the ceiling is measured in the same minutes.
    A large square product uses every allowed core; a product of a minibatch's layer uses one.

    Returns:
      The thunk, and its floating-point operations.
    """
    # Orthogonal, so that the product neither grows nor becomes denormal.
    weight = jax.nn.initializers.orthogonal()(jax.random.key(0), (size, size))
    inputs = jnp.ones((rows, size))

    @jax.jit
    def chain(inputs: jax.Array, weight: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, _: (x @ weight, None), inputs, length=repeats)[0]

    return (lambda: chain(inputs, weight)), 2.0 * rows * size * size * repeats


def environment() -> dict[str, Any]:
    """Describe the machine and the versions a result depends on."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "cores_allowed": allowed_cores(),
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "versions": versions,
    }


def allowed_cores() -> int | None:
    """Count the cores this process may use, which `taskset` limits; None if unknown."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def cpu_model() -> str:
    """Name the processor, from /proc/cpuinfo on Linux."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def print_table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print columns wide enough for their contents, the first to the left."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *others in cells:
        aligned = [c.rjust(w) for c, w in zip(others, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *aligned]))


def write_json(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON, and create its folder."""

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray) else asdict(value)

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2, default=plain) + "\n")
