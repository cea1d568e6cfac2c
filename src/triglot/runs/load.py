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
from ..core.experiment import Experiment, updates_of
from ..core.host_environment import AnyEnvironment, HostEnvironment
from ..core.loop.state import RunnerState
from ..core.network import Variables
from ..core.rl.normalize import RunningStats
from ..core.types import AnyAgentState
from .identity import codec_of, learned
from .plan import Plan, prepare
from .resume.restoring import restore
from .storage.config import options_of_run

FILE = "weights.safetensors"
MEAN, VARIANCE = "observation/mean", "observation/variance"


@dataclass(frozen=True, kw_only=True)
class Run:
    """Trained agents, such as those of a checkpoint.

    Attributes:
      agent: the algorithm with its network.
      env: the single environment.
      agent_states: `[S, ...]`, one entry per seed.
      num_updates: updates done.
    """

    agent: Agent
    env: Environment | HostEnvironment
    agent_states: AnyAgentState
    num_updates: int

    @classmethod
    def of(cls, experiment: Experiment, state: RunnerState) -> "Run":
        """Select the trained agents of an experiment in the states `[S, ...]`."""
        return cls(
            agent=experiment.agent,
            env=experiment.env,
            agent_states=state.agent,
            num_updates=updates_of(state),
        )


def read_run(
    folder: str | Path,
    *,
    previous: bool = False,
    trust: bool = False,
    checkpoint: str = "last",
    agent: Agent | None = None,
    env: AnyEnvironment | None = None,
) -> tuple[Plan, RunnerState]:
    """Read a folder of `triglot train` or of `triglot.train`; see `triglot.load_run`.

    Returns:
      The training, and the states `[S, ...]` of the checkpoint.

    Raises:
      TriglotError: as `triglot.load_run`.
    """
    check_path("folder", folder)
    path, parts = Path(folder), {"agent": agent, "env": env}
    plan = prepare(options_of_run(path, trust=trust, **parts), folder=path, training=False, **parts)
    progress = restore(plan, previous=previous, kind=checkpoint)
    if progress.warning:
        warnings.warn(f"{folder}: {progress.warning}", stacklevel=3)
    assert progress.state is not None  # there is a checkpoint
    return plan, progress.state


def run_of(folder: str | Path, **options: Any) -> Run:
    """Read the trained agents of a folder; `options` as of `read_run`."""
    plan, state = read_run(folder, **options)
    return Run.of(plan.experiment, state)


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
