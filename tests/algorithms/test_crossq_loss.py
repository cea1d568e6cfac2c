"""CrossQ's losses worked out in NumPy, on critics that normalize by the batch."""

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
    gaussian_actor,
    variables,
)
from triglot.algorithms.crossq import CrossQ, CrossQConfig, CrossQHyperparams
from triglot.backends import build
from triglot.core.network import Network, Statistics, Variables
from triglot.core.networks.combinators import combine, ensemble, scalar
from triglot.core.specs import Box

KEY, TEMPERATURE = jax.random.key(3), 0.5
WEIGHTS = (1.0, -0.5)


def centring_critic() -> Network:
    """A value `w * (obs + 2 * action - m)`; m is the batch's mean, or 3 in evaluation."""

    def apply(
        variables: Variables, inputs: Any, *, key: Any = None, train: bool = False
    ) -> tuple[Any, Any]:
        del key
        x = (inputs[0] + 2.0 * inputs[1])[:, 0]
        mean = x.mean() if train else variables.state
        return {"q": variables.params * (x - mean)}, x.mean() if train else variables.state

    return Network(
        name="critic",
        backend="core",
        init=lambda key: Variables(params=jax.random.normal(key), state=jnp.float32(3.0)),
        apply=apply,
    )


def agent() -> CrossQ:
    parts = {
        "actor": gaussian_actor(0.3, -0.5),
        "critic": ensemble(centring_critic(), 2),
        "temperature": scalar(float(np.log(TEMPERATURE)), "log"),
    }
    return CrossQ(combine(parts), OBS, ACTIONS, CrossQConfig(), CrossQHyperparams())


