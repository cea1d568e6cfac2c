"""Tabular control: Q-learning, SARSA and expected SARSA, which differ by one target.

Source: Sutton and Barto 2018, http://incompleteideas.net/book/the-book-2nd.html, sections 6.4 to
6.6: after each step `Q(s, a) += learning_rate * (target - Q(s, a))` with `target = reward +
discount * next_value`, and the next action uses the updated values.
Differences: a truncated episode bootstraps from its true last observation, where SARSA, which has
no action there, takes the expectation under its policy. With several environments, all transitions
of a step are learned at once: targets use the values from before, and changes of one entry add up
(with many environments at one entry, lower the learning rate).
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp

from .. import nn, rl

Method = Literal["q_learning", "sarsa", "expected_sarsa"]
METHODS = ("q_learning", "sarsa", "expected_sarsa")


@rl.pytree_dataclass
class QLearningHyperparams:
    """Hyperparameters of tabular control, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: step size towards the target, within [0, 1].
      discount: of future rewards, within [0, 1].
      epsilon: probability of an action drawn uniformly, within [0, 1].
    """

    learning_rate: rl.Number = rl.unit_interval(0.1)
    discount: rl.Number = rl.unit_interval(0.99)
    epsilon: rl.Number = rl.unit_interval(0.1)


@dataclass(frozen=True, kw_only=True)
class QLearningConfig(rl.AgentConfig):
    """Static configuration of tabular control.

    Attributes:
      method: the target. `q_learning`: the maximum of the next values. `sarsa`: the value of the
        next action taken. `expected_sarsa`: the expectation of the next values under the policy.
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between two reports of metrics, `T`; it learns after every
        step.
      initial_value: of every entry of the table; above what can be earned, it makes the agent try
        every action.
    """

    method: Method = rl.one_of(*METHODS)
    num_envs: int = 1
    rollout_length: int = 1024
    initial_value: float = rl.only_for("networks", rl.finite(0.0))


@rl.pytree_dataclass
class Step:
    """Transitions to learn from, `[T, N]` each; None where a method does not use it.

    Attributes:
      obs, action, reward, terminated, next_obs: as in `Trajectory`.
      next_action_mask: bool `[T, N, num_actions]`, or None where all are allowed.
      truncated: for SARSA, as in `Trajectory`: no next action is taken there.
      next_action: for SARSA, the action taken after this one.
    """

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    next_obs: jax.Array
    next_action_mask: jax.Array | None = None
    truncated: jax.Array | None = None
    next_action: jax.Array | None = None


@rl.pytree_dataclass
class QLearningState(rl.AgentState):
    """Training state; `pending` is SARSA's last step `[1, N]`, until its next action is taken."""

    pending: Step | None = None


