"""Every other agent: from the same weights, equal bit for bit.

test_identity.py compares the four libraries, and PPO on continuous actions. The quick tests here
compare one that stores a kernel as [in, out] with Equinox, which stores [out, in]; the slow ones
compare all.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_identity import FOUR, compare

# Learning starts with update 12; the target network changes twice in 30.
DQN: dict[str, Any] = {
    "algorithm": "dqn",
    "env": "gymnax:CartPole-v1",
    "steps_per_update": 10,
    "config": {
        "learning_starts": 120,
        "buffer_size": 200,
        "batch_size": 64,
        "target_update_period": 8,
        "hidden_sizes": [32, 16],
    },
}
EVERY_OPTION = {"prioritized": True, "n_step": 3, "double": True, "dueling": True}
TABULAR: dict[str, Any] = {
    "algorithm": "q_learning",
    "env": "gridworld:4x4",
    "steps_per_update": 64,
    "config": {"rollout_length": 64},
}
CONTINUOUS_PPO: dict[str, Any] = {
    "algorithm": "ppo",
    "env": "gymnax:Pendulum-v1",
    "steps_per_update": 128,
    "config": {"num_envs": 8, "rollout_length": 16, "hidden_sizes": [32, 16]},
}
# Learning starts with update 8.
SAC: dict[str, Any] = {
    "algorithm": "sac",
    "env": "gymnax:Pendulum-v1",
    "steps_per_update": 8,
    "config": {
        "learning_starts": 64,
        "buffer_size": 256,
        "batch_size": 64,
        "num_gradient_steps": 2,
        "hidden_sizes": [32, 16],
        "normalize_obs": True,
    },
}
TABLES = ("table", *FOUR)
slow = pytest.mark.slow


def with_config(task: dict[str, Any], **config: Any) -> dict[str, Any]:
    return {**task, "config": {**task["config"], **config}}


@pytest.mark.parametrize(
    ("backends", "task", "num_updates"),
    [
        pytest.param(("nnx", "equinox"), DQN, 30, id="dqn"),
        pytest.param(TABLES, TABULAR, 20, id="q_learning"),
        pytest.param(("haiku", "equinox"), SAC, 20, id="sac"),
        pytest.param(FOUR, DQN, 30, id="dqn-four", marks=slow),
        pytest.param(FOUR, CONTINUOUS_PPO, 300, id="ppo-continuous-300", marks=slow),
        pytest.param(
            FOUR, with_config(SAC, hidden_sizes=[256, 256]), 300, id="sac-300", marks=slow
        ),
        pytest.param(FOUR, with_config(DQN, **EVERY_OPTION), 500, id="dqn-options", marks=slow),
        pytest.param(FOUR, with_config(DQN, hidden_sizes=[120, 84]), 500, id="dqn-500", marks=slow),
        *(
            pytest.param(TABLES, with_config(TABULAR, method=method), 20, id=method, marks=slow)
            for method in ("sarsa", "expected_sarsa")
        ),
    ],
)
def test_libraries_are_equal_bit_for_bit(
    backends: tuple[str, ...], task: dict[str, Any], num_updates: int, tmp_path: Path
) -> None:
    result = compare(
        backends, tmp_path, **task, arithmetic="canonical", num_seeds=1, num_updates=num_updates
    )
    assert result["identical"], result