def drawn(mean: np.ndarray, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Draw as the policy does, and give tanh(raw) with its log-density, by the textbook."""
    std = np.exp(-0.5)
    noise = np.asarray(jax.random.normal(key, mean.shape))
    action = np.tanh(mean + std * noise)
    gaussian = -0.5 * noise**2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)
    return action, (gaussian - np.log(1.0 - action**2))[:, 0]


def test_the_critics_read_both_halves_as_one_batch_and_the_target_has_no_gradient() -> None:
    own = agent()
    given = batch(own, WEIGHTS, WEIGHTS)
    learn = jax.jit(
        jax.value_and_grad(
            lambda params, critic: own.critic_loss(replace(critic, params=params), given, KEY),
            has_aux=True,
        )
    )
    critic = variables(given, "critic")
    (value, (_, new_state)), grads = learn(critic.params, critic)

    next_obs = np.array([[0.5], [4.0]])
    next_action, log_prob = drawn(0.3 * next_obs, jax.random.split(KEY)[0])
    now = np.array([1.0 + 2.0 * 0.5, -2.0 - 2.0 * 0.25])
    after = (next_obs + 2.0 * next_action)[:, 0]
    mean = np.concatenate([now, after]).mean()
    next_q = np.min([w * (after - mean) for w in WEIGHTS], axis=0)
    target = np.array([1.0, 3.0]) + np.array([0.9, 0.0]) * (next_q - TEMPERATURE * log_prob)
    assert target[1] == 3.0  # a terminal transition is worth its reward
    errors = np.array([w * (now - mean) - target for w in WEIGHTS])
    np.testing.assert_allclose(value, 0.5 * np.mean(errors**2, axis=1).sum(), rtol=1e-5)
    np.testing.assert_allclose(grads, np.mean(errors * (now - mean), axis=1), rtol=1e-5)
    np.testing.assert_allclose(new_state, [mean, mean], rtol=1e-6)


def test_the_actor_reads_critics_by_their_running_statistics() -> None:
    own = agent()
    given = batch(own, WEIGHTS, WEIGHTS)
    value, (metrics, _) = jax.jit(own.actor_loss)(variables(given, "actor"), given, KEY)
    obs = np.array([[1.0], [-2.0]])
    action, log_prob = drawn(0.3 * obs, jax.random.split(KEY)[0])
    seen = (obs + 2.0 * action)[:, 0] - 3.0
    expected = np.mean(TEMPERATURE * log_prob - np.min([w * seen for w in WEIGHTS], axis=0))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(metrics["entropy"], -np.mean(log_prob), rtol=1e-5)


@pytest.mark.slow
def test_a_critic_normalizes_its_inputs_and_what_the_activations_return() -> None:
    config = CrossQConfig(critic_hidden_sizes=(6, 5))
    described = CrossQ.networks(Box((2,)), ACTIONS, config)
    network = build("linen", {"critic": described["critic"]})
    variables = network.init(jax.random.key(0))
    assert network.codec is not None
    named = network.codec.encode(variables.params)
    p = {name.removeprefix("critic/"): np.asarray(array) for name, array in named.items()}
    inputs = jax.random.normal(KEY, (8, 2)), jax.random.uniform(KEY, (8, 1), minval=-1.0)
    found, _ = network.apply(variables, inputs, train=True)

    def normalized(x: np.ndarray) -> np.ndarray:  # its scale is 1 and its bias 0 at the start
        return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3)

    for member in range(2):
        x = normalized(np.concatenate(inputs, axis=-1))
        for layer in ("torso/0", "torso/1"):
            x = x @ p[f"{layer}/kernel"][member] + p[f"{layer}/bias"][member]
            x = normalized(np.maximum(x, 0.0))
        expected = (x @ p["head/q/kernel"][member] + p["head/q/bias"][member])[:, 0]
        np.testing.assert_allclose(found["critic"]["q"][member], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_the_kernels_start_as_in_the_authors_code() -> None:
    """Flax's initializer of dense layers, which the authors leave as it is, in every layer."""
    config = CrossQConfig(hidden_sizes=(400, 300), critic_hidden_sizes=(400, 300))
    network = build("linen", CrossQ.networks(Box((20,)), ACTIONS, config))
    assert network.codec is not None
    named = network.codec.encode(network.init(jax.random.key(0)).params)
    for part, own, heads in (("actor", 20, ("mean", "log/std")), ("critic", 21, ("q",))):
        inputs = {"torso/0": own, "torso/1": 400, **{f"head/{head}": 300 for head in heads}}
        for layer, number in inputs.items():
            kernel = np.asarray(named[f"{part}/{layer}/kernel"])
            assert kernel.shape[-2] == number
            assert kernel.std() == pytest.approx(number**-0.5, rel=0.15), layer


@pytest.mark.slow
def test_one_update_moves_the_statistics_of_all_networks_and_has_no_targets() -> None:
    config = CrossQConfig(
        num_envs=1,
        policy_delay=2,
        num_gradient_steps=2,
        hidden_sizes=(4,),
        critic_hidden_sizes=(6,),
    )
    obs_spec = Box((2,))
    network = build("linen", CrossQ.networks(obs_spec, ACTIONS, config))
    own = CrossQ(network, obs_spec, ACTIONS, config, CrossQHyperparams())
    state = jax.jit(own.init, static_argnums=1)(jax.random.key(0), 1)
    assert jax.tree.leaves(state.target) == []
    obs = jax.random.normal(KEY, (2, 3, 2))  # two batches of three
    rows: dict[str, Any] = {"reward": jnp.ones((2, 3)), "discount": jnp.ones((2, 3))}
    rows |= {"slot": jnp.zeros((2, 3), jnp.int32), "probability": jnp.ones((2, 3))}
    sample = replace(SAMPLE, obs=obs, next_obs=obs + 1.0, action=obs[..., :1], **rows)
    after, metrics = jax.jit(own.learn)(state, sample, KEY)
    assert np.isfinite(metrics["loss"])
    for part in ("actor", "critic"):
        before, moved = (each.learners[part].variables.state for each in (state, after))
        assert isinstance(moved, Statistics)
        for name, array in moved.named.items():
            assert not np.array_equal(array, before.named[name]), name
    assert network.parts["critic"].init(KEY).state.named["norm/0/mean"].shape == (2, 6)
    assert [int(after.learners[p].num_gradient_steps) for p in ("critic", "actor")] == [2, 1]


def test_adams_decay_is_half() -> None:
    """The first steps of Adam on a gradient of 1 and then -1, at a rate of 1.

    With b1 = 0.5: m = 0.5, then 0.5 * 0.5 - 0.5 = -0.25; unbiased 1 and -0.25 / 0.75.
    """
    optimizer = agent().optimizer(replace(CrossQHyperparams(), learning_rate=1.0))
    params = jnp.zeros(())
    update: Any
    state, steps = optimizer.init(params), []
    for gradient in (1.0, -1.0):
        with jax.numpy_dtype_promotion("standard"):  # as `Learner` does
            update, state = optimizer.update(jnp.asarray(gradient), state, params)
        steps.append(float(update))
    np.testing.assert_allclose(steps, [-1.0, 1.0 / 3.0], rtol=1e-4)
