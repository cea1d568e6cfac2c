"""DQN and the tabular agents pass the public checker."""

from typing import Any

import pytest

from triglot import check_agent, make_agent, make_env

SMALL = {
    "num_envs": 4,
    "rollout_length": 4,
    "batch_size": 16,
    "buffer_size": 256,
    "learning_starts": 64,
    "hidden_sizes": (8,),
}
OPTIONS = {"prioritized": True, "n_step": 3, "double": True, "dueling": True}
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("algorithm", "env", "backend", "config"),
    [
        pytest.param(
            "dqn",
            "probe:truncating",
            "linen",
            {**SMALL, **OPTIONS},
            id="dqn-options",
            marks=pytest.mark.slow,
        ),
        pytest.param("dqn", "gymnax:CartPole-v1", "haiku", SMALL, id="dqn", marks=slow),
        *(
            pytest.param(
                "q_learning",
                "gridworld:4x4",
                "table",
                {"method": method},
                id=method,
                marks=() if method == "q_learning" else slow,
            )
            for method in ("q_learning", "sarsa", "expected_sarsa")
        ),
        *(
            pytest.param("q_learning", "gridworld:4x4", backend, {"num_envs": 3}, marks=slow)
            for backend in ("haiku", "linen", "nnx", "equinox")
        ),
    ],
)
def test_the_agent_passes(algorithm: str, env: str, backend: str, config: dict[str, Any]) -> None:
    made = make_env(env)
    report = check_agent(make_agent(algorithm, made, backend=backend, config=config), made)
    assert report.passed, str(report)
