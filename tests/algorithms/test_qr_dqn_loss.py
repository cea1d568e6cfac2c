"""QR-DQN's loss against numbers worked out by hand, and equations 9 and 10 in NumPy."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.qr_dqn import QRDQN, QRDQNConfig, QRDQNHyperparams
from triglot.backends import build
from triglot.core.errors import TriglotError
from triglot.core.families.action_values import ReplayedBatch
from triglot.core.network import Variables
from triglot.core.rl.replay import Sample
from triglot.core.specs import Box, Discrete

OBS, ACTIONS = Discrete(3), Discrete(2)
DEFAULT = QRDQNHyperparams()
# Quantiles at 0.25 and 0.75 by observation and action.
ONLINE = [[[0.0, 2.0], [3.0, 1.0]], [[9.0, 9.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]
TARGET = [[[0.0, 0.0], [0.0, 0.0]], [[1.0, 3.0], [4.0, 2.0]], [[7.0, 7.0], [7.0, 7.0]]]


def variables(quantiles: Any) -> Variables:
    rows = jnp.array(quantiles).reshape(3, -1)
    return Variables(params={"q_network": {"quantiles": rows}}, state={"q_network": ()})


def agent(**options: Any) -> QRDQN:
    config = QRDQNConfig(num_quantiles=2, batch_size=2, learning_starts=64, **options)
    return QRDQN(build("table", QRDQN.networks(OBS, ACTIONS, config)), OBS, ACTIONS, config)


def sample(**fields: Any) -> Sample:
    values = {
        "obs": jnp.array([0, 0]),
        "action": jnp.array([0, 1]),
        "reward": jnp.array([1.0, 2.0]),
        "discount": jnp.array([0.5, 0.0]),  # the second one terminated
        "next_obs": jnp.array([1, 2]),
        "next_action_mask": None,
        "slot": jnp.array([0, 1]),
        "probability": jnp.array([0.5, 0.5]),
    }
    return Sample(**values | fields)


def loss(
    given: Sample, hyper: QRDQNHyperparams = DEFAULT, **options: Any
) -> tuple[float, dict[str, jax.Array]]:
    batch = ReplayedBatch(sample=given, target=variables(TARGET), weight=jnp.ones(2), hyper=hyper)
    learn = jax.jit(agent(**options).loss)
    value, (metrics, _) = learn(variables(ONLINE), batch, jax.random.key(0))
    return float(value), metrics


# In state 1 the target network's means are 2 and 3, so the second action counts, with the targets
# 1 + 0.5 * (4, 2) = 3 and 2. The errors of 0 are 3 and 2, with the Huber losses 2.5 and 1.5; those
# of 2 are 1 and 0, with 0.5 and 0. All are weighted by tau: 0.25 * 2 + 0.75 * 0.25.
BOOTSTRAPPED = 0.25 * (2.5 + 1.5) / 2 + 0.75 * (0.5 + 0.0) / 2
# The target is 2. The error of 3 is -1, weighted by 1 - 0.25; that of 1 is 1, weighted by 0.75.
ENDED = 0.75 * 0.5 + 0.75 * 0.5


def test_the_huber_losses_are_weighted_by_the_side_of_the_error() -> None:
    value, metrics = loss(sample())
    np.testing.assert_allclose(value, (BOOTSTRAPPED + ENDED) / 2, rtol=1e-6)
    # 2.5 - 1, and 2 - 2: the means.
    np.testing.assert_allclose(metrics["td_errors"], [1.5, 0.0], atol=1e-6)
    np.testing.assert_allclose(metrics["q"], 1.5)


def test_without_hubers_loss_the_errors_are_absolute() -> None:
    value, _ = loss(sample(), huber=False)
    expected = 0.25 * (3.0 + 2.0) / 2 + 0.75 * (1.0 + 0.0) / 2, 0.75 * 1.0 + 0.75 * 1.0
    np.testing.assert_allclose(value, sum(expected) / 2, rtol=1e-6)


def test_double_evaluates_the_online_network_s_choice() -> None:
    _, metrics = loss(sample(), double=True)
    np.testing.assert_allclose(metrics["td_errors"], [1.0 + 0.5 * 2.0 - 1.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("double", [False, True])
def test_forbidden_actions_are_not_bootstrapped_on(double: bool) -> None:
    only = [False, True] if double else [True, False]
    given = sample(next_action_mask=jnp.array([only, [False, False]]))
    _, metrics = loss(given, double=double)
    mean = 3.0 if double else 2.0
    np.testing.assert_allclose(metrics["td_errors"], [1.0 + 0.5 * mean - 1.0, 0.0], atol=1e-6)


def test_against_equations_9_and_10() -> None:
    keys = jax.random.split(jax.random.key(0), 5)
    weight, reward = jax.random.uniform(keys[0], (8,)), jax.random.normal(keys[1], (8,))
    discount = jax.random.uniform(keys[2], (8,))
    given = sample(
        obs=jnp.arange(8) % 3,
        action=jnp.arange(8) % 2,
        next_obs=(jnp.arange(8) + 1) % 3,
        reward=reward,
        discount=discount,
    )
    config = QRDQNConfig(num_quantiles=5)
    made = QRDQN(build("table", QRDQN.networks(OBS, ACTIONS, config)), OBS, ACTIONS, config)
    online, target = (jax.random.normal(key, (3, 2, 5)) for key in keys[3:])
    batch = ReplayedBatch(
        sample=given,
        target=variables(target),
        weight=weight,
        hyper=QRDQNHyperparams(huber_threshold=jnp.float32(0.4)),
    )
    value, (metrics, _) = jax.jit(made.loss)(variables(online), batch, jax.random.key(0))

    theta, theta_bar = np.asarray(online, np.float64), np.asarray(target, np.float64)
    total, kappa, tau = 0.0, 0.4, (np.arange(5) + 0.5) / 5
    for b in range(8):
        own, future = theta[b % 3, b % 2], theta_bar[(b + 1) % 3]
        best = future[np.argmax(future.mean(axis=1))]
        goal = float(reward[b]) + float(discount[b]) * best
        u = goal[None] - own[:, None]
        huber = np.where(abs(u) <= kappa, u**2 / 2, kappa * (abs(u) - kappa / 2))
        losses = abs(tau[:, None] - (u < 0.0)) * huber
        total += float(weight[b]) * losses.mean(axis=1).sum() / 8
        np.testing.assert_allclose(metrics["td_errors"][b], u.mean(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(value, total, rtol=1e-5)


def test_the_values_are_the_means() -> None:
    rows = agent().q_values(variables(TARGET), jnp.array([1]), QRDQNHyperparams())
    np.testing.assert_allclose(rows, [[2.0, 3.0]])


def test_continuous_actions_and_other_heads_are_refused() -> None:
    with pytest.raises(TriglotError, match="QR-DQN supports discrete actions"):
        QRDQN.networks(OBS, Box((2,), low=-1.0, high=1.0))
    made = agent()
    with pytest.raises(TriglotError, match=r"needs quantiles \[B, 2, 51\]; .* \[B, 2, 2\]"):
        QRDQN(made.network, OBS, ACTIONS)
    with pytest.raises(TriglotError, match="huber_threshold must be finite and above 0"):
        replace(made, hyper=QRDQNHyperparams(huber_threshold=0.0))
