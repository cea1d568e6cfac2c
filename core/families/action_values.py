"""What DQN and its distributional variants share: exploration, replay and a target network."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp

from ..agent import AgentBase, AgentState, PolicyInput, PolicyOutput, Trajectory
from ..hyper import (
    CountByEnvironment,
    Number,
    between,
    by_environment,
    one_of,
    only_for,
    positive,
    unit_interval,
)
from ..network import Variables
from ..networks.architecture import ConvolutionConfig, NetworkSpec
from ..networks.heads import require_recurrent, require_single_steps
from ..rl.exploration import epsilon_greedy, greedy
from ..rl.learning import replay_and_learn
from ..rl.priorities import importance_weights
from ..rl.replay import PrioritizedReplayConfig, Replay
from ..rl.schedules import schedule
from ..rl.sequences import SequenceReplay
from ..rl.targets import is_multiple, polyak, target_of
from ..specs import Spec
from ..types import AnyConfig, AnyHyperparams, Metrics, PyTree, pytree_dataclass


@pytree_dataclass
class ReplayedQHyperparams:
    """Hyperparameters of an agent that learns action values from replay; a sweep may vary them.

    Attributes:
      learning_rate: of the optimizer.
      discount: of future rewards, within [0, 1].
      epsilon: probability of a random action.
      target_update_period: gradient steps between updates of the target network; rounded down.
      tau: weight of the online parameters in each update of the target's: 1 copies them, less
        averages them (Polyak).
      priority_exponent: of the error, in a step's priority; 0 samples uniformly.
      importance_sampling_exponent: of the weights that correct for priorities, within [0, 1].
      priority_eps: added to the absolute error, so that every step can be sampled.
      max_grad_norm: clip threshold of the global gradient norm.
      adam_eps: Adam's epsilon.
      rmsprop_decay: of RMSProp's average of squared gradients; None: optax's 0.9.
      rmsprop_eps: RMSProp's epsilon, inside the root; None: optax's 1e-8.
    """

    learning_rate: Number = 2.5e-4
    discount: Number = unit_interval(0.99)
    epsilon: Number = unit_interval(schedule("linear(1, 0.05, 250_000)"))
    target_update_period: Number = between(50.0, 1.0)
    tau: Number = unit_interval(1.0)
    priority_exponent: Number = only_for("prioritized", 0.6)
    importance_sampling_exponent: Number = only_for("prioritized", unit_interval(0.4))
    priority_eps: Number = only_for("prioritized", positive(1e-6))
    max_grad_norm: Number = between(10.0, 0.0)
    adam_eps: Number = only_for("optimizer", 1e-8)
    rmsprop_decay: Number | None = only_for("optimizer", between(None, 0.0, 1.0))
    rmsprop_eps: Number | None = only_for("optimizer", between(None, 0.0, above_low=True))


@dataclass(frozen=True, kw_only=True)
class ReplayedQConfig(ConvolutionConfig, PrioritizedReplayConfig):
    """Static configuration of an agent that learns action values from replay.

    Attributes:
      buffer_size: environment steps kept for replay, rounded up to whole rollouts. None: 100,000
        where observations have images, else 10,000.
      learning_starts: environment steps before the first gradient step. None: 20,000 where
        observations have images, else 10,000.
      double: let the online network choose the action that the target network evaluates.
      dueling: sum a value and advantages in the network's head.
      hidden_sizes: units of the hidden layers; None: 120 84, and those of the `torso` for images.
      normalization: of the outputs of each layer of the torso before the activation: `layer` or
        `none`.
    """

    num_envs: int = 10
    buffer_size: CountByEnvironment = by_environment(10_000, images=100_000)
    learning_starts: CountByEnvironment = by_environment(10_000, images=20_000)
    double: bool = False
    dueling: bool = only_for("networks", False)
    hidden_sizes: tuple[int, ...] | None = only_for("networks", None)
    normalization: str = only_for("networks", one_of("none", "layer"))

    vector_sizes: ClassVar[tuple[int, ...]] = (120, 84)


@pytree_dataclass
class ReplayedQState(AgentState):
    """Training state.

    Attributes:
      target: the target network's variables.
      replay: the replay's state.
    """

    target: Variables
    replay: PyTree


@pytree_dataclass
class ReplayedBatch:
    """What a loss reads.

    Attributes:
      sample: a `Sample` `[B, ...]`, or `Sequences` where the network is recurrent.
      target: the target network's variables.
      weight: of each sample, float32 `[B]`.
      hyper: float32 `[]` each.
    """

    sample: PyTree
    target: Variables
    weight: jax.Array
    hyper: AnyHyperparams


@dataclass(frozen=True)
class ReplayedQ(AgentBase, ABC):
    """Act epsilon-greedily on action values; learn them from replay, with a target network.

    After each rollout: add it to the replay; then, from `learning_starts` on, `num_gradient_steps`
    times, take a gradient step of `loss` on a sample, set the sample's priorities to the sizes of
    its errors, and every `target_update_period` steps move the target by `tau`.

    An algorithm has `networks`, whose heads a custom network must have too, `q_values` and `loss`;
    its `Config` and `Hyperparams` are subclasses of `ReplayedQConfig` and `ReplayedQHyperparams`.
    The network must not be recurrent, unless the class has `recurrent = True`: then it must be.
    """

    recurrent: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require = require_recurrent if self.recurrent else require_single_steps
        require(type(self).__name__, self.network)
        super().__post_init__()

    @staticmethod
    @abstractmethod
    def networks(obs_spec: Spec, action_spec: Spec, config: AnyConfig) -> dict[str, NetworkSpec]:
        """Describe the default networks by name."""

    @abstractmethod
    def q_values(self, variables: Variables, obs: PyTree, hyper: AnyHyperparams) -> jax.Array:
        """Compute the action values of observations `[B, ...]` from the heads.

        Returns:
          float32 `[B, num_actions]`.
        """

    @abstractmethod
    def loss(
        self, variables: Variables, batch: ReplayedBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, PyTree]]:
        """Average the samples' losses, multiplied by `batch.weight`.

        Returns:
          The loss, float32 `[]`, with the metrics and the network's new state. Among the metrics is
          `td_errors`, float32 `[B]`, whose absolute values become the samples' priorities.
        """

    @property
    def heads(self) -> dict[str, tuple[int, ...]]:
        described = self.networks(self.obs_spec, self.action_spec, self.config)
        return {name: head.shape for spec in described.values() for name, head in spec.heads}

    @property
    def replay(self) -> Replay | SequenceReplay:
        """The replay buffer; one of sequences has another `update`."""
        return Replay.of(self.config, self.obs_spec, self.action_spec)

    def init(
        self, key: jax.Array, num_envs: int, hyper: AnyHyperparams | None = None
    ) -> ReplayedQState:
        learned = super().init(key, num_envs, hyper)
        target = target_of(learned.learner.variables)
        return ReplayedQState(**vars(learned), target=target, replay=self.replay.init())

    def action_values(self, state: ReplayedQState, obs: PyTree) -> jax.Array:
        """Estimate the action values, float32 `[B, num_actions]`, by the online network."""
        return self.q_values(state.learner.variables, obs, state.hyper)

    def importance_sampling_exponent(self, state: ReplayedQState) -> jax.Array:
        """Return the exponent of the weights that correct for priorities, float32 `[]`."""
        return state.hyper.importance_sampling_exponent

    def act(
        self,
        state: ReplayedQState,
        carry: PyTree,
        inputs: PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> PolicyOutput:
        q = self.action_values(state, inputs.obs)
        return self.act_on(q, state, carry, inputs, key, explore=explore)

    def act_on(
        self,
        q: jax.Array,
        state: ReplayedQState,
        carry: PyTree,
        inputs: PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> PolicyOutput:
        """Act on given action values `[N, num_actions]`, epsilon-greedily if `explore`."""
        action = greedy(q, inputs.action_mask)
        if explore:
            epsilon = state.hyper.epsilon
            action = epsilon_greedy(action, q.shape[-1], inputs.action_mask, epsilon, key)
        return PolicyOutput(action=action, carry=carry, extras={})

    def update(
        self, state: ReplayedQState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[ReplayedQState, Metrics]:
        replay = self.replay
        assert isinstance(replay, Replay)
        state, metrics = replay_and_learn(
            replay, self.config, state, trajectory, self._learn_from, key
        )
        return state, {**metrics, "epsilon": state.hyper.epsilon}

    def _learn_from(
        self, state: ReplayedQState, sample: PyTree, key: jax.Array
    ) -> tuple[ReplayedQState, Metrics]:
        """Take one gradient step; then update the priorities and the target network."""
        hyper = state.hyper
        weight = jnp.ones_like(sample.probability)
        if self.config.prioritized:
            exponent = self.importance_sampling_exponent(state)
            weight = importance_weights(sample.probability, exponent)
        batch = ReplayedBatch(sample=sample, target=state.target, weight=weight, hyper=hyper)
        learner, metrics = self.learner.step(state.learner, self.loss, batch, key, hyper)
        error = jnp.abs(metrics.pop("td_errors"))
        priority = (error + hyper.priority_eps) ** hyper.priority_exponent
        moved = polyak(learner.variables, state.target, hyper.tau)
        is_time = is_multiple(learner.num_gradient_steps, hyper.target_update_period)
        return replace(
            state,
            learner=learner,
            target=jax.tree.map(lambda new, old: jnp.where(is_time, new, old), moved, state.target),
            replay=self.replay.update_priorities(state.replay, sample.slot, priority),
        ), {**metrics, "td_error": error.mean()}
