"""PPO balances brax's inverted pendulum for whole episodes, with the README's settings."""

import jax
import pytest

import triglot

pytestmark = pytest.mark.optimized


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["linen", "equinox"])
def test_ppo_solves_it(backend: str) -> None:
    env = triglot.make_env("brax:inverted_pendulum")
    agent = triglot.make_agent(
        "ppo",
        env,
        backend=backend,
        config={
            "num_envs": 64,
            "rollout_length": 128,
            "num_epochs": 4,
            "num_minibatches": 16,
            "initial_std": 0.5,
        },
        hyper={"learning_rate": "linear(3e-4, 0)", "discount": 0.997, "entropy_coef": 0.0},
    )
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=2_000_000)
    state = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent)
    episodes = triglot.evaluate(agent, env, state, jax.random.key(1), num_episodes=64)
    assert episodes.returns.mean() > 950.0  # of 1,000; Gymnasium's threshold of the same task
