"""Detect parameters that are NaN, infinite or absurdly large; keep a state from before them."""

import time
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from ..learner import LearnerState
from ..rl.replay import ReplayState
from ..rl.sequences import SequenceReplayState
from ..types import PyTree, on_data
from .sharding import on_host
from .state import RunnerState

# Trained networks stay below 1e3; a step of Adam is about as large as its learning rate.
ABSURD = 1e6
# A copy of the state is made at most so often that it takes this share of the training's time.
_SHARE_OF_TIME = 0.02


def divergence(
    env_name: str,
    state: RunnerState,
    metrics: Mapping[str, np.ndarray],
    num_updates: int,
    num_empty: int = 0,
) -> str | None:
    """Describe a divergence: the first metric that is NaN or infinite, its update and seed.

    Only parameters decide whether there is one. A metric may be NaN because there was nothing to
    measure, such as a loss before the replay buffer is filled.

    Args:
      env_name: the environment's name, in case its values caused the divergence.
      state: the state after the updates, `[S, ...]`.
      metrics: metrics of the updates, `[S, updates]` by name.
      num_updates: updates done before these.
      num_empty: updates without a loss at the start of the training.

    Returns:
      The description, or None if all parameters are finite.
    """
    if np.isfinite(largest_parameter(state)):
        return None
    done = num_updates + next(iter(metrics.values())).shape[1]
    description = f"a parameter is NaN or infinite after update {done:,}"
    skipped = max(0, num_empty - num_updates)
    for name in ("loss", "grad_norm"):
        if name not in metrics:
            continue
        values = metrics[name][:, skipped:]
        # NaN before the last finite value was not the divergence: it does not go away.
        last_finite = np.where(np.isfinite(values), np.arange(values.shape[1]), -1).max(
            1, initial=-1
        )
        update, seed = min((last + 1, seed) for seed, last in enumerate(last_finite))
        if update < values.shape[1]:
            number = num_updates + skipped + update + 1
            description = f"{name} is {values[seed, update]} in update {number:,} of seed {seed}"
            break
    source = _nonfinite_source(state, metrics)
    return f"{description}; {env_name} returned NaN or infinite {source}" if source else description


def updates_before_learning(learning_starts: int, steps_per_update: int) -> int:
    """Count the updates at the start of a training that have no loss: the replay is being filled.

    Args:
      learning_starts: environment steps before the first gradient step.
      steps_per_update: environment steps of one update.
    """
    return max(0, -(-learning_starts // steps_per_update) - 1)


class LastFinite:
    """A copy of the last states whose parameters were finite, on the host.

    Replays are not copied: they are large, and hold only what the environment returned.
    """

    def __init__(self, state: RunnerState) -> None:
        """Copy the first states, `[S, ...]`."""
        self._take(state)

    def update(self, state: RunnerState) -> None:
        """Copy states whose parameters are finite, unless the last copy is recent."""
        if time.perf_counter() - self._taken > self._seconds / _SHARE_OF_TIME:
            self._take(state)

    def restore(self, state: RunnerState, num_seeds: int) -> RunnerState:
        """Return the copy, with the replays of the last states, on one device.

        Args:
          state: the last states, gathered from all devices.
          num_seeds: `S`.
        """

        def choose(now: PyTree, kept: PyTree) -> PyTree:
            if _is_replay(now):
                return now
            return on_data(lambda array: jnp.asarray(array[:num_seeds]), kept)

        return jax.tree.map(choose, state, self._kept, is_leaf=_is_replay)

    def _take(self, state: RunnerState) -> None:
        start = time.perf_counter()

        def copy(node: PyTree) -> PyTree:
            return None if _is_replay(node) else _host_copy(node)

        self._kept = jax.tree.map(copy, state, is_leaf=_is_replay)
        self._taken = time.perf_counter()
        self._seconds = self._taken - start


def _is_replay(node: object) -> bool:
    return isinstance(node, ReplayState | SequenceReplayState)


def _host_copy(leaf: jax.Array) -> PyTree:
    # The training donates the states, and `np.asarray` may return a view of them.
    return on_data(lambda array: np.array(on_host(array)), leaf)  # pyright: ignore


def absurd_parameters(state: RunnerState) -> str | None:
    """Describe parameters that are finite and too large to mean anything; None if there are none.

    A learning rate that is far too high often ends there instead of in NaN.
    """
    largest = largest_parameter(state)
    if not ABSURD < largest < np.inf:
        return None
    return (
        f"a parameter has grown to {largest:.3g}, so the training has probably diverged: try a "
        "lower learning rate"
    )


def largest_parameter(state: RunnerState) -> float:
    """Find the largest absolute value of all seeds' parameters; NaN if one is NaN."""
    leaves = jax.tree.leaves(state.agent, is_leaf=lambda node: isinstance(node, LearnerState))
    params = [leaf.variables.params for leaf in leaves if isinstance(leaf, LearnerState)]
    # In NumPy, since JAX would compile two programs for each shape.
    sizes = [np.abs(on_host(array)).max() for array in _floats(params) if array.size]
    return float(np.max(sizes, initial=0.0))


def _nonfinite_source(state: RunnerState, metrics: Mapping[str, np.ndarray]) -> str | None:
    """Find out whether the environment returned non-finite observations or rewards."""
    if not hasattr(state.env, "obs"):  # host environments are checked at every step
        return None
    if not _finite(state.env.obs):
        return "observations"
    ended = metrics["episode_return"][metrics["num_episodes"] > 0]
    if not np.isfinite(ended).all() or not _finite(state.env.episode_return):
        return "rewards"
    return None


def _finite(tree: PyTree) -> bool:
    return all(bool(jnp.isfinite(array).all()) for array in _floats(tree))


def _floats(tree: PyTree) -> list[jax.Array]:
    return [a for a in jax.tree.leaves(tree) if jnp.issubdtype(a.dtype, jnp.inexact)]
