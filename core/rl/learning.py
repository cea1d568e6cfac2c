"""Learning from replay: add a rollout, then take gradient steps once the replay holds enough."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp

from ..agent import Trajectory
from ..learner import steps_if_ready
from ..types import AnyAgentState, Metrics
from .replay import Replay, ReplayConfig, Sample

StateT = TypeVar("StateT")


def replay_and_learn(
    replay: Replay,
    config: ReplayConfig,
    state: StateT,
    trajectory: Trajectory,
    step: Callable[[StateT, Sample, jax.Array], tuple[StateT, Metrics]],
    key: jax.Array,
    *,
    action: jax.Array | None = None,
    num_batches: int | None = None,
) -> tuple[StateT, Metrics]:
    """Add a rollout to the replay; from `learning_starts` on, take K steps on a new sample each.

    Args:
      replay: of the agent.
      config: has `num_gradient_steps` K, `batch_size` B and `learning_starts`.
      state: of the agent, a pytree dataclass with `replay` and `hyper.discount`.
      trajectory: the rollout `[T, N, ...]`.
      step: `step(state, sample, key) -> (state, metrics)`, of samples `[B, ...]`.
      key: a typed key, split over the K steps.
      action: `[T, N, ...]`, stored instead of the rollout's actions.
      num_batches: D, batches for one call of `step`, which is then called K / D times on samples
        `[D, B, ...]`; None for samples `[B, ...]`.

    Returns:
      The state, and the averages of the steps' metrics (NaN before `learning_starts`) with
      `replay_size`.
    """
    before: AnyAgentState = state
    added = replay.add_trajectory(before.replay, trajectory, action=action)
    unmasked = trajectory.next_action_mask is None

    def sample_and_step(state: AnyAgentState, keys: jax.Array) -> tuple[AnyAgentState, Metrics]:
        discount = state.hyper.discount
        size = config.batch_size * (num_batches or 1)
        sample = replay.sample(state.replay, keys[0], size, discount)
        if unmasked:
            sample = replace(sample, action_mask=None, next_action_mask=None)
        if num_batches is not None:
            shape = num_batches, config.batch_size
            sample = jax.tree.map(partial(_divided, shape, replay.prioritized), sample)
        return step(state, sample, keys[1])

    ready = added.size >= config.learning_starts
    keys = jax.random.split(key, (config.num_gradient_steps // (num_batches or 1), 2))
    after, metrics = steps_if_ready(ready, sample_and_step, replace(before, replay=added), keys)
    return after, {**metrics, "replay_size": after.replay.size.astype(jnp.float32)}


def _divided(shape: tuple[int, int], interleaved: bool, leaf: jax.Array) -> jax.Array:
    """Divide `[D * B, ...]` into `D` batches `[D, B, ...]`.

    Samples by priority are sorted by slot: each batch takes every `D`-th one, so that it is of the
    whole replay.
    """
    num_batches, size = shape
    if not interleaved:
        return leaf.reshape((num_batches, size, *leaf.shape[1:]))
    return leaf.reshape((size, num_batches, *leaf.shape[1:])).swapaxes(0, 1)
