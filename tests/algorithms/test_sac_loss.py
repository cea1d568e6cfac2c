"""SAC's loss against numbers worked out in NumPy, on networks that are plain functions."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.sac import SAC, Batch, SACConfig, SACHyperparams
from triglot.core.network import Network, Variables
from triglot.core.networks.combinators import combine, ensemble, part_of, scalar
from triglot.core.rl.replay import Sample
from triglot.core.specs import Box

OBS, ACTIONS = Box((1,)), Box((1,), "float32", -3.0, 5.0)
TEMPERATURE, TARGET_ENTROPY = 0.5, -1.0


def actor() -> Network:
    """A policy of mean `w * obs` and log-std `b`."""

    def apply(variables: Variables, obs: Any, **_: Any) -> tuple[Any, Any]:
        mean = variables.params["w"] * obs
        return {"mean": mean, "log_std": jnp.broadcast_to(variables.params["b"], mean.shape)}, ()

    start = {"w": jnp.float32(0.3), "b": jnp.float32(-0.5)}
    return Network(
        name="actor",
        backend="core",
        init=lambda key: Variables(params=start, state=()),
        apply=apply,
    )


def critic() -> Network:
    """A value `w * (obs + 2 * action)`; of two members, each with a weight drawn for itself."""

    def apply(variables: Variables, inputs: Any, **_: Any) -> tuple[Any, Any]:
        obs, action = inputs
        return {"q": variables.params * (obs + 2.0 * action)[:, 0]}, ()

    return Network(
        name="critic",
        backend="core",
        init=lambda key: Variables(params=jax.random.normal(key), state=()),
        apply=apply,
    )


@pytest.fixture(scope="module")
def agent() -> SAC:
    parts = {
        "actor": actor(),
        "critic": ensemble(critic(), 2),
        "temperature": scalar(float(np.log(TEMPERATURE)), "log"),
    }
    return SAC(combine(parts), OBS, ACTIONS, SACConfig(), SACHyperparams())


def batch(agent: SAC) -> Batch:
    sample = Sample(
        obs=jnp.array([[1.0], [-2.0]]),
        action=jnp.array([[0.5], [-0.25]]),
        reward=jnp.array([1.0, 3.0]),
        discount=jnp.array([0.9, 0.0]),  # the second terminated
        next_obs=jnp.array([[0.5], [4.0]]),
        next_action_mask=None,
        slot=jnp.array([0, 1]),
        probability=jnp.array([0.5, 0.5]),
    )
    target = Variables(params=jnp.array([0.7, 0.2]), state=((), ())[0])
    return Batch(sample=sample, target=target, target_entropy=jnp.float32(TARGET_ENTROPY))


def with_critics(agent: SAC, weights: list[float]) -> Variables:
    made = agent.network.init(jax.random.key(0))
    return Variables(params={**made.params, "critic": jnp.array(weights)}, state=made.state)


def drawn(mean: np.ndarray, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Draw as the policy does, and give tanh(raw) with its log-density, by the textbook."""
    std = np.exp(-0.5)
    noise = np.asarray(jax.random.normal(key, mean.shape))
    raw = mean + std * noise
    gaussian = -0.5 * noise**2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)
    return np.tanh(raw), (gaussian - np.log(1.0 - np.tanh(raw) ** 2))[:, 0]


def test_the_terms(agent: SAC) -> None:
    key = jax.random.key(3)
    value, (metrics, _) = agent.loss(with_critics(agent, [1.0, -0.5]), batch(agent), key)
    next_key, draw_key, _, _ = jax.random.split(key, 4)
    obs, next_obs = np.array([[1.0], [-2.0]]), np.array([[0.5], [4.0]])

    next_action, next_log_prob = drawn(0.3 * next_obs, next_key)
    seen = (next_obs + 2.0 * next_action)[:, 0]
    next_q = np.minimum(0.7 * seen, 0.2 * seen)
    target = np.array([1.0, 3.0]) + np.array([0.9, 0.0]) * (next_q - TEMPERATURE * next_log_prob)
    assert target[1] == 3.0  # a terminal transition is worth its reward, and no less
    taken = np.array([1.0 + 2.0 * 0.5, -2.0 - 2.0 * 0.25])
    critic_loss = sum(0.5 * np.mean((w * taken - target) ** 2) for w in (1.0, -0.5))

    action, log_prob = drawn(0.3 * obs, draw_key)
    seen = (obs + 2.0 * action)[:, 0]
    actor_loss = np.mean(TEMPERATURE * log_prob - np.minimum(1.0 * seen, -0.5 * seen))
    temperature_loss = -np.mean(TEMPERATURE * (log_prob + TARGET_ENTROPY))

    np.testing.assert_allclose(metrics["critic_loss"], critic_loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["actor_loss"], actor_loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["temperature_loss"], temperature_loss, rtol=1e-5)
    np.testing.assert_allclose(value, critic_loss + actor_loss + temperature_loss, rtol=1e-5)


def test_each_loss_moves_its_own_part_only(agent: SAC) -> None:
    variables = with_critics(agent, [1.0, -0.5])

    def gradient(name: str) -> Any:
        def one(params: Any) -> jax.Array:
            moved = Variables(params=params, state=variables.state)
            return agent.loss(moved, batch(agent), jax.random.key(3))[1][0][name]

        return jax.grad(one)(variables.params)

    for name in ("actor", "critic", "temperature"):
        found = gradient(f"{name}_loss")
        for part in ("actor", "critic", "temperature"):
            moves = any(bool(jnp.any(leaf != 0)) for leaf in jax.tree.leaves(found[part]))
            assert moves == (part == name), (name, part)


def test_targets_follow_the_critics_by_tau(agent: SAC) -> None:
    state = agent.init(jax.random.key(0), 8)
    online = part_of(state.learner.variables, "critic")
    chex.assert_trees_all_equal(state.target, online)
    assert state.hyper.target_entropy == -1.0
