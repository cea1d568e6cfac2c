"""Tabular control: epsilon-greedy actions from a lookup table, which learns after every step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp

from ..agent import AgentBase, AgentConfig, AgentState, PolicyInput, PolicyOutput, Trajectory
from ..errors import TriglotError
from ..hyper import Number, finite, only_for, unit_interval
from ..learner import LearnerState
from ..networks.architecture import NetworkSpec, Table, q_head
from ..networks.heads import apply_heads, merge_heads
from ..rl.exploration import at_action, epsilon_greedy_probs, sample_probs
from ..rl.optimizers import OptimizerFn, sgd
from ..specs import Discrete, Spec, short_spec
from ..types import (
    AnyAgentState,
    AnyConfig,
    AnyHyperparams,
    Carry,
    Metrics,
    PyTree,
    pytree_dataclass,
)


@pytree_dataclass
class TabularHyperparams:
    """Hyperparameters of tabular control, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: step size towards the target, within [0, 1].
      discount: of future rewards, within [0, 1].
      epsilon: probability of an action drawn uniformly, within [0, 1].
    """

    learning_rate: Number = unit_interval(0.1)
    discount: Number = unit_interval(0.99)
    epsilon: Number = unit_interval(0.1)


@dataclass(frozen=True, kw_only=True)
class TabularConfig(AgentConfig):
    """Static configuration of tabular control.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between two reports of metrics, `T`; it learns after every
        step.
      initial_value: of every entry of the table; above what can be earned, it makes the agent try
        every action.
    """

    num_envs: int = 1
    rollout_length: int = 1024
    initial_value: float = only_for("networks", finite(0.0))


@dataclass(frozen=True)
class Tabular(AgentBase):
    """An agent whose network gives `q` `[B, num_actions]`; a subclass defines `learn`.

    Values are read through `network.apply` and changed by gradient steps, so that the table of any
    library will do. Observations and actions are `Discrete`.
    """

    config: AnyConfig = TabularConfig()
    hyper: AnyHyperparams = TabularHyperparams()
    optimizer: OptimizerFn = sgd

    Config = TabularConfig
    Hyperparams = TabularHyperparams
    title: ClassVar[str]  # for messages
    online = True

    @property
    def actions(self) -> Discrete:
        """The action spec."""
        return _discrete(self.title, "actions", self.action_spec)

    @property
    def num_states(self) -> int:
        """Number of observations, the rows of the table."""
        return _discrete(self.title, "observations", self.obs_spec).num_values

    @property
    def heads(self) -> Mapping[str, tuple[int, ...]]:
        _discrete(self.title, "observations", self.obs_spec)
        return {"q": (self.actions.num_values,)}

    @classmethod
    def networks(
        cls, obs_spec: Spec, action_spec: Spec, config: AnyConfig = TabularConfig()
    ) -> dict[str, NetworkSpec]:
        """Describe the table `q`."""
        _discrete(cls.title, "observations", obs_spec)
        head = q_head(_discrete(cls.title, "actions", action_spec).num_values)
        return {"q": NetworkSpec(obs_spec, Table(config.initial_value), (("q", head),))}

    def act(
        self,
        state: AnyAgentState,
        carry: Carry,
        inputs: PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> PolicyOutput:
        epsilon = state.hyper.epsilon if explore else jnp.zeros(())
        q = self.action_values(state, inputs.obs)
        uniform = jax.random.uniform(key, q.shape[:1])
        action = sample_probs(epsilon_greedy_probs(q, epsilon, inputs.action_mask), uniform)
        return PolicyOutput(action=action.astype(self.actions.dtype), carry=carry, extras={})

    def action_values(self, state: AgentState, obs: jax.Array) -> jax.Array:
        """Look up the values of the actions, float32 `[B, num_actions]`."""
        return self.values(state.learner, obs)

    def values(self, learner_state: LearnerState, obs: jax.Array) -> jax.Array:
        """Look up the values of the actions in a table, float32 `[B, num_actions]`."""
        return apply_heads(self.network, learner_state.variables, obs)[0]["q"]

    def update(
        self, state: AnyAgentState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[AnyAgentState, Metrics]:
        """Learn from one step after the other; the trainer gives one at a time."""
        num_steps = trajectory.reward.shape[0]
        state, metrics = jax.lax.scan(
            lambda state, inputs: self.learn(state, *inputs),
            state,
            (replace(trajectory, carry=()), jax.random.split(key, num_steps)),
            unroll=num_steps == 1,
        )
        return state, jax.tree.map(jnp.mean, metrics)

    def learn(
        self, state: AnyAgentState, step: Trajectory, key: jax.Array
    ) -> tuple[AnyAgentState, Metrics]:
        """Learn from one step of `N` environments, `[N, ...]`."""
        raise NotImplementedError

    def move(
        self,
        learner_state: LearnerState,
        obs: jax.Array,
        action: jax.Array,
        target: jax.Array,
        key: jax.Array,
        hyper: AnyHyperparams,
    ) -> tuple[LearnerState, Metrics]:
        """Move values towards targets, `Q(s, a) += learning_rate * (target - Q(s, a))`.

        All entries are learned at once: errors use the values from before, and changes of one entry
        add up.

        Args:
          learner_state: of the table.
          obs, action, target: `[N]`.
          key: for the network's own randomness.
          hyper: for the optimizer, which is SGD by default.

        Returns:
          The learner's state, and the mean absolute error `td_error`.
        """

        def loss(outputs: PyTree, target: jax.Array) -> tuple[jax.Array, Metrics]:
            error = target - at_action(merge_heads(outputs)["q"], action)
            # The sum over environments, not the mean: each transition moves its value in full.
            return 0.5 * jnp.sum(error**2), {"td_error": jnp.mean(jnp.abs(error))}

        learner_state, metrics = self.learner.step_on_outputs(
            learner_state, obs, loss, target, key, hyper
        )
        # On a table the loss and the gradient norm are redundant, and cost a tenth of the time.
        return learner_state, {"td_error": metrics["td_error"]}


def _discrete(title: str, what: str, spec: Spec) -> Discrete:
    if not isinstance(spec, Discrete):
        raise TriglotError(
            f"{title} needs Discrete {what}, which index a table, and this environment's are "
            f"{short_spec(spec)}: choose an environment with Discrete {what}."
        )
    return spec
