"""How time and memory grow with seeds, environments, units and replay entries, beside rejax.

    pip install --no-deps --target peers rejax
    PYTHONPATH=peers python -m benchmarks.growth
    PYTHONPATH=peers python -m benchmarks.growth --axes replay --max-size 100_000

Each size is trained by each framework in a process of its own, which compiles a short and a long
training. Rounds are interleaved. The time of an update is the difference of both trainings divided
by the difference of their updates, so that neither initialization nor what happens once counts.
Memory is what the process takes in training beyond what it had before it.

A curve of updates over sizes is described by two straight lines in logarithms, which meet at the
size where it bends: their slopes are the exponents (0: the time does not depend on the size, 1: it
is proportional). What was measured is written after each size, so Ctrl-C keeps it, and
`--only-draw` draws it again.
"""

import ctypes
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro

from . import harness
from .child import Child, Ended, serve
from .peers.cold import TRIGLOT
from .peers.row import Row
from .peers.rows import ROWS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PEER = "rejax"
FRAMEWORKS = (TRIGLOT, PEER)
LONG_SECONDS = 1.0  # that a long training takes at least
HEADER = ("size", "triglot, ms per update", "rejax, ms per update", "times as fast [95%]",
          "triglot, MB", "rejax, MB")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What grows.

    Attributes:
      row: the setting of `benchmarks.peers` that is resized.
      what: of what there are so many, for people.
      sizes: measured ones.
      resized: gives the row of a size.
    """

    row: str
    what: str
    sizes: Sequence[int]
    resized: Callable[[Row, int], Row]

    def at(self, size: int) -> Row:
        """Give the setting of a size, which has only the peer that is measured."""
        return replace(self.resized(ROWS[self.row], size), peers=(PEER,))


def with_config(row: Row, **config: Any) -> Row:
    """Replace options of a row."""
    return replace(row, config={**row.config, **config})


AXES: Mapping[str, Axis] = {
    "seeds": Axis(
        row="ppo",
        what="seeds",
        sizes=(1, 4, 16, 64, 256, 1024),
        resized=lambda row, size: replace(row, num_seeds=size),
    ),
    "environments": Axis(
        row="ppo",
        what="environments",
        sizes=(4, 16, 64, 256, 1024, 4096, 16384),
        resized=lambda row, size: with_config(row, num_envs=size),
    ),
    "units": Axis(
        row="ppo",
        what="units of each of two layers",
        sizes=(16, 32, 64, 128, 256, 512, 1024, 2048),
        resized=lambda row, size: with_config(row, hidden_sizes=(size, size)),
    ),
    # It learns from the 13th step of 10 environments on, at each size: whole batches are stored.
    "replay": Axis(
        row="dqn",
        what="transitions in the replay",
        sizes=(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
        resized=lambda row, size: with_config(row, buffer_size=size, learning_starts=130),
    ),
}
FIRST_UPDATES = {"ppo": 2, "dqn": 20}


def steps_per_update(row: Row) -> int:
    """Count the environment steps of one seed per update."""
    return row.config["num_envs"] * row.config.get("rollout_length", 1)


class Measured:
    """The trainings of one size in this process, a short and a long one."""

    def __init__(self, framework: str, axis: str, size: int, backend: str) -> None:
        from .peers import ours, rejax

        row = AXES[axis].at(size)
        self.compile_seconds = 0.0  # of the last program

        def program(updates: int) -> Callable[[], float]:
            import jax

            steps = updates * steps_per_update(row)
            if framework == TRIGLOT:
                env = f"{row.suites[0]}:{row.env_id}"
                contender = ours.contender(row, env, steps, backend)
            else:
                contender = rejax.contender(row, steps)
            jax.clear_caches()
            keys = jax.random.split(jax.random.key(0), (1, row.num_seeds))
            train, self.compile_seconds = contender.compile(keys)

            def run() -> float:
                began = time.perf_counter()
                jax.block_until_ready(train(0))
                return time.perf_counter() - began

            return run

        short = FIRST_UPDATES[row.algorithm]
        run_short = program(short)
        run_short()  # the first run also reads what the next ones find
        seconds = run_short()
        factor = min(max(2, math.ceil(LONG_SECONDS / max(seconds, 1e-4))), 10_000)
        run_long = program(short * factor)
        if factor > 4:  # the first guess was of a training that is mostly initialization
            seconds = run_long()
            if seconds < LONG_SECONDS:
                factor = min(math.ceil(factor * LONG_SECONDS / max(seconds, 1e-3)), 100_000)
                run_long = program(short * factor)
        self.updates = {"short": short, "long": short * factor}
        self.runs = {"short": run_short, "long": run_long}
        _reset_peak()
        before = _resident_bytes("VmRSS")
        run_long()
        self.memory = max(_resident_bytes("VmHWM") - before, 0)

    def describe(self) -> dict[str, Any]:
        """Return what holds for all rounds."""
        return {
            "updates": self.updates,
            "memory": self.memory,
            "compile_seconds": self.compile_seconds,
        }


def _reset_peak() -> None:
    """Give freed memory back, and let the peak start here; Linux only."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def _resident_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def measure_one(framework: str, axis: str, size: str, backend: str) -> None:
    """Compile one size and train it at each request; the first reply describes it."""
    import jax

    jax.config.update("jax_enable_compilation_cache", False)
    measured = Measured(framework, axis, int(size), backend)

    def hello() -> dict[str, Any]:
        return {**measured.describe(), "machine": harness.environment()}

    serve(lambda name: measured.runs[name](), hello=hello)