@dataclass(frozen=True)
class QLearning(rl.AgentBase):
    """The agent; its network gives `q` `[B, num_actions]`.

    A lookup table makes the update the classic rule. Observations and actions are `Discrete`.
    """

    config: QLearningConfig = QLearningConfig()
    hyper: QLearningHyperparams = QLearningHyperparams()
    optimizer: rl.OptimizerFn = rl.sgd

    Config = QLearningConfig
    Hyperparams = QLearningHyperparams
    online = True

    @property
    def heads(self) -> dict[str, tuple[int, ...]]:
        _discrete("observations", self.obs_spec)
        return {"q": (self._actions.num_values,)}

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: QLearningConfig = QLearningConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the table `q`."""
        _discrete("observations", obs_spec)
        head = nn.q_head(_discrete("actions", action_spec).num_values)
        return {"q": nn.NetworkSpec(obs_spec, nn.Table(config.initial_value), (("q", head),))}

    def init(self, key: jax.Array, num_envs: int, hyper: Any | None = None) -> QLearningState:
        learned = super().init(key, num_envs, hyper)
        if self.config.method != "sarsa":
            return QLearningState(**vars(learned))
        obs, action = (rl.zeros(spec, 1, num_envs) for spec in (self.obs_spec, self.action_spec))
        # Before the first step, one that changes nothing: it ends, and pays its present value.
        value = select(self._values(learned.learner, obs[0]), action[0])[None]
        pending = Step(
            obs=obs,
            action=action,
            reward=value,
            terminated=jnp.ones((1, num_envs), bool),
            next_obs=obs,
            next_action_mask=jnp.ones((1, num_envs, self._actions.num_values), bool),
            truncated=jnp.zeros((1, num_envs), bool),
        )
        return QLearningState(**vars(learned), pending=pending)

    def act(
        self,
        state: QLearningState,
        carry: Any,
        inputs: rl.PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> rl.PolicyOutput:
        epsilon = state.hyper.epsilon if explore else jnp.zeros(())
        q = self.action_values(state, inputs.obs)
        uniform = jax.random.uniform(key, q.shape[:1])
        action = draw(rl.epsilon_greedy_probs(q, epsilon, inputs.action_mask), uniform)
        return rl.PolicyOutput(action=action.astype(self._actions.dtype), carry=carry, extras={})

    def update(
        self, state: QLearningState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[QLearningState, rl.Metrics]:
        shared = ("obs", "action", "reward", "terminated", "next_obs", "next_action_mask")
        steps, pending = Step(**{name: getattr(trajectory, name) for name in shared}), None
        if self.config.method == "sarsa":
            steps, pending = self._await_next_action(state, steps, trajectory.truncated)
        num_steps = trajectory.reward.shape[0]
        learner_state, metrics = jax.lax.scan(
            lambda learner_state, inputs: self._learn(learner_state, *inputs, state.hyper),
            state.learner,
            (steps, jax.random.split(key, num_steps)),
            unroll=num_steps == 1,
        )
        new_state = replace(state, learner=learner_state, pending=pending)
        return new_state, jax.tree.map(jnp.mean, metrics)

    def action_values(self, state: QLearningState, obs: jax.Array) -> jax.Array:
        """Look up the values of the actions, float32 `[B, num_actions]`."""
        return self._values(state.learner, obs)

    def _values(self, learner_state: rl.LearnerState, obs: jax.Array) -> jax.Array:
        return nn.apply_heads(self.network, learner_state.variables, obs)[0]["q"]

    @property
    def _actions(self) -> rl.Discrete:
        return _discrete("actions", self.action_spec)

    def _await_next_action(
        self, state: QLearningState, steps: Step, truncated: jax.Array
    ) -> tuple[Step, Step]:
        """Prepend the pending step, and keep back the last, whose next action is unknown."""
        mask = steps.next_action_mask
        if mask is None:
            mask = jnp.ones((*truncated.shape, self._actions.num_values), bool)
        steps = replace(steps, next_action_mask=mask, truncated=truncated)
        whole = jax.tree.map(lambda *parts: jnp.concatenate(parts), state.pending, steps)
        ready, last = jax.tree.map(lambda x: x[:-1], whole), jax.tree.map(lambda x: x[-1:], whole)
        return replace(ready, next_action=whole.action[1:]), last

    def _learn(
        self,
        learner_state: rl.LearnerState,
        step: Step,
        key: jax.Array,
        hyper: QLearningHyperparams,
    ) -> tuple[rl.LearnerState, rl.Metrics]:
        """Take one step on `[N]` transitions."""
        target = step.reward + hyper.discount * jnp.where(
            step.terminated, 0.0, self._next_value(learner_state, step, hyper)
        )

        def loss(outputs: Any, target: jax.Array) -> tuple[jax.Array, rl.Metrics]:
            error = target - select(nn.merge_heads(outputs)["q"], step.action)
            # The sum over environments, not the mean: each transition moves its value in full.
            return 0.5 * jnp.sum(error**2), {"td_error": jnp.mean(jnp.abs(error))}

        learner_state, metrics = self.learner.step_on_outputs(
            learner_state, step.obs, loss, target, key, hyper
        )
        # On a table the loss and the gradient norm are redundant, and cost a tenth of the time.
        return learner_state, {"td_error": metrics["td_error"]}

    def _next_value(
        self, learner_state: rl.LearnerState, step: Step, hyper: QLearningHyperparams
    ) -> jax.Array:
        """Estimate the values of the successors, `[N]`, in which the three methods differ."""
        q = self._values(learner_state, step.next_obs)
        maximum = jnp.max(rl.mask_q(q, step.next_action_mask), axis=-1)
        if self.config.method == "q_learning":
            return maximum
        # Equal maximum values share the rest of the probability, so that their mean is the maximum.
        mean = jnp.mean(q, axis=-1, where=step.next_action_mask)
        expected = hyper.epsilon * mean + (1.0 - hyper.epsilon) * maximum
        if step.next_action is None or step.truncated is None:
            return expected
        return jnp.where(step.truncated, expected, select(q, step.next_action))


def draw(policy: jax.Array, uniform: jax.Array) -> jax.Array:
    """Draw an action, int32 `[B]`, from each row of probabilities, with one random number each.

    Args:
      policy: float `[B, num_actions]`.
      uniform: float `[B]` within [0, 1).

    Source: inversion of the distribution function, Devroye 1986, section III.2.1.
    """
    num_actions = policy.shape[-1]
    up_to = jnp.tril(jnp.ones((num_actions, num_actions), policy.dtype))
    cumulative = jnp.sum(up_to[None] * policy[:, None, :], axis=-1)
    # Scaled to the sum, so that rounding never makes the last action more likely than it is.
    reached = uniform * cumulative[:, -1]
    return jnp.sum((reached[:, None] >= cumulative).astype(jnp.int32), axis=-1)


def select(q: jax.Array, action: jax.Array) -> jax.Array:
    """Pick `q[b, action[b]]`, `[B]`; its gradient is dense, which a small row is faster with."""
    chosen = jnp.arange(q.shape[-1], dtype=action.dtype)[None] == action[:, None]
    return jnp.sum(jnp.where(chosen, q, 0.0), axis=-1)


def _discrete(what: str, spec: rl.Spec) -> rl.Discrete:
    if not isinstance(spec, rl.Discrete):
        raise rl.TriglotError(
            f"Q-learning needs Discrete {what}, which index a table, and this environment's are "
            f"{spec}: choose an environment with Discrete {what}."
        )
    return spec
