"""Two checkouts of triglot against each other: did a change of the code cost speed?

    git worktree add ../before REVISION
    taskset -c 0 python -m benchmarks.versions --before ../before

Each checkout trains in a process of its own, which compiles its programs once; then one of them
works at a time, in rounds with a random order. Each run is a whole training from its
initialization. A ratio above 1 means that this checkout is slower than the other. The settings are
those of `benchmarks.peers`.
"""

import functools
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import tyro

from . import harness
from .child import Child, serve
from .peers import ours
from .peers.row import Row
from .peers.rows import ROWS

ROOT = Path(__file__).resolve().parents[1]
# The package comes from the other checkout, the code of this module from this one.
WORKER = (
    "import sys; sys.path[0] = sys.argv[1]; import triglot; sys.path[0] = sys.argv[2]; "
    "from benchmarks.versions import train_cases; train_cases()"
)


LSTM = replace(
    ROWS["ppo-seeds"],
    env_id="MemoryChain-bsuite",
    config={"cell": "lstm", "num_envs": 16, "rollout_length": 32},
    num_seeds=5,
    total_steps=2_048,
)
TABLE = replace(
    ROWS["ppo"],
    algorithm="q_learning",
    env_id="8x8",
    suites=("gridworld",),
    config={"rollout_length": 16_384},
    hyper={},
    total_steps=1_048_576,
)
CASES: Mapping[str, Row] = {**ROWS, "lstm": LSTM, "q_learning": TABLE}


def train_cases() -> None:
    """Answer names of cases: compile at the first one, then train; reply the seconds of each."""
    jax.config.update("jax_enable_compilation_cache", False)
    programs = {}

    def answer(request: tuple[str, str, int | None]) -> float:
        name, backend, total_steps = request
        row = CASES[name]
        if name not in programs:
            jax.config.update("jax_cpu_enable_async_dispatch", row.suites[0] == "gymnax")
            keys = jax.random.split(jax.random.key(0), (1, row.num_seeds))
            env, steps = f"{row.suites[0]}:{row.env_id}", total_steps or row.total_steps
            programs[name], seconds = ours.contender(row, env, steps, backend).compile(keys)
            return seconds
        start = time.perf_counter()
        jax.block_until_ready(programs[name](0))
        return time.perf_counter() - start

    serve(answer)


def start(checkout: Path) -> Child:
    """Start a worker that imports triglot from a checkout.

    Raises:
      SystemExit: if there is no triglot.
    """
    if not (checkout / "src" / "triglot").is_dir():
        sys.exit(f"{checkout} holds no triglot: give --before the root of a checkout.")
    command = [sys.executable, "-c", WORKER, str(checkout / "src"), str(ROOT)]
    return Child(f"The worker of {checkout}", command)


def main(
    before: Path,
    rounds: int = 10,
    only: tuple[str, ...] = ("ppo", "ppo-seeds", "dqn", "sac"),
    backend: str = "linen",
    total_steps: int | None = None,
    out: Path = Path("benchmarks/results/versions.json"),
) -> None:
    """Train every case in both checkouts and write the ratios.

    Args:
      before: the root of the other checkout.
      rounds: trainings of each side.
      only: rows of `benchmarks.peers`, `lstm` and `q_learning`.
      backend: library of the networks; Q-learning has a table.
      total_steps: environment steps of each seed; None for the case's own number.
      out: the JSON file, overwritten.
    """
    if unknown := set(only) - CASES.keys():
        sys.exit(f"--only: no row {', '.join(sorted(unknown))}; choose from {', '.join(CASES)}.")
    entries = {}
    with ExitStack() as stack:
        sides = {"before": before.resolve(), "after": ROOT}
        workers = {side: stack.enter_context(start(path)) for side, path in sides.items()}
        for name in only:
            request = (name, "table" if name == "q_learning" else backend, total_steps)
            compiled = {side: worker.ask(request) for side, worker in workers.items()}
            asks = {side: functools.partial(one.ask, request) for side, one in workers.items()}
            seconds = harness.measure(asks, rounds=rounds)
            entries[name] = {
                "ratio": harness.time_ratio(seconds, "after", "before"),
                "compile_seconds": compiled,
                "seconds": seconds,
            }
            harness.write_json(out, {"rounds": rounds, "cases": entries})
            print(f"{name}: {entries[name]['ratio']}", flush=True)
    rows = [
        [
            name,
            entry["ratio"],
            *(f"{np.median(entry['seconds'][side]):.3f}" for side in sides),
            *(f"{entry['compile_seconds'][side]:.1f}" for side in sides),
        ]
        for name, entry in entries.items()
    ]
    header = ["training", "after / before [95%]", "before s", "after s", "compile before", "after"]
    print(harness.table(header, rows))
    print(f"written to {out}")


if __name__ == "__main__":
    tyro.cli(main)
