"""triglot beside rejax, PureJaxRL, Stoix and CleanRL, where installed: speed and return.

Each row trains one algorithm at one setting in all frameworks, in one process, in interleaved
rounds (`benchmarks.harness`). A round trains every framework from scratch, with the same key, for
the whole budget; the greedy returns are those of the very runs that were timed. Compilation is
timed apart. Run it from the repository's root, on one core:

    taskset -c 0 python -m benchmarks.peers --row ppo --purejaxrl PATH

The row `ppo-gymnasium` is `python -m benchmarks.gymnasium_ppo`: Stable-Baselines3 on Gymnasium's
CartPole with 8 environments, each program in a process of its own, on all cores.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from .. import gymnasium_ppo, harness
from . import cleanrl as peer_cleanrl
from . import ours
from . import purejaxrl as peer_purejaxrl
from . import rejax as peer_rejax
from . import stoix as peer_stoix
from .contender import Contender, NotInstalled, Train, greedy_returns
from .rows import ROWS, Row

TRIGLOT = "triglot"


def main(
    row: Literal[
        "ppo", "ppo-seeds", "ppo-cleanrl", "dqn", "dqn-rejax", "dqn-cleanrl", "sac", "ppo-gymnasium"
    ],
    purejaxrl: Path | None = None,
    stoix: Path | None = None,
    cleanrl: Path | None = None,
    sb3: Path | None = None,
    backend: str = "linen",
    rounds: int | None = None,
    total_steps: int | None = None,
    episodes: int = 32,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Measure one row and write a JSON file.

    Args:
      row: what to compare, see `benchmarks/peers/rows.py`.
      purejaxrl: folder of a clone of PureJaxRL's repository.
      stoix: folder of a clone of Stoix's repository.
      cleanrl: folder of a clone of CleanRL's repository, with its environment in `.venv`.
      sb3: the interpreter of an environment with Stable-Baselines3.
      backend: library of triglot's networks; the others use Flax Linen.
      rounds: trainings of each framework; None for the row's own number.
      total_steps: environment steps of each seed; None for the row's own number.
      episodes: greedy episodes of each trained policy.
      seed: random seed of all keys.
      out: the JSON file, overwritten; None for benchmarks/results/peers-ROW.json.
    """
    path = out or Path(f"benchmarks/results/peers-{row}.json")
    if row == "ppo-gymnasium":
        if sb3 is None:
            return print("Stable-Baselines3 is left out: give --sb3 an interpreter that has it.")
        return gymnasium_ppo.main(
            ["--sb3", str(sb3), "--rounds", str(rounds or 10), "--out", str(path)]
        )
    jax.config.update("jax_enable_compilation_cache", False)
    chosen, before = ROWS[row], harness.environment()
    budget = total_steps or chosen.total_steps
    if "gymnasium" in chosen.suites:  # as `triglot train` does for them
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    contenders = {
        f"{TRIGLOT}, {suite}" if index else TRIGLOT: ours.contender(
            chosen.algorithm, f"{suite}:{chosen.env_id}", budget, chosen.triglot, backend
        )
        for index, suite in enumerate(chosen.suites)
    }
    folders = {"PureJaxRL": purejaxrl, "Stoix": stoix, "CleanRL": cleanrl}
    contenders |= installed_peers(chosen, budget, folders)
    keys = jax.random.split(jax.random.key(seed), (rounds or chosen.rounds, chosen.num_seeds))
    programs, compile_seconds = compile_all(contenders, keys)
    policies: dict[str, list[Any]] = {name: [] for name in programs}

    def thunk(name: str) -> harness.Thunk:
        def run() -> Any:
            policies[name].append(programs[name](len(policies[name])))
            return policies[name][-1]

        return run

    # Without a warmup: the programs are compiled, and each run takes seconds.
    seconds = harness.measure({name: thunk(name) for name in programs}, rounds=len(keys), warmups=0)
    steps = budget * chosen.num_seeds
    play_key = jax.random.key(seed + 1)
    rows = {}
    for name, one in contenders.items():
        every = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *policies[name])
        returns = np.asarray(
            greedy_returns(chosen.env_id, one.act, every, play_key, episodes)
        ).mean(axis=1)
        rows[name] = {
            "version": one.version,
            "patches": one.patches,
            "seconds_per_run": harness.interval(seconds[name]),
            "triglot_times_as_fast": harness.time_ratio(seconds, name, TRIGLOT),
            "steps_per_second": harness.interval(steps / seconds[name]),
            "compile_seconds": compile_seconds[name],
            "greedy_return": returns,
        }
    result = {
        "environment": before,
        "load_average_after": harness.environment()["load_average"],
        "row": chosen,
        "steps_per_seed": budget,
        "rounds": len(keys),
        "programs": rows,
        "seconds": seconds,
    }
    harness.write_json(path, result)
    report(chosen, budget, rows)
    print(f"written to {path}")


def installed_peers(
    row: Row, total_steps: int, folders: Mapping[str, Path | None]
) -> dict[str, Contender]:
    """Build the row's peers; print one line for each that is not installed."""
    builders: dict[str, Callable[..., Contender]] = {
        "PureJaxRL": partial(peer_purejaxrl.contender, folder=folders["PureJaxRL"]),
        "rejax": peer_rejax.contender,
        "Stoix": partial(peer_stoix.contender, folder=folders["Stoix"]),
        "CleanRL": partial(peer_cleanrl.contender, folder=folders["CleanRL"]),
    }
    found = {}
    for name, options in row.peers.items():
        try:
            found[name] = builders[name](row.algorithm, row.env_id, total_steps, options)
        except NotInstalled as error:
            print(f"{name} is left out: it is not installed ({error}).")
    return found


def compile_all(
    contenders: dict[str, Contender], keys: jax.Array
) -> tuple[dict[str, Train], dict[str, float]]:
    """Trace and compile each from cleared caches; returns the programs and the seconds taken."""
    programs, seconds = {}, {}
    for name, one in contenders.items():
        jax.clear_caches()
        programs[name], seconds[name] = one.compile(keys)
    return programs, seconds


def report(row: Row, total_steps: int, rows: dict[str, Any]) -> None:
    """Print the result as a table, the patches and the differences."""
    table = [
        [
            f"{name} {one['version']}",
            f"{one['steps_per_second'].median / 1e3:.1f} k",
            one["triglot_times_as_fast"] if name != TRIGLOT else "",
            f"{one['compile_seconds']:.1f}",
            f"{one['greedy_return'].mean():.1f} ({one['greedy_return'].min():.0f} to "
            f"{one['greedy_return'].max():.0f})",
        ]
        for name, one in rows.items()
    ]
    seeds = f"{row.num_seeds} seeds at once" if row.num_seeds > 1 else "1 seed"
    print(f"{row.algorithm} on {row.env_id}, {seeds}, {total_steps:,} steps each")
    header = ["framework", "steps/s in all", "triglot is x times as fast [95%]", "compile s"]
    harness.print_table([*header, "greedy return (range over seeds)"], table)
    for name, one in rows.items():
        for patch in one["patches"]:
            print(f"patched in {name}: {patch}.")
    for difference in row.differences:
        print(f"not equal: {difference}.")


if __name__ == "__main__":
    tyro.cli(main)