def measure_size(
    axis: str, size: int, *, backend: str, rounds: int, max_seconds: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure all frameworks at one size, interleaved.

    Returns:
      By framework its milliseconds per update in each round, and its memory; and the machine.

    Raises:
      Ended: if a process of a framework ends, such as for want of memory.
    """
    rng = np.random.default_rng(size)
    result: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    with ExitStack() as stack:
        children: dict[str, Child] = {}
        for name in FRAMEWORKS:  # one after the other, since compiling takes all cores
            words = ["serve", name, axis, str(size), backend]
            command = [sys.executable, "-m", "benchmarks.growth", *words]
            children[name] = stack.enter_context(Child(f"{name} at {size:,} {axis}", command))
            told = children[name].reply()
            machine = told.pop("machine")
            result[name] = {**told, "milliseconds": []}
        began = time.monotonic()
        for number in range(rounds):
            if number and time.monotonic() - began > max_seconds:
                break
            for name in rng.permutation(FRAMEWORKS):
                took = {length: children[name].ask(length) for length in ("short", "long")}
                updates = result[name]["updates"]
                more = updates["long"] - updates["short"]
                result[name]["milliseconds"].append(1e3 * (took["long"] - took["short"]) / more)
    return result, machine


@dataclass(frozen=True)
class Bend:
    """Two straight lines in logarithms, which meet at `size`; None for one line."""

    first: float
    second: float
    size: float | None

    def __str__(self) -> str:
        if self.size is None:
            return f"{self.first:.2f} throughout"
        return f"{self.first:.2f}, from about {self.size:,.0f} on {self.second:.2f}"


def bend(sizes: Sequence[float], values: Sequence[float]) -> Bend:
    """Fit two lines that meet, by least squares over all places to meet.

    Where both slopes are within 0.15 of each other, or there are fewer than four sizes, one line is
    fitted.

    >>> bend([1, 2, 4, 8, 16, 32], [3, 3, 3, 6, 12, 24])
    Bend(first=0.0, second=1.0, size=4.0)
    >>> bend([1, 10, 100, 1000], [1, 10, 100, 1000])
    Bend(first=1.0, second=1.0, size=None)
    """
    x, y = np.log(np.asarray(sizes, float)), np.log(np.asarray(values, float))

    def fitted(knot: float | None) -> tuple[np.ndarray, float]:
        columns = [np.ones_like(x), x]
        if knot is not None:
            columns.append(np.maximum(x - knot, 0.0))
        design = np.stack(columns, axis=1)
        weights = np.linalg.lstsq(design, y, rcond=None)[0]
        return weights, float(np.square(design @ weights - y).sum())

    line = fitted(None)[0]
    one_line = Bend(round(float(line[1]), 6) + 0.0, round(float(line[1]), 6) + 0.0, None)
    if len(x) < 4:
        return one_line
    # A bend needs two sizes on either side; between sizes, four places each are tried.
    knots = np.unique(
        np.concatenate([np.linspace(a, b, 5) for a, b in itertools.pairwise(x[1:-1])])
    )
    knot = min(knots, key=lambda one: fitted(one)[1])
    weights = fitted(knot)[0]
    first, second = float(weights[1]), float(weights[1] + weights[2])
    if abs(second - first) < 0.15:
        return one_line
    return Bend(round(first, 6) + 0.0, round(second, 6) + 0.0, round(float(np.exp(knot)), 6))


def curve(points: Mapping[str, Any], framework: str, of: str) -> tuple[list[int], list[float]]:
    """Return the sizes of a framework's curve and its values: `milliseconds` or `memory` in MB."""
    sizes = sorted(int(size) for size in points if framework in points[size])
    if of == "milliseconds":
        return sizes, [float(np.median(points[str(n)][framework][of])) for n in sizes]
    return sizes, [points[str(n)][framework][of] / 1e6 for n in sizes]


def text(result: Mapping[str, Any]) -> str:
    """Format the tables and the exponents in Markdown."""
    parts = []
    for name, points in result["axes"].items():
        rows = []
        for size in sorted(map(int, points)):
            ours, peer = points[str(size)][TRIGLOT], points[str(size)][PEER]
            ratio = np.asarray(peer["milliseconds"]) / np.asarray(ours["milliseconds"])
            if min(ratio) <= 0.0:
                shown = "not measurable"
            elif len(ratio) > 1:
                shown = "{0.median:.2f} [{0.low:.2f}, {0.high:.2f}]".format(harness.interval(ratio))
            else:
                shown = f"{ratio[0]:.2f} (one round)"
            rows.append([
                f"{size:,}",
                *(_three(float(np.median(one["milliseconds"]))) for one in (ours, peer)),
                shown,
                *(f"{one['memory'] / 1e6:,.0f}" for one in (ours, peer)),
            ])  # fmt: skip
        axis = AXES[name]
        parts += [f"### {axis.what.capitalize()}: {axis.row.upper()}", "",
                  harness.table(HEADER, rows), ""]  # fmt: skip
        for of, word in (("milliseconds", "time"), ("memory", "memory")):
            told = [f"{one} {bend(*positive(*curve(points, one, of)))}" for one in FRAMEWORKS]
            parts.append(f"- Exponent of {word}: {'; '.join(told)}.")
        parts.append("")
    return "\n".join(parts)


def _three(number: float) -> str:
    """Show three digits, and all before the point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def positive(sizes: list[int], values: list[float]) -> tuple[list[int], list[float]]:
    """Leave out what has no logarithm: memory that did not grow, times below the clock's noise."""
    kept = [(size, value) for size, value in zip(sizes, values, strict=True) if value > 0.0]
    return [size for size, _ in kept], [value for _, value in kept]


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw time and memory over size, a column per axis."""
    from triglot.shared.pages.charts import drawing
    from triglot.shared.pages.charts.theme import LIBRARIES
    from triglot.shared.pages.numbers import short

    colours = dict(zip(FRAMEWORKS, (LIBRARIES["linen"], LIBRARIES["haiku"]), strict=True))

    def one(axes: "Axes", points: Mapping[str, Any], of: str) -> None:
        for name in FRAMEWORKS:
            sizes, values = positive(*curve(points, name, of))
            axes.plot(sizes, values, color=colours[name], marker="o", markersize=4, label=name)
        for axis, set_scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
            set_scale("log")
            axis.set_major_formatter(lambda number, _: short(number))
            axis.set_minor_formatter(lambda number, _: "")

    @drawing.themed()
    def whole() -> None:
        names = list(result["axes"])
        figure = drawing.new_figure(60 + 280 * len(names), 560, drawing.EDGE)
        grid = figure.subplots(2, len(names), squeeze=False)
        for column, name in enumerate(names):
            points = result["axes"][name]
            one(grid[0][column], points, "milliseconds")
            one(grid[1][column], points, "memory")
            grid[0][column].set_title(f"{AXES[name].row.upper()}: {name}")
            grid[1][column].set_xlabel(AXES[name].what)
        grid[0][0].set_ylabel("ms per update")
        grid[1][0].set_ylabel("MB in training")
        grid[0][0].legend()
        drawing.save(path, figure)

    whole()


def main(
    axes: tuple[str, ...] = tuple(AXES),
    max_size: int | None = None,
    backend: str = "linen",
    rounds: int = 5,
    max_seconds: float = 30.0,
    only_draw: bool = False,
    out: Path = Path("benchmarks/results/growth.json"),
) -> None:
    """Measure the sizes that are not yet in the file; print and write tables and a picture.

    Args:
      axes: what grows: seeds, environments, units or replay.
      max_size: leave out larger sizes.
      backend: library of triglot's networks.
      rounds: interleaved trainings of each framework at a size.
      max_seconds: after which no further round of a size begins.
      only_draw: measure nothing.
      out: the JSON file, which is continued; tables are beside it, ending in .md, and the picture,
        ending in .png.
    """
    unknown = sorted(set(axes) - set(AXES))
    if unknown:
        sys.exit(f"There is no axis {', '.join(unknown)}; there are {', '.join(AXES)}.")
    if sys.platform != "linux":
        sys.exit("Memory is read from /proc, which only Linux has.")
    result = json.loads(out.read_text()) if out.exists() else {"machine": {}, "axes": {}}
    if only_draw and not result["axes"]:
        sys.exit(f"{out} has no measurement; leave --only-draw out.")
    wanted = [
        (name, size)
        for name in axes
        for size in AXES[name].sizes
        if (max_size is None or size <= max_size)
        and str(size) not in result["axes"].get(name, {})
        and not only_draw
    ]
    try:
        for number, (name, size) in enumerate(wanted, 1):
            print(f"{number}/{len(wanted)} {size:,} {AXES[name].what}", flush=True)
            try:
                measured, result["machine"] = measure_size(
                    name, size, backend=backend, rounds=rounds, max_seconds=max_seconds
                )
            except Ended as error:
                print(f"  left out: {error}")
                continue
            result["axes"].setdefault(name, {})[str(size)] = measured
            harness.write_json(out, result)
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept")
    if result["axes"]:
        out.with_suffix(".md").write_text(text(result))
        draw(result, out.with_suffix(".png"))
        print(text(result))
        print(f"written to {out}, {out.with_suffix('.md')} and {out.with_suffix('.png')}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        with suppress(KeyboardInterrupt):
            measure_one(*sys.argv[2:])
    else:
        tyro.cli(main)
