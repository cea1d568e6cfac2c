"""SAC's losses against numbers worked out in NumPy, on networks that are plain functions."""

from dataclasses import replace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
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
from triglot.algorithms.sac import SAC, SACConfig, SACHyperparams
from triglot.core.families.actor_critic import ActorCriticBatch, ActorCriticState
from triglot.core.learner import LearnerState
from triglot.core.networks.combinators import combine, ensemble, scalar
from triglot.core.rl.replay import Step

TEMPERATURE = 0.5


@pytest.fixture(scope="module")
def agent() -> SAC:
    parts = {
        "actor": gaussian_actor(0.3, -0.5),
        "critic": ensemble(critic(), 2),
        "temperature": scalar(float(np.log(TEMPERATURE)), "log"),
    }
    return SAC(combine(parts), OBS, ACTIONS, SACConfig(), SACHyperparams())


def with_learners(state: ActorCriticState, moved: dict[str, LearnerState]) -> ActorCriticState:
    return replace(state, learners={**state.learners, **moved})


def drawn(mean: np.ndarray, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Draw as the policy does, and give tanh(raw) with its log-density, by the textbook."""
    std = np.exp(-0.5)
    noise = np.asarray(jax.random.normal(key, mean.shape))
    raw = mean + std * noise
    gaussian = -0.5 * noise**2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)
    return np.tanh(raw), (gaussian - np.log(1.0 - np.tanh(raw) ** 2))[:, 0]


def test_the_critics_loss(agent: SAC) -> None:
    key, given = jax.random.key(3), batch(agent, [1.0, -0.5], [0.7, 0.2])
    value, _ = jax.jit(agent.critic_loss)(variables(given, "critic"), given, key)
    next_obs = np.array([[0.5], [4.0]])
    next_action, next_log_prob = drawn(0.3 * next_obs, jax.random.split(key)[0])
    seen = (next_obs + 2.0 * next_action)[:, 0]
    next_q = np.minimum(0.7 * seen, 0.2 * seen)
    target = np.array([1.0, 3.0]) + np.array([0.9, 0.0]) * (next_q - TEMPERATURE * next_log_prob)
    assert target[1] == 3.0  # a terminal transition is worth its reward
    taken = np.array([1.0 + 2.0 * 0.5, -2.0 - 2.0 * 0.25])
    expected = sum(0.5 * np.mean((w * taken - target) ** 2) for w in (1.0, -0.5))
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_the_actors_loss(agent: SAC) -> None:
    key, given = jax.random.key(3), batch(agent, [1.0, -0.5], [0.7, 0.2])
    value, (metrics, _) = jax.jit(agent.actor_loss)(variables(given, "actor"), given, key)
    obs = np.array([[1.0], [-2.0]])
    action, log_prob = drawn(0.3 * obs, jax.random.split(key)[0])
    seen = (obs + 2.0 * action)[:, 0]
    expected = np.mean(TEMPERATURE * log_prob - np.minimum(1.0 * seen, -0.5 * seen))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(metrics["entropy"], -np.mean(log_prob), rtol=1e-5)


@pytest.mark.parametrize("target_entropy", [None, -3.0])
def test_the_temperatures_loss(agent: SAC, target_entropy: float | None) -> None:
    """Without a target entropy it is minus the number of action dimensions, 1 here."""
    key, given = jax.random.key(3), batch(agent, [1.0, -0.5], [0.7, 0.2])
    hyper = replace(given.state.hyper, target_entropy=target_entropy)
    given = replace(given, state=replace(given.state, hyper=hyper))
    value, (metrics, _) = jax.jit(agent.temperature_loss)(
        variables(given, "temperature"), given, key
    )
    _, log_prob = drawn(0.3 * np.array([[1.0], [-2.0]]), key)
    wanted = -1.0 if target_entropy is None else target_entropy
    np.testing.assert_allclose(value, -np.mean(TEMPERATURE * (log_prob + wanted)), rtol=1e-5)
    np.testing.assert_allclose(metrics["temperature"], TEMPERATURE, rtol=1e-6)


def test_each_part_steps_after_the_one_before(agent: SAC) -> None:
    """Critics, actor, temperature, targets: each loss reads the parts that have moved already."""
    config = replace(agent.config, num_envs=2, batch_size=2, buffer_size=8, learning_starts=2)
    agent = replace(agent, config=config)
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 2)
    one_step = jax.tree.map(lambda leaf: leaf[None], SAMPLE)
    state = replace(
        state,
        replay=agent.replay.add(
            state.replay,
            Step(
                obs=one_step.obs,
                action=one_step.action,
                reward=one_step.reward,
                terminated=one_step.discount == 0.0,
                truncated=jnp.zeros((1, 2), bool),
                next_obs=one_step.next_obs,
                next_action_mask=None,
            ),
        ),
    )
    keys = jax.random.split(jax.random.key(5))
    sample = agent.replay.sample(state.replay, keys[0], 2, state.hyper.discount)
    after, metrics = jax.jit(agent.learn)(state, sample, keys[1])
    _, actor_key, temperature_key = jax.random.split(keys[1], 3)
    moved = {"critic": after.learners["critic"]}
    given = ActorCriticBatch(
        sample=sample, state=replace(state, learners={**state.learners, **moved})
    )
    value, _ = jax.jit(agent.actor_loss)(variables(given, "actor"), given, actor_key)
    np.testing.assert_allclose(metrics["actor_loss"], value, rtol=1e-5)
    moved["actor"] = after.learners["actor"]
    given = ActorCriticBatch(
        sample=sample, state=replace(state, learners={**state.learners, **moved})
    )
    value, _ = jax.jit(agent.temperature_loss)(
        variables(given, "temperature"), given, temperature_key
    )
    np.testing.assert_allclose(metrics["temperature_loss"], value, rtol=1e-5)
    tau, old, new = 0.005, state.target.params, after.learners["critic"].variables.params
    np.testing.assert_allclose(after.target.params, tau * new + (1 - tau) * old, rtol=1e-5)
    steps = {part: int(own.num_gradient_steps) for part, own in after.learners.items()}
    assert steps == {"actor": 1, "critic": 1, "temperature": 1}


def test_each_learner_has_its_own_rate() -> None:
    parts = {
        "actor": gaussian_actor(0.3, -0.5),
        "critic": ensemble(critic(), 2),
        "temperature": scalar(float(np.log(TEMPERATURE)), "log"),
    }
    seen = []

    def optimizer(hyper: SACHyperparams) -> optax.GradientTransformation:
        seen.append(float(hyper.learning_rate))
        return optax.sgd(hyper.learning_rate)

    hyper = SACHyperparams(
        learning_rate=0.1, critic_learning_rate=0.2, temperature_learning_rate=0.3
    )
    made = SAC(combine(parts), OBS, ACTIONS, SACConfig(), hyper, optimizer)
    seen.clear()
    made.init(jax.random.key(0), 8)
    np.testing.assert_allclose(sorted(set(seen)), [0.1, 0.2, 0.3], rtol=1e-6)


def test_targets_start_as_the_critics(agent: SAC) -> None:
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 8)
    chex.assert_trees_all_equal(state.target, state.learners["critic"].variables)
