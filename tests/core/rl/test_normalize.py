"""Running statistics agree with NumPy's over all samples at once."""

import jax
import jax.numpy as jnp
import numpy as np

from triglot.core.rl.normalize import RunningStats, discounted_sums


def test_statistics_joined_piece_by_piece_are_those_of_the_whole() -> None:
    pieces = [
        np.random.default_rng(i).normal(3.0, 2.0, (n, 5, 2)) for i, n in enumerate((1, 7, 30))
    ]
    stats = RunningStats.zero((2,))
    for piece in pieces:
        stats = stats.add(jnp.asarray(piece, jnp.float32))
    whole = np.concatenate(pieces).reshape(-1, 2)
    assert float(stats.count) == len(whole)
    np.testing.assert_allclose(stats.mean, whole.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(stats.variance, whole.var(axis=0), rtol=1e-5)
    normalized = stats.normalize(jnp.asarray(whole, jnp.float32))
    np.testing.assert_allclose(normalized.std(axis=0), 1.0, rtol=1e-4)
    np.testing.assert_allclose(normalized.mean(axis=0), 0.0, atol=1e-4)


def test_before_the_first_sample_nothing_changes_and_outliers_are_cut() -> None:
    stats = RunningStats.zero(())
    samples = jnp.array([[-1.0, 0.5], [100.0, -100.0]])
    np.testing.assert_allclose(stats.normalize(samples), [[-1.0, 0.5], [10.0, -10.0]], rtol=1e-6)


def test_discounted_sums_by_hand() -> None:
    reward = jnp.array([[1.0], [2.0], [4.0], [8.0]])
    first = jnp.array([[False], [False], [True], [False]])
    sums_of = jax.jit(discounted_sums)
    last, sums = sums_of(jnp.array([6.0]), reward, first=first, discount=0.5)
    # 1 + 3, 2 + 2, then anew: 4, 8 + 2.
    np.testing.assert_allclose(sums[:, 0], [4.0, 4.0, 4.0, 10.0])
    np.testing.assert_allclose(last, [10.0])
    # An episode that starts with the first step drops what another one, cut before it, left.
    last, sums = sums_of(last, reward[:2], first=first[2:], discount=0.5)
    np.testing.assert_allclose(sums[:, 0], [1.0, 2.5])
