"""Distributions against numbers worked out by hand and by integration."""

from typing import Any

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.properties import examples
from triglot.core.rl.distributions import (
    MultiCategorical,
    SquashedGaussian,
    categorical,
    from_unit_box,
    multi_categorical,
    policy,
    squashed_gaussian,
    to_action,
)
from triglot.core.specs import Box, MultiDiscrete


def test_log_density_and_entropy_by_hand() -> None:
    policy = SquashedGaussian(jnp.array([[0.0, 1.0]]), jnp.log(jnp.array([[1.0, 2.0]])))
    # log N(1; 0, 1) = -0.5 - 0.5 log(2 pi); log N(3; 1, 2) = -0.5 - log 2 - 0.5 log(2 pi).
    half_log_two_pi = 0.5 * np.log(2 * np.pi)
    by_hand = -1.0 - np.log(2.0) - 2 * half_log_two_pi
    np.testing.assert_allclose(policy.log_prob(jnp.array([[1.0, 3.0]])), [by_hand], rtol=1e-6)
    entropy = 2 * (0.5 + half_log_two_pi) + np.log(2.0)
    np.testing.assert_allclose(policy.entropy(), [entropy], rtol=1e-6)
    np.testing.assert_array_equal(policy.mode(), [[0.0, 1.0]])


def test_the_squashed_density_integrates_to_one() -> None:
    policy = SquashedGaussian(jnp.array([0.3]), jnp.array([-0.5]))
    actions = jnp.linspace(-0.99999, 0.99999, 200_001)
    log_density = jax.vmap(lambda a: policy.squashed_log_prob(jnp.arctanh(a)[None]))(actions)
    integral = np.trapezoid(np.exp(np.asarray(log_density)), np.asarray(actions))
    np.testing.assert_allclose(integral, 1.0, atol=1e-3)


def test_the_squashed_density_is_finite_far_out() -> None:
    policy = SquashedGaussian(jnp.zeros((1,)), jnp.zeros((1,)))
    for raw in (-50.0, 50.0):
        assert jnp.isfinite(policy.squashed_log_prob(jnp.array([raw])))


def test_bounds_are_reached_element_by_element() -> None:
    spec = Box((2,), "float32", (-2.0, 0.0), (2.0, 10.0))
    unit = jnp.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])
    stretched = from_unit_box(spec, unit)
    np.testing.assert_allclose(stretched, [[-2.0, 0.0], [0.0, 5.0], [2.0, 10.0]])


DTYPES = [jnp.float32, jnp.float16, jnp.bfloat16]
MASK = jnp.array([True, False, True, False])


@pytest.mark.covering(4)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("masked_logit", [None, -1e9, "lowest", -jnp.inf])
def test_masked_actions_count_for_nothing_in_every_precision(
    dtype: jnp.dtype, masked_logit: float | str | None
) -> None:
    """Masked by the argument `action_mask`, or by the network, with a large negative logit."""
    masked = jnp.finfo(dtype).min if masked_logit == "lowest" else masked_logit
    first, second = (
        jnp.array(logits, dtype) for logits in ([29.0, 28.0, 30.0, 27.0], [0.5, 9.0, 0.25, 1.0])
    )

    def build(logits: jax.Array):
        if masked is None:
            return categorical(logits, MASK)
        return categorical(jnp.where(MASK, logits, jnp.asarray(masked).astype(dtype)))

    def entropy(logits: jax.Array) -> jax.Array:
        return build(logits).entropy()

    def divergence(logits: jax.Array) -> jax.Array:
        p, q = build(logits), build(second)
        return jnp.sum(jnp.exp(p.log_probs) * (p.log_probs - q.log_probs))

    def log_prob(logits: jax.Array) -> jax.Array:
        return build(logits).log_prob(jnp.int32(2))

    logits = np.array([29.0, 30.0])
    log_p = logits - np.log(np.exp(logits).sum())
    log_q = np.array([0.5, 0.25]) - np.log(np.exp([0.5, 0.25]).sum())
    exact = {
        entropy: -(np.exp(log_p) * log_p).sum(),
        divergence: (np.exp(log_p) * (log_p - log_q)).sum(),
        log_prob: log_p[1],
    }
    tolerance = 10 * float(jnp.finfo(dtype).eps)
    for function, expected in exact.items():
        value, gradient = jax.jit(jax.value_and_grad(function))(first)
        assert value.dtype == dtype
        np.testing.assert_allclose(np.float64(value), expected, rtol=tolerance, atol=tolerance)
        assert jnp.isfinite(gradient).all() and gradient[0] != 0
        np.testing.assert_array_equal(gradient[~MASK], 0)

    policy = build(first)
    assert jnp.isfinite(policy.log_probs).all()
    actions = jax.vmap(policy.sample)(jax.random.split(jax.random.key(0), 200))
    assert set(actions.tolist()) == {0, 2}


def test_divergences_are_those_of_distrax() -> None:
    rng = np.random.default_rng(0)
    logits, other = jnp.asarray(rng.normal(size=(2, 7, 3)), jnp.float32)
    found = categorical(logits).kl_terms(categorical(other))
    expected: Any = distrax.Categorical(logits).kl_divergence(distrax.Categorical(other))
    np.testing.assert_allclose(found["policy"], expected, rtol=1e-5)

    mean, log_std, new_mean, new_log_std = jnp.asarray(rng.normal(size=(4, 7, 3)), jnp.float32)
    old = squashed_gaussian(mean, log_std)
    terms = old.kl_terms(squashed_gaussian(new_mean, new_log_std))

    def gaussian(mean: jax.Array, log_std: jax.Array) -> Any:
        return distrax.MultivariateNormalDiag(mean, jnp.exp(log_std))

    for name, to in (("mean", (new_mean, log_std)), ("std", (mean, new_log_std))):
        expected = gaussian(mean, log_std).kl_divergence(gaussian(*to))
        np.testing.assert_allclose(terms[name], expected, rtol=1e-4, atol=1e-5)


