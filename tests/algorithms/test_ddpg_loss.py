"""DDPG's losses worked out by hand and in NumPy, on networks that are plain functions."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.toy_actor_critics import (
    ACTIONS,
    OBS,
    SAMPLE,
    batch,
    critic,
    deterministic_actor,
    variables,
)
from triglot.algorithms.ddpg import DDPG
from triglot.core.agent import PolicyInput
from triglot.core.network import Variables
from triglot.core.networks.combinators import combine

KEY = jax.random.key(3)


def make(weight: float) -> DDPG:
    parts = {"actor": deterministic_actor(weight), "critic": critic()}
    return DDPG(combine(parts), OBS, ACTIONS)


def test_the_critics_loss_by_hand() -> None:
    # mu' is 0, so Q'(s', 0) = 0.5 s' = 0.25, 2; y = 1 + 0.9 * 0.25, 3 = 1.225, 3. Q = s + 2 a
    # = 2, -2.5. The errors 0.775 and -5.5 give (0.600625 + 30.25) / 4.
    agent = make(0.0)
    given = batch(agent, 1.0, 0.5)
    value, (metrics, _) = jax.jit(agent.critic_loss)(variables(given, "critic"), given, KEY)
    np.testing.assert_allclose(value, 7.71265625, rtol=1e-6)
    np.testing.assert_allclose(metrics["q"], -0.25, rtol=1e-6)


def test_the_actors_loss_and_gradient_by_hand() -> None:
    # mu is 0, so Q = s: -mean(1, -2) = 0.5. dQ/dw = 2 * s at w = 0: -mean(2, -4) = 1.
    agent = make(0.0)
    given = batch(agent, 1.0, 0.5)

    def loss(weight: jax.Array) -> jax.Array:
        return agent.actor_loss(Variables(params=weight, state=()), given, KEY)[0]

    value, slope = jax.jit(jax.value_and_grad(loss))(jnp.float32(0.0))
    np.testing.assert_allclose([value, slope], [0.5, 1.0], rtol=1e-6)


def test_random_data_against_numpy() -> None:
    rng = np.random.default_rng(0)
    obs, action, next_obs = (rng.normal(size=(5, 1)).astype(np.float32) for _ in range(3))
    reward, discount = rng.normal(size=5).astype(np.float32), np.full(5, 0.9, np.float32)
    discount[2] = 0.0
    sample = replace(
        SAMPLE, obs=obs, action=action, reward=reward, discount=discount, next_obs=next_obs
    )
    agent = make(0.7)
    given = batch(agent, 1.3, -0.4, jax.tree.map(jnp.asarray, sample))
    value, _ = jax.jit(agent.critic_loss)(variables(given, "critic"), given, KEY)
    next_q = -0.4 * (next_obs + 2.0 * np.tanh(0.7 * next_obs))[:, 0]
    error = 1.3 * (obs + 2.0 * action)[:, 0] - (reward + discount * next_q)
    np.testing.assert_allclose(value, 0.5 * np.mean(error**2), rtol=1e-5)
    value, _ = jax.jit(agent.actor_loss)(variables(given, "actor"), given, KEY)
    expected = -np.mean(1.3 * (obs + 2.0 * np.tanh(0.7 * obs)))
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_both_targets_follow() -> None:
    agent = make(0.3)
    given = batch(agent, 1.0, 0.5)
    after, metrics = jax.jit(agent.learn)(given.state, SAMPLE, KEY)
    for part in ("actor", "critic"):
        online, old = after.learners[part].variables.params, given.state.target[part].params
        expected = 0.001 * online + 0.999 * old
        np.testing.assert_allclose(after.target[part].params, expected, rtol=1e-5)
        assert int(after.learners[part].num_gradient_steps) == 1
    assert {"actor_loss", "critic_loss", "loss", "grad_norm"} <= metrics.keys()


def test_noise_is_added_to_explore_alone() -> None:
    agent = make(0.3)
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 2000)
    state = replace(state, replay=replace(state.replay, num_added=jnp.int32(1_000)))
    inputs = PolicyInput(obs=jnp.ones((2000, 1)), first=jnp.ones(2000, bool))
    greedy = jax.jit(agent.act, static_argnames="explore")(
        state, (), inputs, KEY, explore=False
    ).extras["unit"]
    explored = jax.jit(agent.act, static_argnames="explore")(state, (), inputs, KEY, explore=True)
    np.testing.assert_allclose(greedy, np.tanh(0.3), rtol=1e-6)
    noise = np.asarray(explored.extras["unit"] - greedy)
    assert noise.std() == pytest.approx(0.1, rel=0.1) and abs(noise.mean()) < 0.01
    assert np.abs(explored.extras["unit"]).max() <= 1.0
    scaled = -3.0 + (np.asarray(explored.extras["unit"]) + 1.0) * 4.0
    np.testing.assert_allclose(explored.action, scaled, rtol=1e-5)
