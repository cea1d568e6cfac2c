"""SAC with discrete actions: its losses worked out by hand, masked actions, the target entropy."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.toy_actor_critics import (
    DISCRETE,
    OBS,
    TWO_ACTIONS,
    batch,
    discrete_actor,
    discrete_critic,
    variables,
)
from triglot.algorithms.sac import SAC, SACConfig, SACHyperparams
from triglot.core.agent import PolicyInput
from triglot.core.networks.combinators import combine, ensemble, scalar

KEY, LOG_2 = jax.random.key(3), float(np.log(2.0))
MASK = jnp.array([[True, False], [True, True]])


def make(weight: float, **hyper: Any) -> SAC:
    parts = {
        "actor": discrete_actor(weight),
        "critic": ensemble(discrete_critic(), 2),
        "temperature": scalar(float(np.log(0.5)), "log"),
    }
    return SAC(combine(parts), OBS, TWO_ACTIONS, SACConfig(), SACHyperparams(**hyper))


def test_the_critics_loss_by_hand() -> None:
    # A uniform policy of entropy log 2. Q' of the two actions is 0.4 s', 0.8 s' and 0.2 s', 0.4 s':
    # the smaller ones average to 0.3 s' = 0.15, 1.2. y = 1 + 0.9 (0.15 + 0.5 log 2), 3. Q of the
    # actions 1, 0 is 2, -2 and 4, -4.
    agent = make(0.0)
    given = batch(agent, [1.0, 2.0], [0.4, 0.2], DISCRETE)
    value, _ = jax.jit(agent.critic_loss)(variables(given, "critic"), given, KEY)
    target = np.array([1.0 + 0.9 * (0.15 + 0.5 * LOG_2), 3.0])
    expected = sum(0.5 * np.mean((w * np.array([2.0, -2.0]) - target) ** 2) for w in (1.0, 2.0))
    np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_the_actors_loss_by_hand() -> None:
    # -0.5 log 2 - E[min_i Q_i]: of s = 1 the smaller ones are 1, 2; of s = -2 they are -4, -8.
    agent = make(0.0)
    given = batch(agent, [1.0, 2.0], [0.4, 0.2], DISCRETE)
    value, (metrics, _) = jax.jit(agent.actor_loss)(variables(given, "actor"), given, KEY)
    np.testing.assert_allclose(value, -0.5 * LOG_2 - (1.5 - 6.0) / 2.0, rtol=1e-6)
    np.testing.assert_allclose(metrics["entropy"], LOG_2, rtol=1e-6)


@pytest.mark.parametrize(
    ("mask", "given_entropy", "wanted"),
    [
        (None, None, 0.98 * LOG_2),
        (MASK, None, 0.98 * LOG_2 / 2.0),  # the first state has one allowed action: log 1 = 0
        (None, 0.3, 0.3),
    ],
)
def test_the_temperatures_loss_by_hand(
    mask: jax.Array | None, given_entropy: float | None, wanted: float
) -> None:
    agent = make(0.0, target_entropy=given_entropy)
    given = batch(agent, [1.0, 2.0], [0.4, 0.2], replace(DISCRETE, action_mask=mask))
    value, _ = jax.jit(agent.temperature_loss)(variables(given, "temperature"), given, KEY)
    entropy = LOG_2 if mask is None else LOG_2 / 2.0
    np.testing.assert_allclose(value, -0.5 * (wanted - entropy), rtol=1e-4, atol=1e-7)


def test_random_data_against_numpy() -> None:
    agent = make(0.7)
    given = batch(agent, [1.0, -0.5], [0.4, 0.2], replace(DISCRETE, action_mask=MASK))
    value, _ = jax.jit(agent.actor_loss)(variables(given, "actor"), given, KEY)
    total = 0.0
    for obs, allowed in zip([1.0, -2.0], np.asarray(MASK), strict=True):
        weight = np.exp([0.0, 0.7 * obs]) * allowed
        prob = weight / weight.sum()
        q = np.minimum(np.array([1.0, 2.0]) * obs, np.array([-0.5, -1.0]) * obs)
        log_prob = np.log(prob[prob > 0.0])
        total += 0.5 * np.sum(prob[prob > 0.0] * log_prob) - np.sum(prob * q)
    np.testing.assert_allclose(value, total / 2.0, rtol=1e-5)


@pytest.mark.slow
def test_masked_actions_give_finite_steps() -> None:
    agent = make(0.7)
    sample = replace(DISCRETE, action_mask=MASK, next_action_mask=~MASK | MASK[::-1])
    given = batch(agent, [1.0, -0.5], [0.4, 0.2], sample)
    hot = replace(variables(given, "temperature"), params=jnp.float32(3.0))  # a temperature of 20
    temperature = replace(given.state.learners["temperature"], variables=hot)
    learners = {**given.state.learners, "temperature": temperature}
    after, metrics = jax.jit(agent.learn)(replace(given.state, learners=learners), sample, KEY)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.learners))
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("num_added", [0, 10_000])
def test_a_masked_action_is_never_taken(num_added: int) -> None:
    agent = make(0.0)
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 200)
    state = replace(state, replay=replace(state.replay, num_added=jnp.int32(num_added)))
    mask = jnp.tile(MASK, (100, 1))
    inputs = PolicyInput(obs=jnp.ones((200, 1)), first=jnp.ones(200, bool), action_mask=mask)
    output = jax.jit(agent.act, static_argnames="explore")(state, (), inputs, KEY, explore=True)
    action = np.asarray(output.action).reshape(100, 2)
    assert (action[:, 0] == 0).all() and 0 < action[:, 1].mean() < 1
    assert output.action.dtype == jnp.int32
