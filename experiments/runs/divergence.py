"""Detect NaN and infinite parameters, and find the first update that caused them."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.learner import LearnerState
from ...core.loop.state import RunnerState


def divergence(
    env_name: str, state: RunnerState, metrics: Mapping[str, np.ndarray], num_updates: int
) -> str | None:
    """Describe a divergence: the first metric that is NaN or infinite, its update and seed.

    Only parameters decide whether there is one. A metric may be NaN because there was nothing to
    measure, such as a loss before the replay buffer is filled.

    Args:
      env_name: the environment's name, in case its values caused the divergence.
      state: the state after the updates, `[S, ...]`.
      metrics: metrics of the updates, `[S, updates]` by name.
      num_updates: updates done before these.

    Returns:
      The description, or None if all parameters are finite.
    """
    leaves = jax.tree.leaves(state.agent, is_leaf=lambda node: isinstance(node, LearnerState))
    params = [leaf.variables.params for leaf in leaves if isinstance(leaf, LearnerState)]
    if _finite(params):
        return None
    done = num_updates + next(iter(metrics.values())).shape[1]
    found = f"a parameter is NaN or infinite after update {done:,}"
    for name in ("loss", "grad_norm"):
        wrong = np.argwhere(~np.isfinite(metrics.get(name, np.zeros((1, 1)))).T)
        if len(wrong):
            update, seed = wrong[0]
            value = metrics[name][seed, update]
            found = f"{name} is {value} in update {num_updates + update + 1:,} of seed {seed}"
            break
    source = _nonfinite_source(state, metrics)
    return f"{found}; {env_name} returned NaN or infinite {source}" if source else found


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


def _finite(tree: Any) -> bool:
    floats = (a for a in jax.tree.leaves(tree) if jnp.issubdtype(a.dtype, jnp.inexact))
    return all(bool(jnp.isfinite(array).all()) for array in floats)
