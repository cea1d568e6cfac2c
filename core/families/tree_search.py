"""What AlphaZero and MuZero share: a replay of what searches found, and learning from it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from ..agent import AgentBase, AgentState, PolicyInput, PolicyOutput, Trajectory
from ..hyper import Number, between, only_for, unit_interval
from ..learner import steps_if_ready
from ..network import Variables
from ..networks.architecture import ConvolutionConfig
from ..rl.search import (
    Found,
    Node,
    SearchConfig,
    SearchHyperparams,
    search,
    search_targets_like,
    with_search_targets,
)
from ..rl.sequences import SequenceReplay, SequenceReplayConfig, SequenceReplayState
from ..types import AnyAgentState, AnyHyperparams, Metrics, PyTree, pytree_dataclass


@pytree_dataclass
class TreeSearchHyperparams(SearchHyperparams):
    """Hyperparameters of an agent that learns from its searches; a sweep may vary them.

    Attributes:
      learning_rate: of the optimizer.
      discount: of future rewards, within [0, 1].
      td_lambda: of the lambda-returns; 1 takes rewards up to the rollout's end.
      value_coef: weight of the value loss.
      max_grad_norm: clip threshold of the global gradient norm.
      adam_eps: Adam's epsilon.
    """

    learning_rate: Number = 1e-3
    discount: Number = unit_interval(0.99)
    td_lambda: Number = unit_interval(0.95)
    value_coef: Number = 0.5
    max_grad_norm: Number = between(1.0, 0.0)
    adam_eps: Number = only_for("optimizer", 1e-8)


@dataclass(frozen=True, kw_only=True)
class TreeSearchConfig(ConvolutionConfig, SearchConfig, SequenceReplayConfig):
    """Static configuration of an agent that learns from its searches.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`.
      batch_size: samples in one gradient step, `B`.
      hidden_sizes: units of the hidden layers of each network.
    """

    num_envs: int = 16
    rollout_length: int = 16
    num_gradient_steps: int = 16
    batch_size: int = 128
    buffer_size: int = 4096
    learning_starts: int = 1024
    hidden_sizes: tuple[int, ...] = only_for("networks", (64, 64))


@pytree_dataclass
class TreeSearchState(AgentState):
    """What is learned, and the steps from which it is learned."""

    replay: SequenceReplayState


@dataclass(frozen=True)
class TreeSearch(AgentBase, ABC):
    """An agent that searches before it acts; a subclass has `tree`, `value` and `loss`.

    After each rollout: compute the targets (`with_search_targets`), and add the steps to the
    replay; then, from `learning_starts` on, take `num_gradient_steps` gradient steps of `loss`.
    """

    @abstractmethod
    def tree(
        self, state: AnyAgentState, inputs: PolicyInput
    ) -> tuple[Node, Callable[[PyTree, jax.Array, jax.Array], Node]]:
        """Return the roots of the searches at `inputs` `[N, ...]`, and `expand`; see `search`."""

    @abstractmethod
    def value(self, variables: Variables, obs: PyTree) -> jax.Array:
        """Estimate V of observations `[B, ...]`, float32 `[B]`."""

    @abstractmethod
    def loss(
        self, variables: Variables, batch: tuple[Trajectory, AnyHyperparams], key: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, PyTree]]:
        """Average over the replayed steps `[L, B, ...]` of `batch`, beside the hyperparameters.

        Returns:
          The loss, float32 `[]`, with the metrics and the network's new state.
        """

    @property
    def reanalyzes(self) -> bool:
        """Whether replayed steps are searched again, by `reanalyze`."""
        return False

    def reanalyze(self, state: AnyAgentState, steps: Trajectory, key: jax.Array) -> Trajectory:
        """Replace targets of replayed steps `[L, B, ...]` by newer ones."""
        del state, key
        return steps

    @property
    def replay(self) -> SequenceReplay:
        """The replay buffer, of sequences of `config.sequence_length` steps."""
        return SequenceReplay.of(self.config, self.obs_spec, self.action_spec)

    def init(
        self, key: jax.Array, num_envs: int, hyper: AnyHyperparams | None = None
    ) -> TreeSearchState:
        learned = super().init(key, num_envs, hyper)
        extras = search_targets_like(self.action_spec, num_envs)
        return TreeSearchState(**vars(learned), replay=self.replay.init(extras=extras))

    def initial_carry(self, state: AnyAgentState, num_envs: int) -> PyTree:
        """Count the moves of an episode, int32 `[N]`, where it matters how many there were."""
        del state
        counts = self.config.num_sampling_moves is not None
        return jnp.zeros((num_envs,), jnp.int32) if counts else ()

    def act(
        self,
        state: AnyAgentState,
        carry: PyTree,
        inputs: PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> PolicyOutput:
        moves = None
        if self.config.num_sampling_moves is not None:
            moves = jnp.where(inputs.first, 0, carry)
            carry = moves + 1
        result = self.search(state, inputs, key, explore=explore, moves=moves)
        return PolicyOutput(action=result.action, carry=carry, extras=result.extras)

    def search(
        self,
        state: AnyAgentState,
        inputs: PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
        moves: jax.Array | None = None,
    ) -> Found:
        """Search at `inputs` `[N, ...]`; see `core.rl.search.search`."""
        root, expand = self.tree(state, inputs)
        search_args = key, self.config, state.hyper
        return search(root, expand, *search_args, explore=explore, moves=moves)

    def update(
        self, state: TreeSearchState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[TreeSearchState, Metrics]:
        def value_of(obs: PyTree) -> jax.Array:
            return self.value(state.learner.variables, obs)

        hyper = state.hyper
        stored = with_search_targets(trajectory, value_of, hyper.discount, hyper.td_lambda)
        replay = self.replay.add(state.replay, replace(stored, carry=()))
        added = replace(state, replay=replay)

        def step(state: TreeSearchState, keys: jax.Array) -> tuple[TreeSearchState, Metrics]:
            steps = self.replay.sample(state.replay, keys[0], self.config.batch_size).steps
            if self.reanalyzes:
                steps = self.reanalyze(state, steps, keys[2])
            batch = (steps, hyper)
            learner, metrics = self.learner.step(state.learner, self.loss, batch, keys[1], hyper)
            return replace(state, learner=learner), metrics

        ready = added.replay.size >= self.config.learning_starts
        keys = jax.random.split(key, (self.config.num_gradient_steps, 3 if self.reanalyzes else 2))
        return steps_if_ready(ready, step, added, keys)