def test_a_masked_action_adds_no_divergence() -> None:
    mask = jnp.array([True, True, False])

    def divergence(logits: jax.Array) -> jax.Array:
        return categorical(jnp.zeros(3), mask).kl_terms(categorical(logits, mask))["policy"]

    # From (1/2, 1/2) to (4/5, 1/5).
    value, grad = jax.jit(jax.value_and_grad(divergence))(jnp.log(jnp.array([0.8, 0.2, 0.5])))
    np.testing.assert_allclose(value, 0.5 * np.log(0.5 / 0.8) + 0.5 * np.log(0.5 / 0.2), rtol=1e-5)
    np.testing.assert_allclose(grad, [0.3, -0.3, 0.0], rtol=1e-5, atol=1e-7)


def test_two_integers_by_hand() -> None:
    # The first has probabilities 1/4 and 3/4, the second 1/2, 1/4 and 1/4.
    logits = jnp.log(jnp.array([[1.0, 3.0, 2.0, 1.0, 1.0]]))
    actor = policy(MultiDiscrete((2, 3)), {"logits": logits})
    assert isinstance(actor, MultiCategorical)
    np.testing.assert_array_equal(actor.mode(), [[1, 0]])
    # log 3/4 + log 1/4
    by_hand = np.log(3 / 16)
    np.testing.assert_allclose(actor.log_prob(jnp.array([[1, 2]])), [by_hand], rtol=1e-6)
    # H(1/4, 3/4) = 2 log 2 - 3/4 log 3; H(1/2, 1/4, 1/4) = 3/2 log 2
    entropy = 3.5 * np.log(2) - 0.75 * np.log(3)
    np.testing.assert_allclose(actor.entropy(), [entropy], rtol=1e-6)


def test_two_masked_integers_by_hand() -> None:
    logits = jnp.log(jnp.array([1.0, 3.0, 2.0, 1.0, 1.0]))
    mask = jnp.array([True, False, False, True, True])
    actor = multi_categorical((2, 3), logits, mask)
    # The first is 0; the second is 1 or 2, with probability 1/2 each.
    np.testing.assert_allclose(actor.log_prob(jnp.array([0, 2])), np.log(0.5), rtol=1e-6)
    np.testing.assert_allclose(actor.entropy(), np.log(2), rtol=1e-6)
    drawn = jax.vmap(actor.sample)(jax.random.split(jax.random.key(0), 100))
    assert set(map(tuple, drawn.tolist())) == {(0, 1), (0, 2)}
    gradient = jax.jit(jax.grad(lambda x: multi_categorical((2, 3), x, mask).entropy()))(logits)
    np.testing.assert_array_equal(gradient[~mask], 0)


@pytest.mark.slow
@examples(
    quick=6,
    slow=100,
    seed=st.integers(0, 2**32 - 1),
    num_values=st.sampled_from([(3, 1, 2), (2, 2)]),
    masked=st.booleans(),
)
def test_it_is_a_product_of_softmaxes(seed: int, num_values: tuple[int, ...], masked: bool) -> None:
    """The oracle is NumPy's table of all joint actions, which are independent."""
    rng = np.random.default_rng(seed)
    size, mask = sum(num_values), None
    logits = rng.normal(size=size).astype(np.float32)
    starts = np.cumsum([0, *num_values])[:-1]
    if masked:
        mask = rng.random(size) < 0.5
        mask[starts + rng.integers(num_values)] = True
    allowed = np.ones(size) if mask is None else mask
    weights = np.split(np.exp(logits.astype(np.float64)) * allowed, starts[1:])
    table = np.ones(())
    for own in weights:
        table = table[..., None] * (own / own.sum())
    actor = multi_categorical(
        num_values, jnp.asarray(logits), None if mask is None else jnp.asarray(mask)
    )
    actions = jnp.stack(jnp.unravel_index(jnp.arange(table.size), num_values), axis=-1)
    probabilities = np.exp(np.asarray(jax.vmap(actor.log_prob)(actions)))
    np.testing.assert_allclose(probabilities, table.ravel(), rtol=1e-4, atol=1e-7)
    positive = table[table > 0]
    entropy = -(positive * np.log(positive)).sum()
    np.testing.assert_allclose(actor.entropy(), entropy, rtol=1e-4, atol=1e-6)
    assert table[tuple(np.asarray(actor.mode()))] == table.max()


def test_samples_are_as_frequent_as_their_probabilities() -> None:
    actor = multi_categorical((2, 3), jnp.log(jnp.array([1.0, 3.0, 2.0, 1.0, 1.0])))
    drawn = np.asarray(jax.vmap(actor.sample)(jax.random.split(jax.random.key(0), 4096)))
    assert drawn.dtype == np.int32 and drawn.shape == (4096, 2)
    expected = np.outer([0.25, 0.75], [0.5, 0.25, 0.25]).ravel()
    counts = np.bincount(drawn[:, 0] * 3 + drawn[:, 1], minlength=6)
    np.testing.assert_allclose(counts / 4096, expected, atol=0.03)  # 4 standard deviations


def test_actions_get_the_dtype_of_their_spec() -> None:
    action = to_action(MultiDiscrete((2, 2), "int8"), jnp.array([[0, 1]], jnp.int32))
    assert action.dtype == jnp.int8 and action.tolist() == [[0, 1]]
