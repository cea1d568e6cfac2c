"""One training on several devices: its throughput.

Each case trains PPO on CartPole-v1 on one device, which may use all cores, and divided among
`num_devices` parts of the same CPU. The speedup is the ratio of their steps/s; the efficiency is
the speedup over the number of devices. Run it from the repository's root:

    python -m benchmarks.devices
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from triglot import Trainer, make_agent, make_env
from triglot.core.loop.sharding import Sharding, make_sharding
from triglot.core.loop.trainer import init_seeds, train_seeds
from triglot.core.loop.vectorize import VectorEnvironment

from . import harness


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training, and what of it is divided."""

    shard: Literal["seeds", "envs"]
    num_seeds: int
    num_envs: int
    hidden_size: int
    rollout_length: int = 128
    num_updates: int = 8

    @property
    def name(self) -> str:
        sizes = f"{self.num_seeds} seeds x {self.num_envs} envs, {self.hidden_size} units"
        return f"{self.shard}: {sizes}"

    @property
    def steps(self) -> int:
        """Environment steps of one call."""
        return self.num_seeds * self.num_envs * self.rollout_length * self.num_updates


CASES = (
    Case(shard="seeds", num_seeds=2, num_envs=4, hidden_size=64, num_updates=32),
    Case(shard="seeds", num_seeds=4, num_envs=4, hidden_size=64, num_updates=16),
    Case(shard="seeds", num_seeds=5, num_envs=4, hidden_size=64, num_updates=16),
    Case(shard="seeds", num_seeds=16, num_envs=4, hidden_size=64, num_updates=4),
    Case(shard="envs", num_seeds=1, num_envs=64, hidden_size=64),
    Case(shard="envs", num_seeds=1, num_envs=512, hidden_size=256, num_updates=1),
)


def program(case: Case, sharding: Sharding | None) -> harness.Thunk:
    """Compile a case on one device, or divided; each call trains from the same states."""
    env = make_env("gymnax:CartPole-v1")
    sizes = {"num_envs": case.num_envs, "rollout_length": case.rollout_length}
    config = {**sizes, "hidden_sizes": (case.hidden_size, case.hidden_size)}
    agent = make_agent("ppo", env, config=config)
    vector = VectorEnvironment(env, agent.num_envs)
    trainer = Trainer(agent, vector, chunk_size=case.num_updates, sharding=sharding)
    states = init_seeds(trainer, jax.random.split(jax.random.key(0), case.num_seeds))
    if sharding is not None:
        states = sharding.place(states)
    compiled = train_seeds.lower(trainer, states, np.int32(0)).compile()

    def train() -> dict[str, jax.Array]:
        copied = jax.tree.map(jnp.copy, states)  # the program donates them
        return compiled(copied, np.int32(case.num_updates))[1]

    return train


def main(
    num_devices: int = 2,
    rounds: int = 8,
    match: str = "",
    out: Path = Path("benchmarks/results/devices.json"),
) -> None:
    """Measure every case on one device and divided, and write a JSON file.

    Args:
      num_devices: parts of the CPU.
      rounds: pairs; each round runs every program once.
      match: a regular expression in the names of the cases to measure.
      out: the JSON file, overwritten.
    """
    cases = [case for case in CASES if re.search(match, case.name)]
    jax.config.update("jax_num_cpu_devices", num_devices)
    jax.config.update("jax_enable_compilation_cache", False)
    before = harness.environment()
    thunks: dict[str, harness.Thunk] = {}
    for case in cases:
        sizes = {"num_seeds": case.num_seeds, "num_envs": case.num_envs}
        sharding = make_sharding(num_devices, case.shard, **sizes)
        thunks[f"{case.name}, 1"] = program(case, None)
        thunks[f"{case.name}, {num_devices}"] = program(case, sharding)
    seconds = harness.measure(thunks, rounds=rounds)
    found, rows = {}, []
    for case in cases:
        one, many = (seconds[f"{case.name}, {count}"] for count in (1, num_devices))
        speedup = harness.interval(one / many)
        found[case.name] = {"case": case, "speedup": speedup, "one": one, "many": many}
        rates = [harness.rounded(float(np.median(case.steps / each))) for each in (one, many)]
        update_ms = float(np.median(many)) / case.num_updates * 1e3
        rows.append([case.name, *rates, speedup, f"{update_ms:.1f}"])
    head = {"environment": before, "num_devices": num_devices, "rounds": rounds}
    harness.write_json(out, {**head, "cases": found})
    header = ["divided", "steps/s, 1", "steps/s, divided", "speedup [95%]", "ms/update"]
    print(harness.table(header, rows))
    print(f"written to {out}")


if __name__ == "__main__":
    tyro.cli(main)
