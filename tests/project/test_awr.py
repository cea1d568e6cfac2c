"""The example of an algorithm outside of the package: AWR, by hand, checked and trained."""

import ast
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot.core.agent import Trajectory

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # examples are not installed

from examples.awr import AWR  # noqa: E402

SMALL = {
    "num_envs": 2,
    "rollout_length": 8,
    "sequence_length": 4,
    "batch_size": 4,
    "num_gradient_steps": 2,
    "buffer_size": 64,
    "learning_starts": 16,
}


def make(env_name: str, backend: str = "linen", **options: Any) -> tuple[Any, Any]:
    env = triglot.make_env(env_name)
    config = {**SMALL, **options.pop("config", {})}
    return triglot.make_agent(AWR, env, backend=backend, config=config, **options), env


def test_the_example_imports_two_namespaces() -> None:
    source = (ROOT / "examples" / "awr.py").read_text()
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    (ours,) = (node for node in imports if (node.module or "").startswith("triglot"))
    assert sorted(alias.name for alias in ours.names) == ["nn", "rl"]


def test_the_loss_weights_the_actions() -> None:
    agent, _ = make("gymnax:CartPole-v1")
    variables = agent.network.init(jax.random.key(0))
    obs = jnp.array([[0.1, 0.2, 0.3, 0.4], [0.0, 1.0, 0.0, -1.0]])
    steps = Trajectory(
        obs=obs,
        first=jnp.zeros(2, bool),
        action_mask=jnp.array([[True, True], [False, True]]),
        action=jnp.array([0, 1]),
        reward=jnp.zeros(2),
        terminated=jnp.zeros(2, bool),
        truncated=jnp.zeros(2, bool),
        next_obs=obs,
        next_action_mask=None,
        extras={},
        carry=(),
    )
    weight, target = jnp.array([3.0, 20.0]), jnp.array([2.0, -1.0])
    total, (metrics, _) = agent.loss(variables, (steps, weight, target), jax.random.key(0))
    outputs, _ = agent.network.apply(variables, obs)
    logits, value = np.asarray(outputs["actor"]["logits"]), np.asarray(outputs["critic"]["value"])
    # The second sample has one allowed action, of log-probability 0.
    log_prob = logits[0, 0] - np.log(np.exp(logits[0]).sum())
    np.testing.assert_allclose(metrics["actor_loss"], -3.0 * log_prob / 2, rtol=1e-5)
    critic = 0.5 * ((value - np.asarray(target)) ** 2).mean()
    np.testing.assert_allclose(total, -3.0 * log_prob / 2 + critic, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("env_name", ["gymnax:CartPole-v1", "gymnax:Pendulum-v1"])
def test_it_trains(env_name: str) -> None:
    agent, env = make(env_name)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=64)
    assert np.isfinite(result.metrics["loss"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("env_name", ["gymnax:CartPole-v1", "gymnax:Pendulum-v1"])
def test_it_passes_the_checks(env_name: str) -> None:
    agent, env = make(env_name)
    report = triglot.check_agent(agent, env)
    assert report.passed, str(report)


@pytest.mark.slow
def test_it_balances_the_pole() -> None:
    env = triglot.make_env("gymnax:CartPole-v1")
    agent = triglot.make_agent(AWR, env)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=200_000, num_seeds=2)
    play = jax.vmap(lambda state, key: triglot.evaluate(agent, env, state, key).returns)
    returns = play(result.runner_state.agent, jax.random.split(jax.random.key(1), 2))
    assert returns.mean() > 400.0
