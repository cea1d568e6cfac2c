"""The trained weights of one seed by canonical name, and `weights.safetensors`."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ..core.network import Variables
from ..core.rl.normalize import RunningStats
from .identity import codec_of, learned
from .load import Run

FILE = "weights.safetensors"
MEAN, VARIANCE = "observation/mean", "observation/variance"


def variables_of(run: Run, seed_index: int) -> Variables:
    """Select the variables of one seed, structured as those of the agent's network.

    Raises:
      TriglotError: if the agent's state holds no learner.
    """
    return jax.tree.map(lambda leaf: leaf[seed_index], learned(run.agent_states))


def named_weights(run: Run, seed_index: int) -> dict[str, np.ndarray]:
    """Name the parameters of one seed canonically, in canonical layouts.

    Raises:
      TriglotError: if the network has no codec.
    """
    named = codec_of(run.agent.network).encode(variables_of(run, seed_index).params)
    return {name: np.asarray(named[name]) for name in sorted(named)}


def stats_of(agent_states: Any) -> RunningStats | None:
    """Find the statistics by which an agent normalizes observations; None without."""
    leaves = jax.tree_util.tree_leaves_with_path(agent_states, is_leaf=_is_stats)
    named = [(getattr(path[-1], "name", ""), node) for path, node in leaves if _is_stats(node)]
    return next((node for name, node in named if name == "obs_stats"), None)


def statistics_of(run: Run, seed_index: int) -> dict[str, np.ndarray]:
    """Return the mean and the variance by which observations are normalized; empty without."""
    stats = stats_of(run.agent_states)
    if stats is None:
        return {}
    arrays = {MEAN: stats.mean, VARIANCE: stats.variance}
    return {name: np.asarray(array[seed_index]) for name, array in arrays.items()}


def _is_stats(node: Any) -> bool:
    return isinstance(node, RunningStats)


def safetensors_files(run: Run, seed_index: int, facts: Mapping[str, str]) -> dict[str, bytes]:
    """Encode all weights and the statistics of observations as `weights.safetensors`.

    Args:
      run: a run.
      seed_index: which of its seeds.
      facts: metadata of the file.

    Returns:
      The file's contents by its name.

    Raises:
      TriglotError: as `named_weights`.
    """
    from safetensors.numpy import save

    arrays = {**named_weights(run, seed_index), **statistics_of(run, seed_index)}
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return {FILE: save(whole, dict(facts))}
