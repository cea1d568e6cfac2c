"""One library of a comparison: its experiment, and its parameters by the names that all share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from ...core.agent import Agent
from ...core.environment import Environment
from ...core.experiment import Experiment, evaluation_key
from ...core.loop.state import RunnerState
from ...core.loop.trainer import Trainer
from ...core.network import Variables
from ...core.types import AnyAgentState, Params
from ...runs import identity
from ...runs.registry.environments import make_env
from ..options import CompareOptions
from ..results import Arrays
from ..rungs import Rung, rung_of_arithmetic
from . import networks, probes
from .random_policy import random_return

MAX_CHUNK_UPDATES, MIN_CHUNKS = 64, 16


@dataclass(frozen=True, eq=False, kw_only=True)
class LibraryExperiment:
    """The experiment of one library, with fingerprints of its parameters among the metrics.

    Attributes:
      options: of the comparison.
      backend: the library.
      rung: what all libraries share.
      env: one of the comparison's environments.
      agent: the algorithm with the library's network.
    """

    options: CompareOptions
    backend: str
    rung: Rung
    env: Environment
    agent: Agent

    @classmethod
    def build(
        cls,
        options: CompareOptions,
        backend: str,
        *,
        rung: Rung | None = None,
        env: Environment | None = None,
    ) -> "LibraryExperiment":
        """Build the agent of a library.

        Args:
          options: of the comparison.
          backend: the library.
          rung: what all libraries share; None for the rung that is judged.
          env: one of the comparison's environments; None for the first.

        Raises:
          TriglotError: if the parts do not fit each other.
        """
        rung = rung or rung_of_arithmetic(options.arithmetic)
        env = env or make_env(options.env)
        agent = networks.build_agent(options, env, backend, rung)
        return cls(options=options, backend=backend, rung=rung, env=env, agent=agent)

    @cached_property
    def names(self) -> networks.SharedNames:
        """Converts the network's parameters to and from the shared names."""
        options, reference = self.options, None
        if options.network and self.backend != options.libraries[0]:
            first = options.libraries[0]
            reference = networks.build_agent(options, self.env, first, self.rung).network
        mapping = networks.read_mapping(options.mapping).get(self.backend)
        return networks.shared_names(self.agent.network, reference, mapping)

    @cached_property
    def experiment(self) -> Experiment:
        """The training of all seeds."""
        options = self.options
        experiment = Experiment(
            self.agent,
            self.env,
            key=jax.random.key(options.seed),
            total_steps=options.total_steps,
            num_seeds=options.num_seeds,
            most_devices=options.devices or 1,
            monitor=identity.fingerprints(self.names.encode),
        )
        chunk_size = max(1, min(MAX_CHUNK_UPDATES, experiment.num_updates // MIN_CHUNKS))
        return replace(experiment, chunk_size=chunk_size)

    @property
    def trainer(self) -> Trainer:
        """The agent in its environments."""
        trainer = self.experiment.trainer
        assert isinstance(trainer, Trainer)  # a comparison needs environments in JAX
        return trainer

    @cached_property
    def outputs(self) -> probes.Outputs:
        """The network's outputs on a fixed set of inputs."""
        return probes.Outputs(self.agent, self.env)

    def start_from(self, path: Path) -> RunnerState:
        """Initialize every seed with the weights `[S, ...]` of a file, by shared name.

        Raises:
          TriglotError: if the architectures differ.
        """
        weights = load_file(path)
        params = self._learned(self.experiment.shapes.agent).params
        named = jax.eval_shape(jax.vmap(self.names.encode), params)
        here, there = (
            {name: array.shape for name, array in arrays.items()} for arrays in (named, weights)
        )
        identity.check_architecture(self.backend, here, there)
        arrays = {name: jnp.asarray(array) for name, array in weights.items()}
        return self.experiment.start(jax.vmap(self.names.decode)(arrays))

    def named_params(self, state: RunnerState) -> Arrays:
        """Name every seed's parameters, `[S, ...]`."""
        named = self._encode(self._learned(state.agent).params)
        return {name: np.asarray(array) for name, array in named.items()}

    def probe(self, state: RunnerState) -> Arrays:
        """Compute the parts of the first update for the first seed; see `probes`."""
        state = jax.tree.map(lambda leaf: leaf[0], state)
        variables = identity.learned(state.agent)
        return probes.probe(self.agent, state, variables, self.names, self.outputs)

    def snapshot(self, state: RunnerState) -> Arrays:
        """Return every seed's parameters, and the network's outputs on the fixed inputs."""
        outputs = self._outputs_of_seeds(self._learned(state.agent))
        return {
            **{f"params/{name}": array for name, array in self.named_params(state).items()},
            **{f"outputs/{name}": np.asarray(array) for name, array in outputs.items()},
        }

    def random_return(self) -> float:
        """Estimate the return of uniformly random actions."""
        key = evaluation_key(self.experiment.key, self.options.num_seeds, 1)
        return random_return(self.env, key, num_episodes=self.options.eval_episodes)

    def _learned(self, agent_state: AnyAgentState) -> Variables:
        return self.experiment.whole(identity.learned(agent_state))

    @cached_property
    def _encode(self) -> Callable[[Params], dict[str, jax.Array]]:
        return jax.jit(jax.vmap(self.names.encode))

    @cached_property
    def _outputs_of_seeds(self) -> Callable[[Variables], dict[str, jax.Array]]:
        return jax.jit(jax.vmap(self.outputs))
