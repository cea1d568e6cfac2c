"""PPO finds the known values and actions of every probe environment, on every library."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot import make_agent
from triglot.algorithms.ppo import PPO, PPOConfig, PPOHyperparams
from triglot.backends import build
from triglot.core.agent import Agent, PolicyInput
from triglot.core.networks.heads import merge_heads
from triglot.core.rl.schedules import schedule
from triglot.core.specs import zeros
from triglot.envs import probes
from triglot.runs.training import train

BACKENDS = ("haiku", "linen", "nnx", "equinox")
DISCOUNT = 0.5
CONFIG = PPOConfig(
    num_envs=8,
    rollout_length=16,
    num_minibatches=2,
    hidden_sizes=(16,),
    clip_value=False,
)
HYPER = PPOHyperparams(
    learning_rate=schedule("linear(1e-2, 0)"),  # pyright: ignore
    discount=DISCOUNT,
    entropy_coef=0.0,
)


# Every probe on one library, and every library on the most informative probe.
CASES = [
    pytest.param(
        probe, backend, marks=() if backend == "haiku" or probe == "two-step" else pytest.mark.slow
    )
    for probe in (*probes.names("discrete"), *probes.names("multi"))
    for backend in BACKENDS
]


@pytest.mark.covering(28)
@pytest.mark.parametrize(("probe", "backend"), CASES)
def test_ppo_solves_the_probe(probe: str, backend: str) -> None:
    env = probes.make(probe)
    network = build(backend, PPO.networks(env.obs_spec, env.action_spec, CONFIG))
    agent = PPO(network, env.obs_spec, env.action_spec, CONFIG, HYPER)
    total_steps = 120 * CONFIG.num_envs * CONFIG.rollout_length
    result = train(agent, env, key=jax.random.key(0), total_steps=total_steps)
    state = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent)

    expected = env.expected(DISCOUNT)
    obs = jnp.asarray([case.obs for case in expected], jnp.float32)
    outputs, _ = network.apply(state.learner.variables, obs)
    values = np.asarray(merge_heads(outputs)["value"])
    np.testing.assert_allclose(values, [case.value for case in expected], atol=0.1)

    inputs = PolicyInput(obs=obs, first=jnp.ones(len(expected), bool))
    output = jax.jit(agent.act, static_argnames="explore")(
        state, (), inputs, jax.random.key(1), explore=False
    )
    for case, action in zip(expected, np.asarray(output.action), strict=True):
        assert case.action is None or np.array_equal(case.action, action)


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend",
    ["linen", *(pytest.param(b, marks=pytest.mark.slow) for b in ("haiku", "nnx", "equinox"))],
)
def test_ppo_reaches_a_continuous_target(backend: str) -> None:
    env = probes.make("reach")
    config = replace(CONFIG, normalize_obs=False, scale_rewards=False)
    agent = make_agent("ppo", env, backend=backend, config=config, hyper=HYPER)
    result = train(agent, env, key=jax.random.key(0), total_steps=200 * 128)
    state = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent)
    assert_reached(agent, state, env)


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend",
    ["linen", *(pytest.param(b, marks=pytest.mark.slow) for b in ("haiku", "nnx", "equinox"))],
)
def test_sac_reaches_a_continuous_target(backend: str) -> None:
    env = probes.make("reach")
    config = {"hidden_sizes": (16,), "batch_size": 64, "learning_starts": 256, "buffer_size": 4096}
    names = ("learning_rate", "critic_learning_rate", "temperature_learning_rate")
    rates = dict.fromkeys(names, 1e-2)
    agent = make_agent("sac", env, backend=backend, config=config, hyper=rates)
    result = train(agent, env, key=jax.random.key(0), total_steps=3_000)
    state = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent)
    assert_reached(agent, state, env)


@pytest.mark.covering(4)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_continuous_policy_starts_at_its_initial_std(backend: str) -> None:
    env = probes.make("reach")
    agent = make_agent("ppo", env, backend=backend, config={"initial_std": 0.25})
    inputs = PolicyInput(obs=zeros(env.obs_spec, 3), first=jnp.ones(3, bool))
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 3)
    output = jax.jit(agent.act, static_argnames="explore")(
        state, (), inputs, jax.random.key(1), explore=True
    )
    np.testing.assert_allclose(output.extras["log_std"], np.log(0.25), rtol=1e-6)


def assert_reached(agent: Agent, state: Any, env: probes.Probe) -> None:
    """Check the greedy actions; the tolerance is wide because a tanh never reaches a bound."""
    expected = env.expected(DISCOUNT)
    inputs = PolicyInput(
        obs=jnp.asarray([case.obs for case in expected], jnp.float32),
        first=jnp.ones(len(expected), bool),
    )
    output = jax.jit(agent.act, static_argnames="explore")(
        state, (), inputs, jax.random.key(1), explore=False
    )
    wanted = np.array([[case.action] for case in expected], np.float32)
    np.testing.assert_allclose(output.action, wanted, atol=0.25)
