"""The squashed Gaussian against numbers worked out by hand and by integration."""

import jax
import jax.numpy as jnp
import numpy as np

from triglot.core.rl.distributions import SquashedGaussian, from_unit_box
from triglot.core.specs import Box


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
