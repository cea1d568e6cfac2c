"""Falling balls in NumPy, uncompiled JAX and compiled JAX: one simulation, three ways.

The simulation is in `examples/falling_balls.py`; all three call the same `fall`. With an
accelerator, JAX is measured on it and on the CPU. Run it from the repository's root:

    python -m benchmarks.falling_balls
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from examples.falling_balls import Balls, simulate, simulate_compiled, thrown
from triglot.core.errors import writing
from triglot.report.charts.theme import PALETTE

from . import harness

SIZES = (4_000, 8_000, 16_000, 32_000, 64_000)


def programs(num_balls: int, num_steps: int) -> dict[str, harness.Thunk]:
    """Build the programs that simulate `num_balls` balls, by name.

    Raises:
      AssertionError: if their results differ.
    """
    balls = thrown(num_balls)
    calls: dict[str, harness.Thunk] = {"NumPy": lambda: simulate(balls, num_steps)}
    for device in {d.platform: d for d in (jax.devices()[0], jax.devices("cpu")[0])}.values():
        there = jax.device_put(jax.tree.map(jnp.asarray, balls), device)
        calls |= {
            f"JAX uncompiled, {device.platform}": lambda b=there: simulate(b, num_steps),
            f"JAX compiled, {device.platform}": lambda b=there: simulate_compiled(b, num_steps),
        }
    check({name: call() for name, call in calls.items()})
    return calls


def check(found: dict[str, Balls]) -> None:
    """Check that all results agree to a centimetre.

    Raises:
      AssertionError: naming the program that differs.
    """
    for name, balls in found.items():
        for mine, theirs in zip(*map(jax.tree.leaves, (balls, found["NumPy"])), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=0.01, rtol=0, err_msg=name)


def main(
    rounds: int = 50,
    sizes: tuple[int, ...] = SIZES,
    num_steps: int = 100,
    out: Path = Path("benchmarks/results/falling_balls.json"),
) -> None:
    """Measure, print a table, and write the result with its plot.

    Args:
      rounds: times that every program is measured.
      sizes: numbers of balls.
      num_steps: of a simulation.
      out: the JSON file; the plot beside it has its name and ends in .png.
    """
    entries = []
    for num_balls in sizes:
        seconds = harness.measure(programs(num_balls, num_steps), rounds=rounds)
        entries += [
            {
                "program": name,
                "num_balls": num_balls,
                "fastest_seconds": float(taken.min()),
                "seconds": harness.interval(taken),
            }
            for name, taken in seconds.items()
        ]
    harness.write_json(
        out,
        {
            "environment": harness.environment(),
            "rounds": rounds,
            "num_steps": num_steps,
            "programs": entries,
        },
    )
    numpys = {e["num_balls"]: e["fastest_seconds"] for e in entries if e["program"] == "NumPy"}
    harness.print_table(
        ["program", "balls", "fastest, ms", "median, ms", "ball steps/s", "times NumPy's speed"],
        [
            [
                entry["program"],
                f"{entry['num_balls']:,}",
                f"{1e3 * entry['fastest_seconds']:.3f}",
                f"{1e3 * entry['seconds'].median:.3f}",
                f"{num_steps * entry['num_balls'] / entry['fastest_seconds'] / 1e6:,.0f} M",
                f"{numpys[entry['num_balls']] / entry['fastest_seconds']:.2f}",
            ]
            for entry in entries
        ],
    )
    plot(out.with_suffix(".png"), entries, num_steps)
    print(f"written to {out} and {out.with_suffix('.png')}")


def plot(path: Path, entries: list[dict[str, Any]], num_steps: int) -> None:
    """Draw the fastest round of each program against the number of balls."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, NullFormatter

    figure = Figure(figsize=(7.2, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = list(dict.fromkeys(entry["program"] for entry in entries))
    for name, colour in zip(names, PALETTE, strict=False):
        mine = [entry for entry in entries if entry["program"] == name]
        sizes = [entry["num_balls"] for entry in mine]
        fastest = [entry["fastest_seconds"] for entry in mine]
        axes.plot(sizes, fastest, color=colour, marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="balls", ylabel=f"seconds for {num_steps} steps")
    axes.set_xticks(sorted({entry["num_balls"] for entry in entries}))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    with writing(path):
        figure.savefig(path)


if __name__ == "__main__":
    tyro.cli(main)
