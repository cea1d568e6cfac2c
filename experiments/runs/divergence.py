"""Noticing that a training has gone wrong, and saying where it began."""

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
    """Say which metric was no number first, in which update and seed; None where all is well.

    Whether all is well is asked of the parameters: a metric may be NaN where there was nothing to
    measure, as a loss is before a replay is filled.

    Args:
      env_name: the environment's, in case it is to blame.
      state: after the updates, `[S, ...]`.
      metrics: of the updates, `[S, updates]` by name.
      num_updates: updates done before these.
    """
    leaves = jax.tree.leaves(state.agent, is_leaf=lambda node: isinstance(node, LearnerState))
    params = [leaf.variables.params for leaf in leaves if isinstance(leaf, LearnerState)]
    if _finite(params):
        return None
    done = num_updates + next(iter(metrics.values())).shape[1]
    found = f"a parameter is no number after update {done:,}"
    for name in ("loss", "grad_norm"):
        wrong = np.argwhere(~np.isfinite(metrics.get(name, np.zeros((1, 1)))).T)
        if len(wrong):
            update, seed = wrong[0]
            value = metrics[name][seed, update]
            found = f"{name} is {value} in update {num_updates + update + 1:,} of seed {seed}"
            break
    given = _given(state, metrics)
    return f"{found}; {env_name} gave {given} that are no finite numbers" if given else found


def _given(state: RunnerState, metrics: Mapping[str, np.ndarray]) -> str | None:
    """Name what an environment gave that was no number, as far as it can still be seen."""
    if not hasattr(state.env, "obs"):  # host environments are checked step by step
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
