"""Tabular control: Q-learning, SARSA and expected SARSA, which differ by one target.

Source: Sutton and Barto 2018, http://incompleteideas.net/book/the-book-2nd.html, sections 6.4 to
6.6: after each step `Q(s, a) += learning_rate * (target - Q(s, a))` with `target = reward +
discount * next_value`, and the next action uses the updated values.
Differences: a truncated episode bootstraps from its true last observation, where SARSA, which has
no action there, takes the expectation under its policy. With several environments, all transitions
of a step are learned at once: targets use the values from before, and changes of one entry add up
(with many environments at one entry, lower the learning rate).
"""

from dataclasses import dataclass, fields, replace
from typing import Literal

import jax
import jax.numpy as jnp

from .. import rl

Method = Literal["q_learning", "sarsa", "expected_sarsa"]
METHODS = ("q_learning", "sarsa", "expected_sarsa")
QLearningHyperparams = rl.TabularHyperparams


@dataclass(frozen=True, kw_only=True)
class QLearningConfig(rl.TabularConfig):
    """Static configuration of tabular control.

    Attributes:
      method: the target. `q_learning`: the maximum of the next values. `sarsa`: the value of the
        next action taken. `expected_sarsa`: the expectation of the next values under the policy.
    """

    method: Method = rl.one_of(*METHODS)


@rl.pytree_dataclass
class Step:
    """Transitions to learn from, as in `Trajectory`; `next_action_mask` is never None."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    next_obs: jax.Array
    next_action_mask: jax.Array
    truncated: jax.Array


@rl.pytree_dataclass
class QLearningState(rl.AgentState):
    """Training state; `pending` is SARSA's last step `[1, N]`, until its next action is taken."""

    pending: Step | None = None


@dataclass(frozen=True)
class QLearning(rl.Tabular):
    """The agent; its network gives `q` `[B, num_actions]`.

    A lookup table makes the update the classic rule. Observations and actions are `Discrete`.
    """

    config: QLearningConfig = QLearningConfig()

    Config = QLearningConfig
    title = "Q-learning"

    def init(
        self, key: jax.Array, num_envs: int, hyper: rl.TabularHyperparams | None = None
    ) -> QLearningState:
        learned = super().init(key, num_envs, hyper)
        if self.config.method != "sarsa":
            return QLearningState(**vars(learned))
        obs, action = (rl.zeros(spec, 1, num_envs) for spec in (self.obs_spec, self.action_spec))
        # Before the first step, one that changes nothing: it ends, and pays its present value.
        value = rl.at_action(self.values(learned.learner, obs[0]), action[0])[None]
        pending = Step(
            obs=obs,
            action=action,
            reward=value,
            terminated=jnp.ones((1, num_envs), bool),
            next_obs=obs,
            next_action_mask=jnp.ones((1, num_envs, self.actions.num_values), bool),
            truncated=jnp.zeros((1, num_envs), bool),
        )
        return QLearningState(**vars(learned), pending=pending)

    def learn(
        self, state: QLearningState, step: rl.Trajectory, key: jax.Array
    ) -> tuple[QLearningState, rl.Metrics]:
        """Move towards the target; SARSA's is that of the step before."""
        hyper, known = state.hyper, step
        if state.pending is not None:
            known, pending = self._await_next_action(state.pending, step)
            state = replace(state, pending=pending)
        next_value = self._next_value(state, known, step.action)
        target = known.reward + hyper.discount * jnp.where(known.terminated, 0.0, next_value)
        learner, metrics = self.move(state.learner, known.obs, known.action, target, key, hyper)
        return replace(state, learner=learner), metrics

    def _await_next_action(self, pending: Step, step: rl.Trajectory) -> tuple[Step, Step]:
        """Take the pending step, and keep back the given one, whose next action is unknown.

        Where the given one starts an episode, the pending one has an end, or was cut from outside.
        """
        values = {field.name: getattr(step, field.name) for field in fields(Step)}
        if values["next_action_mask"] is None:
            shape = (*step.truncated.shape, self.actions.num_values)
            values["next_action_mask"] = jnp.ones(shape, bool)
        last = jax.tree.map(lambda leaf: leaf[None], Step(**values))
        before = jax.tree.map(lambda leaf: leaf[0], pending)
        truncated = rl.truncated_or_cut(before.terminated, before.truncated, step.first)
        return replace(before, truncated=truncated), last

    def _next_value(
        self, state: QLearningState, step: rl.Trajectory | Step, next_action: jax.Array
    ) -> jax.Array:
        """Estimate the values of the successors, `[N]`, in which the three methods differ.

        Args:
          state: with the table.
          step: the transitions.
          next_action: for SARSA, the actions taken after them.
        """
        q, mask = self.values(state.learner, step.next_obs), step.next_action_mask
        if self.config.method == "q_learning":
            return jnp.max(rl.mask_q(q, mask), axis=-1)
        expected = rl.epsilon_greedy_value(q, state.hyper.epsilon, mask)
        if self.config.method == "expected_sarsa":
            return expected
        return jnp.where(step.truncated, expected, rl.at_action(q, next_action))
