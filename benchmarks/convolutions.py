"""Speed of PPO with convolutions on CPU: native libraries against canonical arithmetic.

The same training with native Haiku (convolutions in NHWC), native Equinox (NCHW) and canonical
arithmetic (a product of patches and kernel, one program for all libraries), each from its own
initial state, in one process, interleaved (`benchmarks.harness`), with one seed and with four
seeds under `vmap`.
Run it from the repository's root:

    python -m benchmarks.convolutions
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import tyro

from triglot import make_agent, make_env
from triglot.core.loop.trainer import Trainer, init_seeds, vmap_seeds
from triglot.core.loop.vectorize import VectorEnvironment

from . import harness
from .seams import Program

BASELINE = "haiku native"
PROGRAMS = {
    BASELINE: ("haiku", "native"),
    "equinox native": ("equinox", "native"),
    "haiku canonical": ("haiku", "canonical"),
    "equinox canonical": ("equinox", "canonical"),
}
MAZE, BREAKOUT = "jumanji:Maze-v0", "gymnax:Breakout-MinAtar"
SETTINGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Maze, 3 channels of 4x4": (MAZE, {}),
    "Maze, 16 16 16 channels of 3x3": (MAZE, {"channels": (16, 16, 16), "kernel_size": 3}),
    "Breakout, 3 channels of 4x4": (BREAKOUT, {}),
}
NUM_ENVS, ROLLOUT_LENGTH = 16, 64


def build(
    env_name: str, config: Mapping[str, Any], backend: str, arithmetic: str, num_seeds: int
) -> Program:
    """Build a program of one update of every seed."""
    env = make_env(env_name)
    sizes = {"num_envs": NUM_ENVS, "rollout_length": ROLLOUT_LENGTH}
    agent = make_agent(
        "ppo", env, backend=backend, arithmetic=arithmetic, config={**sizes, **config}
    )
    trainer = Trainer(agent, VectorEnvironment(env, agent.num_envs), chunk_size=1)
    state = init_seeds(trainer, jax.random.split(jax.random.key(0), num_seeds), agent.hyper)
    return Program(jax.jit(lambda state: vmap_seeds(trainer.train_chunk, state)), state)


def main(
    rounds: int = 5,
    seeds: tuple[int, ...] = (1, 4),
    out: Path = Path("benchmarks/results/convolutions.json"),
) -> None:
    """Measure every setting; print and write each result at once.

    Args:
      rounds: per setting; each runs every program once.
      seeds: numbers of independent seeds, vmapped.
      out: the JSON file, overwritten.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    found: dict[str, Any] = {"environment": harness.environment(), "rounds": rounds}
    for setting, (env_name, config) in SETTINGS.items():
        for num_seeds in seeds:
            programs = {
                name: build(env_name, config, *which, num_seeds) for name, which in PROGRAMS.items()
            }
            seconds = harness.measure(
                {name: lambda p=program: p.function(p.state) for name, program in programs.items()},
                rounds=rounds,
            )
            steps = NUM_ENVS * ROLLOUT_LENGTH * num_seeds
            rows = [
                [
                    name,
                    harness.time_ratio(seconds, name, BASELINE),
                    f"{harness.interval(steps / seconds[name]).median:,.0f}",
                ]
                for name in programs
            ]
            title = f"{setting}, {num_seeds} seeds"
            print(title)
            harness.print_table(["program", f"time / {BASELINE}", "steps/s of all"], rows)
            found[title] = seconds
            harness.write_json(out, found)
    print(f"written to {out}")


if __name__ == "__main__":
    tyro.cli(main)
