"""REDQ's losses worked out in NumPy, its random subsets, and its steps of the critics."""

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
    gaussian_actor,
    variables,
)
from triglot.algorithms.redq import REDQ, REDQConfig, REDQHyperparams
from triglot.core.errors import TriglotError
from triglot.core.networks.combinators import combine, ensemble, scalar

KEY, TEMPERATURE = jax.random.key(3), 0.5
CRITICS, TARGETS = [1.0, -0.5, 0.25], [0.7, 0.2, -0.4]


def make(num_target_critics: int = 2, **hyper: Any) -> REDQ:
    parts = {
        "actor": gaussian_actor(0.3, -0.5),
        "critic": ensemble(critic(), 3),
        "temperature": scalar(float(np.log(TEMPERATURE)), "log"),
    }
    config = REDQConfig(num_critics=3, num_target_critics=num_target_critics, policy_delay=4)
    return REDQ(combine(parts), OBS, ACTIONS, config, REDQHyperparams(**hyper))


def drawn(mean: np.ndarray, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Draw as the policy does, and give tanh(raw) with its log-density, by the textbook."""
    std = np.exp(-0.5)
    noise = np.asarray(jax.random.normal(key, mean.shape))
    action = np.tanh(mean + std * noise)
    gaussian = -0.5 * noise**2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)
    return action, (gaussian - np.log(1.0 - action**2))[:, 0]


def expected_critic_loss(key: jax.Array, members: list[int]) -> float:
    next_obs = np.asarray(SAMPLE.next_obs)
    action, log_prob = drawn(0.3 * next_obs, jax.random.split(key, 3)[0])
    seen = (next_obs + 2.0 * action)[:, 0]
    next_q = np.min([TARGETS[i] * seen for i in members], axis=0)
    target = np.array([1.0, 3.0]) + np.array([0.9, 0.0]) * (next_q - TEMPERATURE * log_prob)
    return sum(0.5 * np.mean((w * np.array([2.0, -2.5]) - target) ** 2) for w in CRITICS)


def test_all_critics_learn_from_the_smallest_of_a_random_subset() -> None:
    agent = make()
    given = batch(agent, CRITICS, TARGETS)
    subsets = set()
    for key in jax.random.split(KEY, 12):
        value, _ = jax.jit(agent.critic_loss)(variables(given, "critic"), given, key)
        fitting = {
            members
            for members in ((0, 1), (0, 2), (1, 2))
            if np.isclose(value, expected_critic_loss(key, list(members)), rtol=1e-5)
        }
        assert fitting
        subsets |= fitting
    assert len(subsets) == 3


def test_with_all_critics_in_the_target_it_is_the_smallest_of_all() -> None:
    agent = make(num_target_critics=3)
    given = batch(agent, CRITICS, TARGETS)
    value, _ = jax.jit(agent.critic_loss)(variables(given, "critic"), given, KEY)
    np.testing.assert_allclose(value, expected_critic_loss(KEY, [0, 1, 2]), rtol=1e-5)


def test_the_actor_climbs_the_mean_of_all_critics() -> None:
    agent = make()
    given = batch(agent, CRITICS, TARGETS)
    value, _ = jax.jit(agent.actor_loss)(variables(given, "actor"), given, KEY)
    obs = np.asarray(SAMPLE.obs)
    action, log_prob = drawn(0.3 * obs, jax.random.split(KEY)[0])
    q = np.mean(CRITICS) * (obs + 2.0 * action)[:, 0]
    np.testing.assert_allclose(value, np.mean(TEMPERATURE * log_prob - q), rtol=1e-5)


@pytest.mark.slow
def test_targets_move_with_each_step_of_the_critics() -> None:
    """With critics that stay, four moves leave (1 - tau)^4 of the difference."""
    agent = make(critic_learning_rate=0.0, tau=0.1)
    given = batch(agent, CRITICS, TARGETS)
    samples = jax.tree.map(lambda leaf: jnp.stack([leaf] * 4), SAMPLE)
    after, _ = jax.jit(agent.learn)(given.state, samples, KEY)
    steps = {part: int(own.num_gradient_steps) for part, own in after.learners.items()}
    assert steps == {"actor": 1, "critic": 4, "temperature": 1}
    expected = np.array(CRITICS) + 0.9**4 * (np.array(TARGETS) - np.array(CRITICS))
    np.testing.assert_allclose(after.target.params, expected, rtol=1e-5)


def test_a_subset_of_more_than_all_is_refused() -> None:
    with pytest.raises(TriglotError, match="at most num_critics = 1, got 2"):
        replace(REDQConfig(), num_critics=1)
