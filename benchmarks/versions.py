"""Two checkouts of triglot against each other: did a change of the code cost speed?

    git worktree add ../before REVISION
    taskset -c 0 python -m benchmarks.versions --before ../before

Each checkout trains in a process of its own, which compiles its programs once; then one of them
works at a time, in pairs whose order alternates. A ratio above 1 means that this checkout is slower
than the other. The settings are those of `benchmarks.seams` and `benchmarks.dqn`.
"""

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from tqdm import tqdm

from . import harness
from .child import Child

ROOT = Path(__file__).resolve().parents[1]
# It runs in either checkout, so it uses only names that both have.
WORKER = """
import json, os, sys, time

replies = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
import jax
import numpy as np
import triglot

jax.config.update("jax_enable_compilation_cache", False)
trainers = sys.modules[triglot.Trainer.__module__]
divide_seeds = getattr(sys.modules.get("triglot.core.trainers"), "divide_seeds", None)
if divide_seeds is not None:
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def prepare_seeds(trainer, num_seeds, warmups):
    states = trainers.init_seeds(trainer, jax.random.split(jax.random.key(0), num_seeds))
    if divide_seeds is not None:
        trainer = divide_seeds(trainer, num_seeds, jax.device_count())
    if getattr(trainer, "sharding", None) is not None:
        states = trainer.sharding.place(states)

    def run(states):
        return trainers.train_seeds(trainer, jax.tree.map(jax.numpy.copy, states), count)

    count = np.int32(trainer.chunk_size)
    for _ in range(warmups):
        states, _ = run(states)
    return run, jax.block_until_ready(states)


vectorized = sys.modules[triglot.Trainer.__module__].VectorEnvironment
programs = {}
for line in sys.stdin:
    request = json.loads(line)
    name = request["name"]
    if name not in programs:
        env = triglot.make_env(request["env"])
        agent = triglot.make_agent(
            request["algorithm"], env, backend=request["backend"], config=request["config"]
        )
        trainer = triglot.Trainer(
            agent, vectorized(env, agent.num_envs), chunk_size=request["num_updates"]
        )
        if "num_seeds" in request:
            programs[name] = prepare_seeds(trainer, request["num_seeds"], request["warmups"])
        else:
            run = jax.jit(trainer.train_chunk)
            state = jax.jit(trainer.init)(jax.random.key(0))
            for _ in range(request["warmups"]):
                state, _ = run(state)
            programs[name] = (run, jax.block_until_ready(state))
    run, state = programs[name]
    start = time.perf_counter()
    jax.block_until_ready(run(state))
    print(json.dumps(time.perf_counter() - start), file=replies, flush=True)
"""
PPO = {"algorithm": "ppo", "env": "gymnax:CartPole-v1", "config": {}, "num_updates": 256}
PROGRAMS: dict[str, dict[str, Any]] = {
    **{
        f"ppo {backend}": {**PPO, "backend": backend, "warmups": 1}
        for backend in ("haiku", "linen", "nnx", "equinox")
    },
    "dqn haiku": {
        "algorithm": "dqn",
        "env": "gymnax:CartPole-v1",
        "backend": "haiku",
        "config": {},
        "num_updates": 2000,
        "warmups": 1,  # fills the replay
    },
    "q_learning table": {
        "algorithm": "q_learning",
        "env": "gridworld:8x8",
        "backend": "table",
        "config": {"rollout_length": 16384},
        "num_updates": 64,
        "warmups": 1,
    },
    **{
        f"ppo {backend} lstm, 5 seeds": {
            "algorithm": "ppo",
            "env": "gymnax:MemoryChain-bsuite",
            "backend": backend,
            "config": {"cell": "lstm", "num_envs": 16, "rollout_length": 32},
            "num_updates": 4,
            "num_seeds": 5,
            "warmups": 1,
        }
        for backend in ("haiku", "linen", "nnx", "equinox")
    },
    "ppo equinox larger maze, 5 seeds": {
        "algorithm": "ppo",
        "env": "jumanji:Maze-v0",
        "backend": "equinox",
        "config": {
            "channels": [32],
            "kernel_size": 3,
            "hidden_sizes": [256],
            "shared_torso": True,
            "num_envs": 64,
            "rollout_length": 64,
            "num_epochs": 1,
            "num_minibatches": 32,
        },
        "num_updates": 1,
        "num_seeds": 5,
        "warmups": 0,
    },
}


def start(checkout: Path) -> Child:
    """Start a worker that imports triglot from a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", WORKER]
    return Child(f"the worker of {checkout}", command, cwd=checkout, env=environment)


def ask(worker: Child, name: str) -> float:
    """Run a program once in a worker, and return its seconds."""
    return worker.ask(json.dumps({"name": name, **PROGRAMS[name]}))


def main(
    before: Path,
    rounds: int = 20,
    only: tuple[str, ...] = (),
    out: Path = Path("benchmarks/results/versions.json"),
) -> None:
    """Time every program in both checkouts and write the ratios.

    Args:
      before: the other checkout.
      rounds: pairs.
      only: names of programs; all by default.
      out: the JSON file, overwritten.
    """
    checkouts = {"before": before.resolve(), "after": ROOT}
    names = only or tuple(PROGRAMS)
    ratios: dict[str, harness.Interval] = {}
    seconds: dict[str, dict[str, np.ndarray]] = {}
    with ExitStack() as stack:
        workers = {side: stack.enter_context(start(path)) for side, path in checkouts.items()}
        for name in names:
            for worker in workers.values():
                ask(worker, name)  # compiles
            times: dict[str, list[float]] = {side: [] for side in workers}
            for turn in tqdm(range(rounds), desc=name, unit="pair"):
                for side in sorted(workers, reverse=bool(turn % 2)):
                    times[side].append(ask(workers[side], name))
            seconds[name] = {side: np.array(values) for side, values in times.items()}
            ratios[name] = harness.time_ratio(seconds[name], "after", "before")
    harness.write_json(out, {"rounds": rounds, "ratios": ratios, "seconds": seconds})
    rows = [
        [name, ratio, f"{np.median(seconds[name]['after']):.3f}"] for name, ratio in ratios.items()
    ]
    harness.print_table(["program", "after / before [95%]", "after s"], rows)
    print(f"written to {out}")


if __name__ == "__main__":
    tyro.cli(main)
