"""TD3's losses worked out by hand and in NumPy, and the delay of its actor."""

from dataclasses import replace
from typing import Any

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
from triglot.algorithms.td3 import TD3, TD3Config, TD3Hyperparams
from triglot.core.errors import TriglotError
from triglot.core.networks.combinators import combine, ensemble

KEY = jax.random.key(3)


def make(weight: float, **hyper: Any) -> TD3:
    parts = {"actor": deterministic_actor(weight), "critic": ensemble(critic(), 2)}
    return TD3(combine(parts), OBS, ACTIONS, TD3Config(), TD3Hyperparams(**hyper))


def test_the_critics_loss_by_hand() -> None:
    # mu' is 0 without noise, so Q' = 0.5 s' and -0.25 s', the smaller -0.125 and -1; y = 1 - 0.9 *
    # 0.125, 3 = 0.8875, 3. Q_1 = 2, -2.5 and Q_2 = 4, -5 have errors 1.1125, -5.5 and 3.1125, -8:
    # (1.23765625 + 30.25 + 9.68765625 + 64) / 4.
    agent = make(0.0, target_noise=0.0)
    given = batch(agent, [1.0, 2.0], [0.5, -0.25])
    value, _ = jax.jit(agent.critic_loss)(variables(given, "critic"), given, KEY)
    np.testing.assert_allclose(value, 26.293828125, rtol=1e-6)


def test_the_actors_loss_by_hand() -> None:
    # Of the first critic alone: mu is 0, so -mean(1, -2) = 0.5.
    agent = make(0.0)
    given = batch(agent, [1.0, 2.0], [0.5, -0.25])
    value, _ = jax.jit(agent.actor_loss)(variables(given, "actor"), given, KEY)
    np.testing.assert_allclose(value, 0.5, rtol=1e-6)


@pytest.mark.parametrize(("std", "limit"), [(0.2, 0.5), (50.0, 0.1)])
def test_the_target_is_smoothed_by_clipped_noise(std: float, limit: float) -> None:
    agent = make(0.7, target_noise=std, target_noise_clip=limit)
    given = batch(agent, [1.0, 2.0], [0.5, 0.25])
    value, _ = jax.jit(agent.critic_loss)(variables(given, "critic"), given, KEY)
    next_obs = np.asarray(SAMPLE.next_obs)
    noise = std * np.asarray(jax.random.normal(jax.random.split(KEY)[0], (2, 1)))
    action = np.clip(np.tanh(0.7 * next_obs) + np.clip(noise, -limit, limit), -1.0, 1.0)
    seen = (next_obs + 2.0 * action)[:, 0]
    target = np.array([1.0, 3.0]) + np.array([0.9, 0.0]) * np.minimum(0.5 * seen, 0.25 * seen)
    taken = np.array([2.0, -2.5])
    expected = sum(0.5 * np.mean((w * taken - target) ** 2) for w in (1.0, 2.0))
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_the_actor_and_the_targets_wait_for_the_critics() -> None:
    agent = make(0.3)
    given = batch(agent, [1.0, 2.0], [0.5, -0.25])
    other = replace(SAMPLE, reward=jnp.array([5.0, -5.0]))
    samples = jax.tree.map(lambda *rows: jnp.stack(rows), SAMPLE, other)
    after, metrics = jax.jit(agent.learn)(given.state, samples, KEY)
    steps = {part: int(own.num_gradient_steps) for part, own in after.learners.items()}
    assert steps == {"actor": 1, "critic": 2}
    online, old = after.learners["critic"].variables.params, given.state.target["critic"].params
    expected = 0.005 * online + 0.995 * old  # once
    np.testing.assert_allclose(after.target["critic"].params, expected, rtol=1e-5)
    total = metrics["critic_loss"] + metrics["actor_loss"]
    np.testing.assert_allclose(metrics["loss"], total, rtol=1e-6)


def test_the_delay_divides_the_gradient_steps() -> None:
    with pytest.raises(TriglotError, match="TD3's policy_delay must divide num_gradient_steps = 3"):
        TD3Config(num_gradient_steps=3)
