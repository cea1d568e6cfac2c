"""Load a finished or interrupted run from its folder, and its weights by canonical name."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..core.agent import Agent
from ..core.environment import Environment
from ..core.errors import check_path
from ..core.host_environment import HostEnvironment
from ..core.network import Variables
from ..core.rl.normalize import RunningStats
from ..core.types import AnyAgentState
from .identity import codec_of, learned
from .plan import prepare
from .resume.restoring import restore
from .storage.config import options_of_run

FILE = "weights.safetensors"
MEAN, VARIANCE = "observation/mean", "observation/variance"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run read from its folder.

    Attributes:
      agent: the algorithm with its network.
      env: the single environment.
      agent_states: `[S, ...]`, one entry per seed, from the checkpoint.
      num_updates: updates done at that checkpoint.
    """

    agent: Agent
    env: Environment | HostEnvironment
    agent_states: AnyAgentState
    num_updates: int


def load_run(
    folder: str | Path, *, previous: bool = False, trust: bool = False, checkpoint: str = "last"
) -> Run:
    """Load the agent, its states and the environment from a folder of `triglot train`.

    Args:
      folder: the run directory.
      previous: if the last checkpoint is damaged, use the one before it.
      trust: import the custom code that the run names, although this user did not begin it here.
      checkpoint: last; or best, the one with the highest evaluated return.

    Raises:
      TriglotError: if the folder is not a run directory, it names code that is not trusted, or its
        last checkpoint is missing or damaged.
    """
    check_path("folder", folder)
    plan = prepare(options_of_run(Path(folder), trust=trust), folder=Path(folder), training=False)
    progress = restore(plan, previous=previous, kind=checkpoint)
    if progress.warning:
        warnings.warn(f"{folder}: {progress.warning}", stacklevel=2)
    state: Any = progress.state
    return Run(
        agent=plan.agent,
        env=plan.env,
        agent_states=state.agent,
        num_updates=progress.num_updates,
    )


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


def stats_of(agent_states: AnyAgentState) -> RunningStats | None:
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


def _is_stats(node: object) -> bool:
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
