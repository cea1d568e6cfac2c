"""Epochs of minibatches from a rollout."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ..hyper import Number
from ..learner import leave_out
from ..types import Key, Metrics, PyTree


def epochs_of_minibatches(
    step: Callable[[PyTree, PyTree, Key], tuple[PyTree, Metrics]],
    state: PyTree,
    batch: PyTree,
    key: Key,
    *,
    num_epochs: int,
    num_minibatches: int,
    epochs: Number | None = None,
    stop: Callable[[Metrics], jax.Array] | None = None,
) -> tuple[PyTree, Metrics]:
    """Take one step on each minibatch of several epochs, each of them in an order of its own.

    Args:
      step: `step(state, minibatch, key) -> (state, metrics)`.
      state: such as a `LearnerState`.
      batch: samples `[B, ...]`.
      key: for the orders, and one key for each step.
      num_epochs: passes over the batch.
      num_minibatches: steps in one pass; must divide `B`.
      epochs: float `[]` above 0, how many of the passes count, such as 2.5 of 4: later steps are
        computed and left out, so that it may differ between seeds. None: all.
      stop: `stop(metrics) -> bool []`; the first step whose metrics it accepts, and all that
        follow, are computed and left out. None: nothing stops.

    Returns:
      The state after the last step, and the average metrics; with `stop` those of the steps that
      were taken, and `skipped_steps`, the fraction of steps that it left out.
    """
    batch_size, num_steps = len(jax.tree.leaves(batch)[0]), num_epochs * num_minibatches
    shuffle_key, step_key = jax.random.split(key)
    shuffle = jax.vmap(lambda k: jax.random.permutation(k, batch_size))
    order = shuffle(jax.random.split(shuffle_key, num_epochs)).reshape(num_steps, -1)

    def on_minibatch(state: PyTree, step_data: tuple[jax.Array, Key]) -> tuple[PyTree, Metrics]:
        indices, own_key = step_data
        return step(state, jax.tree.map(lambda leaf: leaf[indices], batch), own_key)

    steps = order, jax.random.split(step_key, num_steps)
    if stop is not None:
        return _until(stop, on_minibatch, state, steps, epochs, num_minibatches)
    if epochs is None:
        state, metrics = jax.lax.scan(on_minibatch, state, steps)
        return state, jax.tree.map(jnp.mean, metrics)
    left = jnp.arange(num_steps, dtype=jnp.float32) >= epochs * num_minibatches

    def unless_left(
        state: PyTree, step_and_left: tuple[PyTree, jax.Array]
    ) -> tuple[PyTree, Metrics]:
        after, metrics = on_minibatch(state, step_and_left[0])
        return leave_out(step_and_left[1], state, after), metrics

    state, metrics = jax.lax.scan(unless_left, state, (steps, left))
    return state, jax.tree.map(lambda rows: jnp.mean(rows, where=~left), metrics)


def _until(
    stop: Callable[[Metrics], jax.Array],
    on_minibatch: Callable[[PyTree, PyTree], tuple[PyTree, Metrics]],
    state: PyTree,
    steps: PyTree,
    epochs: Number | None,
    num_minibatches: int,
) -> tuple[PyTree, Metrics]:
    """Take the steps until one is to stop; the arguments are those of `epochs_of_minibatches`."""
    num_steps = len(steps[0])
    last = num_steps if epochs is None else epochs * num_minibatches
    late = jnp.arange(num_steps, dtype=jnp.float32) >= last

    def unless_stopped(
        before: tuple[PyTree, jax.Array], step_and_late: tuple[PyTree, jax.Array]
    ) -> tuple[tuple[PyTree, jax.Array], tuple[Metrics, jax.Array]]:
        state, stopped = before
        after, metrics = on_minibatch(state, step_and_late[0])
        stopped = stopped | stop(metrics)
        left = stopped | step_and_late[1]
        return (leave_out(left, state, after), stopped), (metrics, left)

    start = state, jnp.zeros((), bool)
    (state, _), (metrics, left) = jax.lax.scan(unless_stopped, start, (steps, late))
    # Without any step, the metrics of the first one say why.
    shown = (~left).at[0].set(True)
    averages = jax.tree.map(lambda rows: jnp.mean(rows, where=shown), metrics)
    skipped = jnp.sum(left & ~late) / jnp.sum(~late)
    return state, {**averages, "skipped_steps": skipped}


def flatten(tree: PyTree) -> PyTree:
    """Reshape `[T, N, ...]` to samples `[T * N, ...]`."""
    return jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[2:])), tree)


def swap_time(tree: PyTree) -> PyTree:
    """Transpose `[T, N, ...]` to `[N, T, ...]`, or back."""
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), tree)
