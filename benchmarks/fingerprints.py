"""Hash the results of short trainings, to show that a change of the code changed no number.

    python -m benchmarks.fingerprints --out before.json
    python -m benchmarks.fingerprints --out after.json --compare before.json

Every algorithm is trained for a few updates on two seeds, on each library that fits. The file holds
the SHA-256 of each parameter array and of each metric. Hashes are equal on one machine, with one
version of each library and one number of CPU cores.
"""

import hashlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
import tyro
from tqdm import tqdm

import triglot
from triglot.core.learner import LearnerState
from triglot.core.records import Values

from .cases import LIBRARIES

NUM_UPDATES, NUM_SEEDS = 6, 2


@dataclass(frozen=True)
class Case:
    """One training: an algorithm in an environment, with options that override its defaults."""

    algorithm: str
    env: str
    config: Values = field(default_factory=dict)
    hyper: Values = field(default_factory=dict)
    backends: tuple[str, ...] = LIBRARIES
    arithmetics: tuple[str, ...] = ("canonical",)


CARTPOLE, MEMORY, GRID = "gymnax:CartPole-v1", "gymnax:MemoryChain-bsuite", "gridworld:4x4"
SMALL = {"num_envs": 4, "rollout_length": 16, "hidden_sizes": (16, 16)}
CONVOLUTION = {"channels": (3,), "kernel_size": 3}
PPO_SIZES = {**SMALL, "num_epochs": 4, "num_minibatches": 4}
PPO_RATES = {"learning_rate": "linear(2.5e-4, 0)", "entropy_coef": 0.01}
REPLAY = {
    **SMALL,
    "rollout_length": 8,
    "batch_size": 16,
    "buffer_size": 256,
    "learning_starts": 64,
}
ALL_OF_DQN = {
    **REPLAY,
    "double": True,
    "dueling": True,
    "prioritized": True,
    "n_step": 3,
    "num_gradient_steps": 2,
}
EVERY_2 = {"target_update_period": 2.0}
TABULAR = {"rollout_length": 32}
CASES = {
    "ppo mlp": Case("ppo", CARTPOLE, SMALL, arithmetics=("native", "canonical")),
    "ppo shared torso": Case("ppo", CARTPOLE, {**SMALL, "shared_torso": True}, backends=("linen",)),
    "ppo cnn": Case("ppo", "jumanji:Maze-v0,num_rows=5,num_cols=5", {**SMALL, **CONVOLUTION}),
    "ppo lstm": Case("ppo", MEMORY, {**SMALL, "cell": "lstm", "cell_size": 8}),
    "ppo gru": Case(
        "ppo", MEMORY, {**SMALL, "cell": "gru", "cell_size": 8}, backends=("haiku", "linen")
    ),
    "ppo continuous": Case(
        "ppo", "gymnax:Pendulum-v1", {**PPO_SIZES, "initial_std": 0.5}, PPO_RATES
    ),
    "dqn": Case("dqn", CARTPOLE, REPLAY, backends=("linen",)),
    "dqn all options": Case(
        "dqn", CARTPOLE, ALL_OF_DQN, {**EVERY_2, "tau": 0.1, "epsilon": "linear(1, 0.05, 128)"}
    ),
    "dqn munchausen": Case("dqn", CARTPOLE, {**REPLAY, "munchausen": True}, backends=("linen",)),
    "c51 all options": Case("c51", CARTPOLE, {**ALL_OF_DQN, "num_atoms": 5}, EVERY_2),
    "qr_dqn": Case("qr_dqn", CARTPOLE, {**REPLAY, "num_quantiles": 5}, backends=("haiku",)),
    "iqn": Case("iqn", CARTPOLE, {**REPLAY, "num_cosines": 8}),
    "rainbow": Case("rainbow", CARTPOLE, {**REPLAY, "num_atoms": 5}),
    "sac": Case("sac", "gymnax:Pendulum-v1", {**REPLAY, "normalize_obs": True}),
    "q_learning": Case("q_learning", GRID, TABULAR, backends=("table", *LIBRARIES)),
    **{
        method: Case("q_learning", GRID, {**TABULAR, "method": method}, backends=("table",))
        for method in ("sarsa", "expected_sarsa")
    },
    "ppo host": Case("ppo", "gymnasium:CartPole-v1", SMALL, backends=("linen", "equinox")),
    "dqn host": Case("dqn", "gymnasium:CartPole-v1", REPLAY, backends=("haiku",)),
}


def hashes(case: Case, backend: str, arithmetic: str) -> dict[str, str]:
    """Train a case and hash its parameter arrays and metrics."""
    env = triglot.make_env(case.env)
    agent = triglot.make_agent(
        case.algorithm,
        env,
        backend=backend,
        arithmetic=arithmetic,
        config=case.config,
        hyper=case.hyper,
    )
    result = triglot.train(
        agent,
        env,
        key=jax.random.key(7),
        total_steps=NUM_UPDATES * agent.num_envs * agent.rollout_length,
        num_seeds=NUM_SEEDS,
    )
    found = {f"metric {name}": digest(value) for name, value in result.metrics.items()}
    nodes = jax.tree.leaves(
        result.runner_state.agent, is_leaf=lambda node: isinstance(node, LearnerState)
    )
    learners = [node.variables.params for node in nodes if isinstance(node, LearnerState)]
    for index, params in enumerate(learners):
        for path, leaf in jax.tree_util.tree_leaves_with_path(params):
            found[f"params {index} {jax.tree_util.keystr(path)}"] = digest(np.asarray(leaf))
    return dict(sorted(found.items()))


def digest(array: np.ndarray) -> str:
    """Hash an array's dtype, shape and bytes."""
    head = f"{array.dtype.str} {array.shape}\n".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()


def main(
    out: Path = Path("benchmarks/results/fingerprints.json"),
    compare: Path | None = None,
    only: tuple[str, ...] = (),
) -> None:
    """Train every case and write its hashes; with `--compare`, exit with 1 if one differs.

    Args:
      out: the JSON file, overwritten.
      compare: an earlier such file.
      only: names of cases; all by default.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # before the first computation
    todo = [
        (name, backend, arithmetic)
        for name, case in CASES.items()
        if not only or name in only
        for backend in case.backends
        for arithmetic in case.arithmetics
    ]
    found = {}
    for name, backend, arithmetic in tqdm(todo, desc="trainings", dynamic_ncols=True):
        found[f"{name}, {backend} {arithmetic}"] = hashes(CASES[name], backend, arithmetic)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    if compare is None:
        return
    before, num_differing = json.loads(compare.read_text()), 0
    for name, now in found.items():
        if name not in before:
            print(f"{name}: not in {compare}")
            continue
        old = before[name]
        what = [array for array in sorted(old | now) if old.get(array) != now.get(array)]
        if what:
            num_differing += 1
            print(f"{name}: {len(what)} of {len(now)} differ: {', '.join(what[:4])}")
    print(f"{len(found) - num_differing} of {len(found)} trainings are equal, bit for bit")
    sys.exit(num_differing > 0)


if __name__ == "__main__":
    tyro.cli(main)
