"""Returns and losses against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.core.rl.distributions import categorical
from triglot.core.rl.losses import clipped_value_loss, explained_variance, gae, successor_values

DISCOUNT, LAMBDA = 0.9, 0.5


def column(*values: float | bool) -> jax.Array:
    return jnp.asarray(values)[:, None]


def estimate(
    terminated: jax.Array, truncated: jax.Array, second_successor: float = 30.0
) -> tuple[np.ndarray, np.ndarray]:
    """Rewards 1, 2, 3; V(s) = 1, 2, 3; V of the true successors = 2, 30, 4.

    Within an episode the successor of the second step is the third state, and its value 3.
    """
    advantage, target = gae(
        column(1.0, 2.0, 3.0),
        terminated,
        truncated,
        column(1.0, 2.0, 3.0),
        column(2.0, second_successor, 4.0),
        jnp.asarray(DISCOUNT),
        jnp.asarray(LAMBDA),
    )
    return np.asarray(advantage[:, 0]), np.asarray(target[:, 0])


NONE = column(False, False, False)
MIDDLE = column(False, True, False)


def test_gae_of_an_unbroken_rollout() -> None:
    # delta = 1 + 0.9*2 - 1, 2 + 0.9*3 - 2, 3 + 0.9*4 - 3 = 1.8, 2.7, 3.6
    # A_2 = 3.6; A_1 = 2.7 + 0.45 * 3.6 = 4.32; A_0 = 1.8 + 0.45 * 4.32 = 3.744
    advantage, target = estimate(NONE, NONE, second_successor=3.0)
    np.testing.assert_allclose(advantage, [3.744, 4.32, 3.6], rtol=1e-6)
    np.testing.assert_allclose(target, [4.744, 6.32, 6.6], rtol=1e-6)


def test_the_value_of_the_true_successor_may_differ_from_the_next_steps() -> None:
    """A_t = delta_t + 0.25 * (A_{t+1} + V(s_{t+1}) - V(s'_t)), as the docstring says."""
    one = jnp.ones((1, 1))
    reward, value, after = (
        jnp.concatenate([one * first, one * second])
        for first, second in ((1.0, 2.0), (3.0, 5.0), (4.0, 6.0))
    )
    never = jnp.zeros((2, 1), bool)
    advantage, _ = gae(reward, never, never, value, after, 0.5, 0.5)
    last = 2.0 + 0.5 * 6.0 - 5.0
    first = (1.0 + 0.5 * 4.0 - 3.0) + 0.25 * (last + 5.0 - 4.0)
    np.testing.assert_allclose(advantage[:, 0], [first, last])


def test_after_a_termination_nothing_is_worth_anything() -> None:
    # delta_1 = 2 - 2 = 0, and A_2 does not reach it: A_1 = 0; A_0 = 1.8
    advantage, _ = estimate(MIDDLE, NONE)
    np.testing.assert_allclose(advantage, [1.8, 0.0, 3.6], rtol=1e-6, atol=1e-6)


def test_a_truncation_bootstraps_on_the_true_successor_and_stops_the_sum() -> None:
    # delta_1 = 2 + 0.9*30 - 2 = 27 stays (a published GAE zeroes it); A_2, of the next episode,
    # does not leak in (another published GAE lets it): A_1 = 27; A_0 = 1.8 + 0.45 * 27 = 13.95
    advantage, _ = estimate(NONE, MIDDLE)
    np.testing.assert_allclose(advantage, [13.95, 27.0, 3.6], rtol=1e-6)


def ends(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draw flags of 9 steps in 3 environments; the first is truncated several times."""
    terminated_key, truncated_key = jax.random.split(key)
    truncated = jax.random.bernoulli(truncated_key, jnp.array([[0.5, 0.2, 0.0]]), (9, 3))
    return jax.random.bernoulli(terminated_key, 0.2, (9, 3)), truncated


@pytest.mark.slow
def test_values_of_successors_are_those_of_a_pass_over_all_of_them() -> None:
    def both(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        terminated, truncated = ends(key)
        obs = jax.random.normal(jax.random.fold_in(key, 1), (10, 3))
        fresh = jax.random.normal(jax.random.fold_in(key, 2), (9, 3))
        ended = terminated | truncated
        successors = jnp.where(
            ended, fresh, obs[1:]
        )  # an episode's end is not the next one's start
        values = successor_values(jnp.sin, jnp.sin(obs[:-1]), successors, terminated, truncated)
        kept = ~terminated  # there is no bootstrap after the others
        return jnp.where(kept, values, 0.0), jnp.where(kept, jnp.sin(successors), 0.0)

    keys = jax.random.split(jax.random.key(0), 8)
    for found, expected in (both(keys[0]), jax.vmap(both)(keys)):
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(("truncated", "num_passes"), [((), 1), (((4, 0), (6, 2)), 2)])
def test_the_network_is_applied_to_unknown_successors_alone(
    truncated: tuple[tuple[int, int], ...], num_passes: int
) -> None:
    never, value, passes = jnp.zeros((9, 3), bool), jnp.zeros((9, 3)), []
    cut = never
    for place in truncated:
        cut = cut.at[place].set(True)

    def value_of(obs: jax.Array) -> jax.Array:
        passes.append(obs.shape)
        return obs

    with jax.disable_jit():
        successor_values(value_of, value, value, never, cut)
    assert passes == [(3,)] * num_passes


def test_gae_keeps_environments_apart() -> None:
    alone = estimate(NONE, MIDDLE)[0]
    rewards = jnp.stack([jnp.array([1.0, 2.0, 3.0]), jnp.array([9.0, 9.0, 9.0])], axis=1)
    advantage, _ = gae(
        rewards,
        jnp.concatenate([NONE, MIDDLE], axis=1),
        jnp.concatenate([MIDDLE, NONE], axis=1),
        jnp.concatenate([column(1.0, 2.0, 3.0)] * 2, axis=1),
        jnp.concatenate([column(2.0, 30.0, 4.0)] * 2, axis=1),
        jnp.asarray(DISCOUNT),
        jnp.asarray(LAMBDA),
    )
    np.testing.assert_allclose(advantage[:, 0], alone, rtol=1e-6)


def test_gae_has_no_gradient() -> None:
    def total(value: jax.Array) -> jax.Array:
        numbers = jnp.asarray(DISCOUNT), jnp.asarray(LAMBDA)
        advantage, target = gae(column(1.0, 1.0), NONE[:2], NONE[:2], value, value, *numbers)
        return advantage.sum() + target.sum()

    assert not jax.jit(jax.grad(total))(column(1.0, 2.0)).any()


def test_the_clipped_value_loss_follows_no_change_beyond_epsilon() -> None:
    # v = 2, old 1, target 3, epsilon 0.5: clipped to 1.5; max(1, 2.25) / 2 = 1.125
    # v = 0, old 1, target 0, epsilon 0.5: clipped to 0.5; max(0, 0.25) / 2 = 0.125
    loss = clipped_value_loss(
        jnp.array([2.0, 0.0]), jnp.array([1.0, 1.0]), jnp.array([3.0, 0.0]), jnp.asarray(0.5)
    )
    np.testing.assert_allclose(loss, (1.125 + 0.125) / 2)


def test_explained_variance() -> None:
    target = jnp.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(explained_variance(target, target), 1.0)
    np.testing.assert_allclose(explained_variance(jnp.zeros(4), target), 0.0, atol=1e-6)


def test_a_forbidden_action_is_never_drawn_and_adds_no_entropy_or_gradient() -> None:
    logits = jnp.array([0.3, 5.0, 0.3])
    mask = jnp.array([True, False, True])
    policy = categorical(logits, mask)
    draws = jax.vmap(lambda key: policy.sample(key))(jax.random.split(jax.random.key(0), 200))
    assert sorted(set(np.asarray(draws).tolist())) == [0, 2]
    np.testing.assert_allclose(policy.entropy(), np.log(2.0), rtol=1e-6)
    np.testing.assert_allclose(policy.log_prob(jnp.asarray(0)), np.log(0.5), rtol=1e-6)
    assert int(policy.mode()) in (0, 2)
    gradient = jax.jit(jax.grad(lambda values: categorical(values, mask).entropy()))(logits)
    assert np.isfinite(gradient).all()
    assert gradient[1] == 0.0


@pytest.mark.parametrize("probability", [0.2, 0.5, 0.9])
def test_entropy_and_log_probability_of_two_actions(probability: float) -> None:
    policy = categorical(jnp.log(jnp.array([probability, 1.0 - probability])))
    expected = -probability * np.log(probability) - (1 - probability) * np.log(1 - probability)
    np.testing.assert_allclose(policy.entropy(), expected, rtol=1e-5)
    np.testing.assert_allclose(policy.log_prob(jnp.asarray(0)), np.log(probability), rtol=1e-5)


def test_returns_are_differentiated_by_discount_alone() -> None:
    """G_3 = 3 + 4d, G_2 = 2 + d (15 + G_3 / 2), G_1 = 1 + d (1 + G_2 / 2), at d = 0.9."""
    reward, value, next_value = column(1.0, 2.0, 3.0), column(1.0, 2.0, 3.0), column(2.0, 30.0, 4.0)

    def returns(discount: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        steps = (reward * scale, NONE, NONE, value * scale, next_value * scale)
        return gae(*steps, discount, jnp.asarray(LAMBDA))

    advantage, target = jax.jacfwd(returns)(jnp.asarray(DISCOUNT), jnp.asarray(1.0))
    expected = [1 + 18.47 / 2 + 0.9 * 20.1 / 2, 15 + 6.6 / 2 + 0.9 * 4 / 2, 4.0]
    np.testing.assert_allclose(target[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(advantage[:, 0], expected, rtol=1e-6)
    by_scale = jax.jacfwd(returns, argnums=1)(jnp.asarray(DISCOUNT), jnp.asarray(1.0))
    assert not np.any(by_scale[0]) and not np.any(by_scale[1])
