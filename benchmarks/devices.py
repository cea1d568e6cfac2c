"""One training on several devices: its throughput, and the seconds of whole commands.

Each case trains PPO on CartPole-v1 on one device, which may use all cores, and divided among
`num_devices` parts of the same CPU. The speedup is the ratio of their steps/s; the efficiency is
the speedup over the number of devices. With `--commands`, each command runs with `--devices 1` and
as it chooses, in turns. Run it from the repository's root:

    python -m benchmarks.devices
    python -m benchmarks.devices --commands
"""

import functools
import itertools
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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
    Case(shard="seeds", num_seeds=2, num_envs=512, hidden_size=256, num_updates=1),
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

    def train() -> Any:
        copied = jax.tree.map(jnp.copy, states)  # the program donates them
        return compiled(copied, np.int32(case.num_updates))[1]

    return train


LONG = "ppo gymnax:CartPole-v1 --no-preset --total-steps 500000"
COMMANDS = {
    "train, 4 seeds": f"train {LONG} --num-seeds 4",
    "train, 5 seeds": f"train {LONG} --num-seeds 5",
    "train, 16 seeds": f"train {LONG} --num-seeds 16",
    "sweep, 3 x 4 seeds": f"sweep {LONG} --over learning_rate=1e-4,3e-4,1e-3 --num-seeds 4",
    "compare, 4 seeds": f"compare {LONG} --num-seeds 4 --backends haiku nnx --repetitions 0",
    "evaluate, 4 seeds": "evaluate {trained} --episodes 32768 --max-steps 500",
}
TRAINED = COMMANDS["train, 4 seeds"]  # what `evaluate` reads


def measure_commands(rounds: int, match: str, out: Path) -> None:
    """Run each command with one device and with those that it chooses, in turns."""
    before, rows = harness.environment(), []
    chosen = {name: text for name, text in COMMANDS.items() if re.search(match, name)}
    with tempfile.TemporaryDirectory() as folder:
        trained, number = f"{folder}/trained", itertools.count()
        if any("{trained}" in text for text in chosen.values()):
            _triglot([*TRAINED.split(), "--out", trained])
        for name, text in chosen.items():
            words = text.format(trained=trained).split()
            if words[0] != "compare":
                words += ["--compilation-cache", f"{folder}/cache"]
            training: dict[str, list[float]] = {"one": [], "all": []}

            def run(which: str, words: list[str] = words, training: Any = training) -> None:
                run = Path(folder) / str(next(number))
                one = ["--devices", "1"] if which == "one" else []
                _triglot([*words, *one, *(["--out", str(run)] if words[0] != "evaluate" else [])])
                training[which] += _seconds_per_step(run)

            thunks = {which: functools.partial(run, which) for which in training}
            seconds = harness.measure(thunks, rounds=rounds)  # the warmup fills the cache
            each = len(training["one"]) // (rounds + 1)
            steps = {which: np.array(values[each:]) for which, values in training.items()}
            alone = harness.time_ratio(steps, "one", "all") if each else "-"
            medians = [f"{np.median(values):.1f}" for values in seconds.values()]
            rows.append([name, *medians, harness.time_ratio(seconds, "one", "all"), alone])
            harness.write_json(out, {"environment": before, "rounds": rounds, "rows": rows})
    header = ["command", "s, 1", "s, all", "in all [95%]", "training [95%]"]
    print(harness.table(header, rows))


def _triglot(words: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "triglot", *words], check=True, capture_output=True)


def _seconds_per_step(run: Path) -> list[float]:
    """Read what a run, or each library of a comparison, says of its training; sweeps do not."""
    if (summary := run / "summary.json").exists():
        return [1 / json.loads(summary.read_text())["steps_per_second"]]
    if (comparison := run / "comparison.json").exists():
        libraries = json.loads(comparison.read_text())["backends"].values()
        return [1 / library["steps_per_second"] for library in libraries]
    return []


def main(
    num_devices: int = 2,
    rounds: int = 8,
    match: str = "",
    commands: bool = False,
    out: Path = Path("benchmarks/results/devices.json"),
) -> None:
    """Measure every case on one device and divided, and write a JSON file.

    Args:
      num_devices: parts of the CPU.
      rounds: pairs; each round runs every program once.
      match: a regular expression in the names of the cases or commands to measure.
      commands: measure the commands instead.
      out: the JSON file, overwritten.
    """
    if commands:
        measure_commands(rounds, match, out)
        return
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
