"""Epochs of minibatches visit every sample once an epoch; the linear decay ends at 0."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.core.rl.minibatches import epochs_of_minibatches, flatten, swap_time


def test_each_epoch_visits_every_sample_once_in_an_order_of_its_own() -> None:
    batch = {"number": jnp.arange(12), "square": jnp.arange(12) ** 2}

    def step(seen: tuple, minibatch: dict, key: jax.Array) -> tuple:
        numbers, keys, index = seen
        numbers = numbers.at[index].set(minibatch["number"])
        keys = keys.at[index].set(jax.random.key_data(key))
        agree = (minibatch["square"] == minibatch["number"] ** 2).all().astype(jnp.float32)
        return (numbers, keys, index + 1), {"agree": agree}

    start = (jnp.zeros((6, 4), jnp.int32), jnp.zeros((6, 2), jnp.uint32), jnp.zeros((), jnp.int32))
    (numbers, keys, count), metrics = epochs_of_minibatches(
        step, start, batch, jax.random.key(0), num_epochs=2, num_minibatches=3
    )
    epochs = np.asarray(numbers).reshape(2, 12)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), np.tile(np.arange(12), (2, 1)))
    assert (epochs[0] != epochs[1]).any()
    assert len({tuple(key) for key in np.asarray(keys)}) == int(count) == 6
    assert float(metrics["agree"]) == 1.0


@pytest.mark.covering(4)
@pytest.mark.parametrize(("epochs", "taken"), [(0.1, 1), (1.0, 3), (1.5, 5), (2.0, 6)])
def test_steps_beyond_a_part_of_the_epochs_are_left_out(epochs: float, taken: int) -> None:
    """The state, the metrics and the random draws are those of the steps that count."""

    def step(total: jax.Array, minibatch: jax.Array, key: jax.Array) -> tuple:
        total = total + minibatch.sum() * jax.random.uniform(key)
        return total, {"total": total}

    how: Any = {"num_epochs": 2, "num_minibatches": 3}
    given = step, jnp.zeros(()), jnp.arange(12.0), jax.random.key(0)
    rows: list[float] = []

    def noted(total: jax.Array, minibatch: jax.Array, key: jax.Array) -> tuple:
        after, metrics = step(total, minibatch, key)
        rows.append(float(after))
        return after, metrics

    with jax.disable_jit():
        epochs_of_minibatches(noted, *given[1:], **how)
    masked = jax.jit(lambda epochs: epochs_of_minibatches(*given, epochs=epochs, **how))
    total, metrics = masked(jnp.float32(epochs))
    np.testing.assert_allclose(total, rows[taken - 1], rtol=1e-6)
    np.testing.assert_allclose(metrics["total"], np.mean(rows[:taken]), rtol=1e-6)


def test_rearranging_a_rollout() -> None:
    steps = {"obs": jnp.arange(12.0).reshape(2, 3, 2), "reward": jnp.arange(6.0).reshape(2, 3)}
    flat, swapped = flatten(steps), swap_time(steps)
    np.testing.assert_array_equal(flat["reward"], np.arange(6.0))
    np.testing.assert_array_equal(flat["obs"], np.arange(12.0).reshape(6, 2))
    np.testing.assert_array_equal(swapped["reward"], [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
    assert swapped["obs"].shape == (3, 2, 2)
