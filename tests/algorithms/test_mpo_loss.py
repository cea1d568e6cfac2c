"""MPO's losses worked out by hand and in NumPy, on networks that are plain functions."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.toy_actor_critics import (
    ACTIONS,
    DISCRETE,
    OBS,
    SAMPLE,
    TWO_ACTIONS,
    batch,
    critic,
    discrete_actor,
    discrete_critic,
    gaussian_actor,
    variables,
)
from triglot.algorithms.mpo import MPO, Drawn, MPOConfig, MPOHyperparams
from triglot.core.networks.combinators import combine, scalar
from triglot.core.rl.distributions import squashed_gaussian

KEY = jax.random.key(3)


def make(discrete: bool, **config: Any) -> MPO:
    bounds = ("policy",) if discrete else ("mean", "std")
    dual = {name: scalar(float(np.log(10.0)), "log") for name in bounds}
    parts = {
        "actor": discrete_actor(0.0) if discrete else gaussian_actor(0.3, -0.5),
        "critic": discrete_critic() if discrete else critic(),
        "dual": combine({**dual, "temperature": scalar(0.0, "log")}),
    }
    spec = TWO_ACTIONS if discrete else ACTIONS
    return MPO(combine(parts), OBS, spec, MPOConfig(**config), MPOHyperparams())


def test_both_steps_by_hand() -> None:
    # Values 0 and log 3 at the temperature 1 weigh 1/4 and 3/4. Both actions have log-probability
    # -log 2: the policy's loss is log 2, its KL 0. The temperature's is 0.1 + log((1 + 3) / 2),
    # the multiplier's 10 * (0.01 - 0).
    agent = make(discrete=True)
    given = batch(agent, 1.0, 1.0, DISCRETE)
    policy, _ = agent.policy(given.state.target["actor"], DISCRETE.obs)
    q = jnp.log(jnp.array([[1.0, 1.0], [3.0, 3.0]]))
    drawn = Drawn(policy=policy, raw=jnp.array([[0, 0], [1, 1]], jnp.int32), q=q)
    value, _ = jax.jit(agent.actor_loss)(drawn, variables(given, "actor"), given, KEY)
    np.testing.assert_allclose(value, np.log(2.0), rtol=1e-6)
    value, (metrics, _) = jax.jit(agent.dual_loss)(drawn, variables(given, "dual"), given, KEY)
    np.testing.assert_allclose(value, 0.1 + np.log(2.0) + 0.1, rtol=1e-6)
    np.testing.assert_allclose(metrics["policy_multiplier"], 10.0, rtol=1e-6)


def test_the_critics_target_averages_the_drawn_actions() -> None:
    # The last step terminated: y = 3. Q of the actions 1, 0 is 2, -2.
    agent = make(discrete=True, num_actions=7)
    given = batch(agent, 1.0, 0.25, DISCRETE)
    value, _ = jax.jit(agent.critic_loss)(variables(given, "critic"), given, KEY)
    key = jax.random.split(KEY)[0]
    drawn = agent.draw(given.state, DISCRETE.next_obs, None, key)
    target = 1.0 + 0.9 * 0.25 * 0.5 * np.mean(np.where(drawn.raw[:, 0] == 1, 2.0, 1.0))
    errors = np.array([2.0 - target, -2.0 - 3.0])
    np.testing.assert_allclose(value, 0.5 * np.mean(errors**2), rtol=1e-6)


def test_a_gaussians_losses_against_numpy() -> None:
    """The mean moves with the old deviation, the deviation about the old mean."""
    agent = make(discrete=False)
    given = batch(agent, 1.0, 1.0)
    rng = np.random.default_rng(0)
    old_mean, old_std = rng.normal(size=(2, 1)), np.exp(rng.normal(size=(2, 1)))
    raw, q = rng.normal(size=(5, 2, 1)), rng.normal(size=(5, 2))
    drawn = Drawn(
        policy=squashed_gaussian(jnp.float32(old_mean), jnp.float32(np.log(old_std))),
        raw=jnp.float32(raw),
        q=jnp.float32(q),
    )
    mean, std = 0.3 * np.asarray(SAMPLE.obs), np.exp(-0.5)

    def log_density(mean: np.ndarray, std: Any) -> np.ndarray:
        return (-0.5 * ((raw - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi))[..., 0]

    weight = np.exp(q) / np.exp(q).sum(axis=0)
    log_prob = log_density(mean, old_std) + log_density(old_mean, std)
    mean_kl = (0.5 * ((old_mean - mean) / old_std) ** 2)[:, 0]
    std_kl = (np.log(std / old_std) + 0.5 * (old_std / std) ** 2 - 0.5)[:, 0]
    expected = -(weight * log_prob).sum(axis=0) + 10.0 * (mean_kl + std_kl)
    value, _ = jax.jit(agent.actor_loss)(drawn, variables(given, "actor"), given, KEY)
    np.testing.assert_allclose(value, expected.mean(), rtol=1e-5)
    value, (metrics, _) = jax.jit(agent.dual_loss)(drawn, variables(given, "dual"), given, KEY)
    temperature_loss = 0.1 + np.log(np.mean(np.exp(q), axis=0))
    bounds = 10.0 * (0.01 - mean_kl) + 10.0 * (1e-4 - std_kl)
    np.testing.assert_allclose(value, (temperature_loss + bounds).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["mean_kl"], mean_kl.mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["std_kl"], std_kl.mean(), rtol=1e-4)


@pytest.mark.parametrize("discrete", [True, False])
def test_actions_are_drawn_from_the_target_and_valued_by_it(discrete: bool) -> None:
    agent, sample = make(discrete, num_actions=7), DISCRETE if discrete else SAMPLE
    given = batch(agent, 1.0, 0.25, sample)
    drawn = agent.draw(given.state, sample.obs, None, KEY)
    obs, raw = np.asarray(sample.obs), np.asarray(drawn.raw)
    assert raw.shape == ((7, 2) if discrete else (7, 2, 1))
    if discrete:
        expected = 0.25 * obs[:, 0] * np.where(raw == 1, 2.0, 1.0)
    else:
        expected = 0.25 * (obs + 2.0 * np.tanh(raw))[..., 0]
    np.testing.assert_allclose(drawn.q, expected, rtol=1e-5)


@pytest.mark.slow
def test_each_loss_moves_its_own_part() -> None:
    agent = make(discrete=False, num_actions=7)
    given = batch(agent, 1.0, 0.25)
    before = replace(given.state, hyper=MPOHyperparams(target_update_period=2.0))
    once, _ = jax.jit(agent.learn)(before, SAMPLE, KEY)
    twice, metrics = jax.jit(agent.learn)(once, SAMPLE, jax.random.key(4))
    for part in ("actor", "critic", "dual"):
        assert int(twice.learners[part].num_gradient_steps) == 2
        old, new = (jax.tree.leaves(state.learners[part].variables) for state in (before, once))
        assert any((one != other).any() for one, other in zip(old, new, strict=True))
    np.testing.assert_array_equal(once.target["critic"].params, 0.25)  # every second step
    for part in ("actor", "critic"):
        jax.tree.map(
            np.testing.assert_array_equal,
            twice.target[part].params,
            twice.learners[part].variables.params,
        )
    names = {"mean_kl", "std_kl", "mean_multiplier", "std_multiplier", "temperature"}
    assert names | {"actor_loss", "critic_loss", "dual_loss"} <= metrics.keys()


@pytest.mark.slow
def test_a_masked_action_is_never_drawn() -> None:
    agent = make(discrete=True, num_actions=50)
    mask = jnp.array([[False, True], [True, True]])
    sample = replace(DISCRETE, action_mask=mask, next_action_mask=mask)
    given = batch(agent, 1.0, 0.25, sample)
    drawn = agent.draw(given.state, sample.obs, mask, KEY)
    assert (np.asarray(drawn.raw)[:, 0] == 1).all()
    state, metrics = jax.jit(agent.learn)(given.state, sample, KEY)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.learners))
    assert np.isfinite(metrics["loss"])
