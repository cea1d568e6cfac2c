"""Many seeds in one program: PPO under `vmap`, through triglot and in plain JAX.

All programs train the PPO of `benchmarks.seams` on CartPole-v1. A program of `S` seeds does `S`
times the work of one seed, so the speedup of `vmap` is the ratio of their steps/s. Run it from the
repository's root:

    python -m benchmarks.seeds
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from . import harness, plain_ppo
from .seams import Program, compile_all, triglot_program


def plain_program(config: plain_ppo.Config, num_updates: int, num_seeds: int) -> Program:
    """Build a program of `num_updates` updates of every seed in plain JAX."""
    run = jax.vmap(lambda state: plain_ppo.train(config, num_updates, state))
    keys = jax.random.split(jax.random.key(0), num_seeds)
    state = jax.lax.map(lambda key: plain_ppo.init(config, key), keys)
    return Program(jax.jit(run), state)


def seeds_program(
    backend: str, config: plain_ppo.Config, num_updates: int, num_seeds: int
) -> Program:
    """Build a program of `num_updates` updates of every seed through triglot."""
    return triglot_program(
        backend, "canonical", config, num_updates, vmapped=True, num_seeds=num_seeds
    )


def memory(compiled: Any, state: Any) -> dict[str, float]:
    """Count the bytes of the state, and of the program's temporary buffers."""
    leaves = (leaf for leaf in jax.tree.leaves(state) if hasattr(leaf, "nbytes"))
    return {
        "state_bytes": sum(leaf.nbytes for leaf in leaves),
        "temporary_bytes": compiled.memory_analysis().temp_size_in_bytes,
    }


def main(
    backend: str = "linen",
    num_seeds: tuple[int, ...] = (1, 4, 16),
    rounds: int = 10,
    num_updates: int = 16,
    out: Path = Path("benchmarks/results/seeds.json"),
) -> None:
    """Measure both for every number of seeds and write the result.

    Args:
      backend: library to measure.
      num_seeds: numbers of seeds.
      rounds: each runs every program once.
      num_updates: updates of each seed in one run.
      out: the JSON file, overwritten.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    config = plain_ppo.Config()
    programs = {}
    for count in num_seeds:
        programs[f"plain, {count}"] = plain_program(config, num_updates, count)
        programs[f"{backend}, {count}"] = seeds_program(backend, config, num_updates, count)
    before = harness.environment()
    made = {name: one[-1] for name, one in compile_all(programs, 1).items()}
    metrics: dict[str, Any] = {}

    def thunk(name: str) -> harness.Thunk:
        def run() -> Any:
            state, metrics[name] = made[name].call(programs[name].state)
            return state

        return run

    seconds = harness.measure({name: thunk(name) for name in programs}, rounds=rounds)
    rows = {}
    for name, program in programs.items():
        count = int(name.rpartition(", ")[2])
        rows[name] = {
            "num_seeds": count,
            "time_ratio": harness.time_ratio(seconds, name, f"plain, {count}"),
            "steps_per_second": harness.interval(
                count * num_updates * config.steps_per_update / seconds[name]
            ),
            "compile_seconds": made[name].compile_seconds,
            "episode_return": float(np.nanmean(metrics[name]["episode_return"][..., -1])),
            **memory(made[name].call, program.state),
        }
    result = {
        "environment": before,
        "rounds": rounds,
        "updates_per_run": num_updates,
        "config": config,
        "programs": rows,
        "seconds": seconds,
    }
    harness.write_json(out, result)
    report(rows)
    print(f"written to {out}")


def report(rows: dict[str, Any]) -> None:
    """Print the result as a table."""
    header = ["program, seeds", "time / plain [95%]", "steps/s in all", "state kB/seed"]
    table = [
        [
            name,
            row["time_ratio"],
            f"{row['steps_per_second'].median / 1e3:.0f} k",
            f"{row['state_bytes'] / row['num_seeds'] / 1e3:.0f}",
            f"{row['temporary_bytes'] / row['num_seeds'] / 1e3:.0f}",
            f"{row['compile_seconds']:.1f}",
            f"{row['episode_return']:.0f}",
        ]
        for name, row in rows.items()
    ]
    harness.print_table([*header, "temporary kB/seed", "compile s", "return"], table)


if __name__ == "__main__":
    tyro.cli(main)
