"""What a sweep costs: ten learning rates with ten seeds each, and 100 seeds of one setting.

Both are whole commands in processes of their own, without a compilation cache: import, compilation,
training, evaluation and the report. Both train PPO on CartPole-v1. The sweep's report takes the
same time however long the training is, so the ratio falls towards that of the compiled programs,
which is measured beside. Run it from the repository's root:

    python -m benchmarks.sweep
"""

import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from triglot.core.loop.trainer import init_seeds, train_seeds
from triglot.sweep.options import SweepOptions
from triglot.sweep.plan import make_plan

from . import harness

BASELINE, SWEEP = "100 seeds", "10 rates x 10 seeds"
RATES = np.geomspace(1e-4, 1e-2, 10).tolist()
OVER = "learning_rate=" + ",".join(f"{rate:.4g}" for rate in RATES)
TASK = ("ppo", "gymnax:CartPole-v1")


def commands(total_steps: int, folder: Path) -> dict[str, harness.Thunk]:
    """Build a function for each command, which runs it once in a new folder."""
    number = count()
    common = ["--total-steps", str(total_steps), "--no-compilation-cache"]
    words = {
        BASELINE: ["train", *TASK, "--num-seeds", "100", *common],
        SWEEP: ["sweep", *TASK, "--over", OVER, "--num-seeds", "10", *common],
    }

    def thunk(name: str) -> harness.Thunk:
        def run() -> None:
            out = str(folder / str(next(number)))
            subprocess.run(
                [sys.executable, "-m", "triglot", *words[name], "--out", out],
                check=True,
                capture_output=True,
            )

        return run

    return {name: thunk(name) for name in words}


def programs(num_updates: int) -> dict[str, harness.Thunk]:
    """Build a function for each compiled program, which runs it once."""
    algorithm, env = TASK
    plan = make_plan(SweepOptions(algorithm=algorithm, env=env, over=(OVER,), num_seeds=10))
    (group,) = plan.groups
    pairs = [(setting, seed) for setting in group.settings for seed in range(10)]
    swept = group.hyper([setting for setting, _ in pairs])
    keys = {
        BASELINE: (jax.random.split(jax.random.key(0), 100), group.hypers[0]),
        SWEEP: (group.keys([seed for _, seed in pairs]), swept),
    }

    def thunk(name: str) -> harness.Thunk:
        state = init_seeds(group.trainer, *keys[name])

        def run() -> Any:
            copy = jax.tree.map(lambda leaf: leaf.copy(), state)  # the program takes its states
            return train_seeds(group.trainer, copy, np.int32(num_updates))

        return run

    return {name: thunk(name) for name in keys}


def main(
    total_steps: int = 50_000,
    rounds: int = 3,
    program_rounds: int = 10,
    num_updates: int = 8,
    out: Path = Path("benchmarks/results/sweep.json"),
) -> None:
    """Measure both and write the result.

    Args:
      total_steps: environment steps of each seed in a command.
      rounds: of the commands; each runs both once.
      program_rounds: of the compiled programs.
      num_updates: updates of each seed in one run of a compiled program.
      out: the JSON file, overwritten.
    """
    before = harness.environment()
    with tempfile.TemporaryDirectory() as folder:
        whole = harness.measure(commands(total_steps, Path(folder)), rounds=rounds, warmups=0)
    compiled = harness.measure(programs(num_updates), rounds=program_rounds)
    result: dict[str, Any] = {"environment": before, "total_steps": total_steps}
    for what, seconds in (("commands", whole), ("programs", compiled)):
        result[what] = {
            "ratio": harness.time_ratio(seconds, SWEEP, BASELINE),
            "seconds": {name: harness.interval(each) for name, each in seconds.items()},
            "rounds": {name: each.tolist() for name, each in seconds.items()},
        }
    harness.write_json(out, result)
    harness.print_table(
        ["", BASELINE, SWEEP, "ratio"],
        [
            [what, *(f"{result[what]['seconds'][n].median:.2f} s" for n in (BASELINE, SWEEP)),
             result[what]["ratio"]]
            for what in ("commands", "programs")
        ],
    )  # fmt: skip
    print(f"written to {out}")


if __name__ == "__main__":
    tyro.cli(main)
