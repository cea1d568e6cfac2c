"""triglot beside other frameworks, and beside the training scripts of suites of environments.

Each row trains one algorithm at one setting in all frameworks that are installed, in one process
(CleanRL and Stable-Baselines3 in their own), in interleaved rounds (`benchmarks.harness`). A round
trains every framework from scratch, with the same key, for the whole budget; the greedy returns are
those of the very runs that were timed. Compilation is timed apart. Run it from the repository's
root, on one core:

    taskset -c 0 python -m benchmarks.peers --row ppo --purejaxrl PATH

The rows whose names begin with `cold-start` time whole processes instead: Python's start, imports,
compilation without a cache, and a short training.
"""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import tyro

from .. import harness
from . import cold
from .cold import FLOOR, TRIGLOT
from .measure import contenders, measure
from .row import Row
from .rows import ROWS

if TYPE_CHECKING:
    Name = str
else:
    Name = Literal[tuple(ROWS)]  # so that --help and errors list them


def main(
    row: Name,
    purejaxrl: Path | None = None,
    purejaxql: Path | None = None,
    stoix: Path | None = None,
    cleanrl: Path | None = None,
    sb3: Path | None = None,
    craftax_baselines: Path | None = None,
    xminigrid: Path | None = None,
    backend: str = "linen",
    rounds: int | None = None,
    total_steps: int | None = None,
    episodes: int = 32,
    seed: int = 0,
    out: Path | None = None,
    at_least: float | None = None,
    command_line: bool = False,
) -> None:
    """Measure one row and write a JSON file.

    Args:
      row: what to compare, see `benchmarks/peers/rows.py`.
      purejaxrl: folder of a clone of PureJaxRL's repository.
      purejaxql: folder of a clone of purejaxql's repository.
      stoix: folder of a clone of Stoix's repository.
      cleanrl: folder of a clone of CleanRL's repository, with its environment in `.venv`.
      sb3: the interpreter of an environment with Stable-Baselines3.
      craftax_baselines: folder of a clone of Craftax_Baselines' repository.
      xminigrid: folder of a clone of XLand-MiniGrid's repository.
      backend: library of triglot's networks; the others use Flax Linen.
      rounds: trainings of each framework; None for the row's own number.
      total_steps: environment steps of each seed; None for the row's own number.
      episodes: greedy episodes of each trained policy, where gymnax has the environment.
      seed: random seed of all keys.
      out: the JSON file, overwritten; None for benchmarks/results/peers-ROW.json.
      at_least: exit with 1 if triglot is less than so many times as fast as a peer, by the upper
        end of the interval, so that noise alone does not fail. The hand-written program of whole
        processes is no peer.
      command_line: in rows of whole processes, time `triglot train` instead of `triglot.train`.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    path = out or Path(f"benchmarks/results/peers-{row}.json")
    before = harness.environment()
    chosen = ROWS[row]
    budget = total_steps or chosen.total_steps
    paths = {
        "PureJaxRL": purejaxrl,
        "purejaxql": purejaxql,
        "Stoix": stoix,
        "CleanRL": cleanrl,
        "Stable-Baselines3": sb3,
        "Craftax_Baselines": craftax_baselines,
        "XLand-MiniGrid": xminigrid,
    }
    frameworks = contenders(chosen, budget, backend, paths)
    if chosen.whole_process:
        commands = {
            name: cold.python_command(name, row, budget, backend, paths.get(name))
            for name in frameworks
        }
        if command_line:
            commands[TRIGLOT] = cold.train_command(chosen, budget, backend)
        frameworks = {
            name: cold.in_processes(one, commands[name]) for name, one in frameworks.items()
        }
    result = measure(
        chosen,
        frameworks,
        total_steps=budget,
        rounds=rounds or chosen.rounds,
        episodes=0 if chosen.whole_process or not chosen.is_played else episodes,
        seed=seed,
        say=partial(print, file=sys.stderr),
    )
    head = {"environment": before, "row": chosen, "steps_per_seed": budget}
    head["load_average_after"] = harness.environment()["load_average"]
    harness.write_json(path, {**head, **result})
    print(report(chosen, budget, result["programs"]))
    print(f"written to {path}")
    slower = {
        name: entry["triglot_times_as_fast"]
        for name, entry in result["programs"].items()
        if name not in (TRIGLOT, FLOOR) and entry["triglot_times_as_fast"].high < (at_least or 0.0)
    }
    if slower:
        sys.exit(", ".join(f"{ratio} times {name}'s speed" for name, ratio in slower.items()))


def report(row: Row, total_steps: int, entries: dict[str, Any]) -> str:
    """Format the result as a table, then the patches and the differences."""
    seeds = f"{row.num_seeds} seeds at once" if row.num_seeds > 1 else "1 seed"
    process = "whole processes: " if row.whole_process else ""
    header = ["framework", "s", "steps/s in all", "triglot is x times as fast [95%]", "compile s"]
    table = [
        [
            f"{name} {one['version']}",
            f"{one['seconds_per_run'].median:.1f}",
            f"{one['steps_per_second'].median / 1e3:.1f} k",
            one["triglot_times_as_fast"] if name != TRIGLOT else "",
            f"{one['compile_seconds']:.1f}",
            f"{returns.mean():.1f} ({returns.min():.0f} to {returns.max():.0f})"
            if len(returns := one["greedy_return"])
            else "",
        ]
        for name, one in entries.items()
    ]
    lines = [
        f"{process}{row.algorithm} on {row.env_id}, {seeds}, {total_steps:,} steps each",
        harness.table([*header, "greedy return (range over seeds)"], table),
    ]
    for name, one in entries.items():
        lines += [f"patched in {name}: {patch}." for patch in one["patches"]]
    return "\n".join([*lines, *(f"not equal: {each}." for each in row.differences)])


if __name__ == "__main__":
    tyro.cli(main)
