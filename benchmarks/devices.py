"""One training on several devices: throughput, and what the devices exchange.

Each case trains PPO on CartPole-v1 on one device, which may use all cores, and divided among
`num_devices` parts of the same CPU. The speedup is the ratio of their steps/s; the efficiency is
the speedup over the number of devices. What is exchanged is read from the compiled program; its
time is measured apart. With `--commands`, each command runs with `--devices 1` and as it chooses,
in turns. Run it from the repository's root:

    python -m benchmarks.devices
    python -m benchmarks.devices --commands
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax.sharding import PartitionSpec

from triglot import Trainer, make_agent, make_env
from triglot.core.loop.sharding import AXIS, Sharding, make_sharding
from triglot.core.loop.trainer import init_seeds, train_seeds
from triglot.core.loop.vectorize import VectorEnvironment

from . import harness

# Instructions by which devices exchange arrays.
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "s64": 8, "u64": 8, "f64": 8}


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


@dataclass(frozen=True)
class Program:
    """A compiled training, called over and over from the same states."""

    trainer: Trainer
    compiled: Any
    states: Any

    def __call__(self) -> Any:
        # Donated, so each call gets a copy.
        states = jax.tree.map(jnp.copy, self.states)
        return self.compiled(states, np.int32(self.trainer.chunk_size))[1]


def program(case: Case, sharding: Sharding | None) -> Program:
    """Compile a case on one device, or divided."""
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
    return Program(trainer, compiled, states)


def exchanged(text: str) -> dict[str, dict[str, float]]:
    """Count what devices exchange in one update.

    Args:
      text: of the compiled program.

    Returns:
      By instruction, how often it runs in an update, and the bytes of its results in all.
    """
    bodies: dict[str, list[str]] = {}
    name, entry = "", ""
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-]+) .*\{$", line):
            name = head[2]
            bodies[name] = []
            entry = name if head[1] else entry
        elif name:
            bodies[name].append(line)
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()

    def visit(name: str, times: int) -> None:
        for line in bodies.get(name, ()):
            for kind in COLLECTIVES:
                if found := re.search(rf"= (.*?) {kind}(?:-start)?\(", line):
                    counts[kind] += times
                    totals[kind] += times * sum(_sizes(found[1]))
            trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
            # The loop over updates has no known length, and is counted once.
            inside = times * (int(trips[1]) if trips else 1)
            called = re.findall(r"(?:body|to_apply|calls|branch_computations)=\{?([^,}]+)", line)
            for each in called:
                visit(each.strip().lstrip("%"), inside)

    visit(entry, 1)
    return {kind: {"times": counts[kind], "bytes": totals[kind]} for kind in counts}


def _sizes(shapes: str) -> Iterator[int]:
    for dtype, shape in re.findall(r"(\w+)\[([\d,]*)\]", shapes):
        yield BYTES.get(dtype, 4) * int(np.prod([int(n) for n in shape.split(",") if n]))


def collective(kind: str, num_floats: int, repeats: int, sharding: Sharding) -> harness.Thunk:
    """Build `repeats` sums or gathers over all devices, of `num_floats` in each result."""

    def once(own: jax.Array, _: Any) -> tuple[jax.Array, None]:
        if kind == "all-reduce":
            return jax.lax.psum(own, AXIS) * 0.5, None
        return jax.lax.all_gather(own, AXIS, tiled=True)[: own.shape[0]] * 0.5, None

    share = num_floats if kind == "all-reduce" else -(-num_floats // sharding.num_devices)
    run = jax.shard_map(
        lambda own: jax.lax.scan(once, own, length=repeats)[0],
        mesh=sharding.mesh,
        in_specs=PartitionSpec(AXIS),
        out_specs=PartitionSpec(AXIS),
        check_vma=False,
    )
    run = jax.jit(run)
    given = jnp.ones((share * sharding.num_devices,))
    return lambda: run(given)


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
        runs, trained = Path(folder), f"{folder}/trained"
        if any("{trained}" in text for text in chosen.values()):
            _triglot([*TRAINED.split(), "--out", trained])
        for name, text in chosen.items():
            seconds: dict[str, list[float]] = {"one": [], "all": []}
            training: dict[str, list[float]] = {"one": [], "all": []}
            for number in range(-1, rounds):  # the first fills the compilation cache
                for which in seconds:
                    run = runs / f"{name.replace(', ', '-').replace(' ', '-')}-{which}-{number}"
                    words = text.format(trained=trained).split()
                    if words[0] != "compare":
                        words += ["--compilation-cache", f"{folder}/cache"]
                    words += ["--devices", "1"] if which == "one" else []
                    words += ["--out", str(run)] if words[0] != "evaluate" else []
                    start = time.perf_counter()
                    _triglot(words)
                    if number >= 0:
                        seconds[which].append(time.perf_counter() - start)
                        training[which] += _seconds_per_step(run)
            arrays = {which: np.array(values) for which, values in seconds.items()}
            steps = {which: np.array(values) for which, values in training.items()}
            ratio = harness.time_ratio(arrays, "one", "all")
            alone = harness.time_ratio(steps, "one", "all") if training["one"] else "-"
            medians = [f"{np.median(values):.1f}" for values in seconds.values()]
            rows.append([name, *medians, ratio, alone])
            harness.write_json(out, {"environment": before, "rounds": rounds, "rows": rows})
    harness.print_table(["command", "s, 1", "s, all", "in all [95%]", "training [95%]"], rows)


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
    rows: dict[str, dict[str, Any]] = {}
    for case in cases:
        sizes = {"num_seeds": case.num_seeds, "num_envs": case.num_envs}
        sharding = make_sharding(num_devices, case.shard, **sizes)
        made = program(case, sharding)
        thunks[f"{case.name}, 1"] = program(case, None)
        thunks[f"{case.name}, {num_devices}"] = made
        rows[case.name] = {"case": case, "exchanged": exchanged(made.compiled.as_text())}
        for kind, found in rows[case.name]["exchanged"].items():
            each = int(found["bytes"] / found["times"] / 4)
            if kind in ("all-reduce", "all-gather") and each:
                repeats = int(found["times"])
                thunks[f"{case.name}, {kind}"] = collective(kind, each, repeats, sharding)
    seconds = harness.measure(thunks, rounds=rounds)
    for case in cases:
        row, one, many = rows[case.name], f"{case.name}, 1", f"{case.name}, {num_devices}"
        row["speedup"] = harness.time_ratio(seconds, one, many)
        row["efficiency"] = row["speedup"].median / num_devices
        for key, name in (("one", one), ("many", many)):
            row[f"steps_per_second_{key}"] = harness.interval(case.steps / seconds[name])
        row["update_ms"] = harness.interval(seconds[many] / case.num_updates * 1e3)
        for kind, found in row["exchanged"].items():
            if f"{case.name}, {kind}" in seconds:
                found["ms"] = harness.interval(seconds[f"{case.name}, {kind}"] * 1e3)
    result = {
        "environment": before,
        "num_devices": num_devices,
        "rounds": rounds,
        "cases": rows,
        "seconds": seconds,
    }
    harness.write_json(out, result)
    report(rows)
    print(f"written to {out}")


def report(rows: dict[str, dict[str, Any]]) -> None:
    """Print the result as two tables."""
    header = ["divided", "steps/s, 1", "steps/s, divided", "speedup [95%]", "ms/update"]
    table = [
        [
            name,
            f"{row['steps_per_second_one'].median / 1e3:.0f} k",
            f"{row['steps_per_second_many'].median / 1e3:.0f} k",
            row["speedup"],
            f"{row['update_ms'].median:.1f}",
        ]
        for name, row in rows.items()
    ]
    harness.print_table(header, table)
    lines = [
        [name, kind, f"{found['times']:.0f}", f"{found['bytes'] / 1e3:.0f}", found.get("ms", "-")]
        for name, row in rows.items()
        for kind, found in row["exchanged"].items()
    ]
    if lines:
        harness.print_table(["in one update", "kind", "times", "kB", "ms [95%]"], lines)


if __name__ == "__main__":
    tyro.cli(main)
