"""`--debug nans`: the update, the parameter and the operation at which a training diverged."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.agent import Trajectory
from ..core.errors import describe
from ..core.experiment import Experiment
from ..core.host.trainer import HostProgram
from ..core.learner import LearnerState
from ..core.loop.chunks import Chunk
from ..core.loop.state import RunnerState
from ..core.loop.trainer import Program, Trainer
from ..core.tracing.nans import NanSource, find_nan_source
from ..core.types import AnyAgentState, Params, PyTree, by_path, on_data


class NanFinder:
    """Trains one update at a time, and keeps the states before it to explain a NaN.

    Args:
      experiment: the training.
      program: of it.
    """

    def __init__(self, experiment: Experiment, program: Program) -> None:
        self._experiment, self._program = experiment, program
        self._before: RunnerState | None = None

    def chunks(self, state: RunnerState, **options: Any) -> Iterator[Chunk]:
        """Train as `Experiment.chunks`, in chunks of one update."""
        self._before = _copied(state)
        options = {**options, "boundaries": [1], "program": self._program}
        for chunk in self._experiment.chunks(state, **options):
            yield chunk
            self._before = _copied(chunk.runner_states)

    def explain(self, state: RunnerState) -> str:
        """Name the first parameter that is not finite, and the operation that made a NaN.

        Args:
          state: `[S, ...]`, after the update that diverged.
        """
        params = by_path(_params(state.agent))
        wrong = {path: _where(leaf) for path, leaf in params.items()}
        path, seeds = next((path, indices) for path, indices in wrong.items() if indices)
        text = f"parameter {path} is NaN or infinite"
        try:
            source = self._source(seeds[0])
        except Exception as error:  # an operation that cannot be evaluated alone
            return f"{text}; its first NaN was not found ({describe(error)})"
        if source is None:
            return f"{text}; no operation returned NaN: it grew until it was infinite"
        return f"{text}; the first NaN is the result of {source}"

    def _source(self, seed: int) -> NanSource | None:
        assert self._before is not None  # an update has been made
        before = jax.tree.map(lambda leaf: leaf[seed], self._before)
        trainer, agent = self._experiment.trainer, self._experiment.agent
        if isinstance(trainer, Trainer):
            return find_nan_source(lambda state: trainer.update(state)[0].agent, before, of=_params)
        program = self._program
        if not isinstance(program, HostProgram) or program.learned_from is None:
            return None
        trajectory, words = jax.tree.map(lambda leaf: jnp.asarray(leaf[seed]), program.learned_from)
        key = jax.random.wrap_key_data(words, impl=jax.random.key_impl(self._before.key))

        def learn(state: AnyAgentState, trajectory: Trajectory) -> PyTree:
            return agent.update(state, trajectory, key)[0]

        return find_nan_source(learn, before.agent, trajectory, of=_params)


def _params(agent_state: AnyAgentState) -> list[Params]:
    """List the parameters that an agent's learners train."""
    leaves = jax.tree.leaves(agent_state, is_leaf=_is_learner)
    return [leaf.variables.params for leaf in leaves if _is_learner(leaf)]


def _is_learner(node: object) -> bool:
    return isinstance(node, LearnerState)


def _where(leaf: jax.Array) -> list[int]:
    """List the seeds in which an array `[S, ...]` is not finite."""
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return []
    finite = np.isfinite(np.asarray(leaf, np.float32)).reshape(len(leaf), -1).all(axis=1)
    return np.flatnonzero(~finite).tolist()


def _copied(state: RunnerState) -> RunnerState:
    return jax.tree.map(lambda leaf: on_data(jnp.copy, leaf), state)
