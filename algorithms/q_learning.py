"""Tabular control: Q-learning, SARSA and expected SARSA, which differ by one target.

Source: Sutton and Barto 2018, http://incompleteideas.net/book/the-book-2nd.html, sections 6.4 to
6.6: after each step `Q(s, a) += learning_rate * (target - Q(s, a))` with `target = reward +
discount * next_value`, and the next action is chosen by what was just learned.
Differences: a truncated episode is bootstrapped from its true last observation, where SARSA, since
nobody takes an action there, expects one of its policy. Of several environments, all transitions of
a step are learned from at once: each target is from before, and the changes of one entry add up
(with many environments at one entry, lower the learning rate).
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from ..core.agent import PolicyInput, PolicyOutput, Trajectory
from ..core.errors import TriglotError, unknown
from ..core.hyper import UNIT_INTERVAL, check_counts, check_ranges
from ..core.learner import Learner, LearnerState, Number
from ..core.network import Network
from ..core.networks.architecture import NetworkSpec, Table, q_head
from ..core.networks.heads import check_heads, merge_heads
from ..core.specs import Discrete, Spec, zeros

Method = Literal["q_learning", "sarsa", "expected_sarsa"]
METHODS = ("q_learning", "sarsa", "expected_sarsa")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class QLearningHyperparams:
    """The numbers of tabular control, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: how far a value moves towards its target, within [0, 1].
      discount: of future rewards, within [0, 1].
      epsilon: probability of an action drawn uniformly, within [0, 1].
    """

    learning_rate: Number = 0.1
    discount: Number = 0.99
    epsilon: Number = 0.1


@dataclass(frozen=True, kw_only=True)
class QLearningConfig:
    """The choices and counts of tabular control, fixed when it is compiled.

    Attributes:
      method: whose target is learned. `q_learning`: the greatest next value. `sarsa`: the value of
        the next action taken. `expected_sarsa`: the next values' expectation under the policy.
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between two reports of metrics, `T`; learning happens after
        every one of them.
      initial_value: of every entry of the table; above what can be earned, it makes the agent try
        everything.
    """

    method: Method = "q_learning"
    num_envs: int = 1
    rollout_length: int = 1024
    initial_value: float = 0.0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown("method of Q-learning", str(self.method), METHODS)
        check_counts("Q-learning", self)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Step:
    """Transitions to learn from, `[T, N]` each; None where a method needs no such thing.

    Attributes:
      obs, action, reward, terminated, next_obs: as in `Trajectory`.
      next_action_mask: bool `[T, N, num_actions]`, or None where all are allowed.
      truncated: of SARSA, as in `Trajectory`: there, nobody takes the next action.
      next_action: of SARSA, the action taken after this one.
    """

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    next_obs: jax.Array
    next_action_mask: jax.Array | None = None
    truncated: jax.Array | None = None
    next_action: jax.Array | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class QLearningState:
    """Everything the agent has learned, and its numbers.

    Attributes:
      learner: the table and the optimizer's state.
      hyper: float32 `[]` each.
      pending: of SARSA, the last step, `[1, N]`, which is learned from once the next action is
        taken; None for the others.
    """

    learner: LearnerState
    hyper: QLearningHyperparams
    pending: Step | None = None


@dataclass(frozen=True)
class QLearning:
    """The agent.

    Attributes:
      network: gives `q` `[B, num_actions]`; a lookup table makes the update the classic rule.
      obs_spec: must be `Discrete`.
      action_spec: must be `Discrete`.
      config: choices and counts.
      hyper: the numbers it starts from.

    Raises:
      TriglotError: if observations or actions are not discrete, the network's outputs do not fit,
        or a number is out of its range.
    """

    network: Network
    obs_spec: Spec
    action_spec: Spec
    config: QLearningConfig = QLearningConfig()
    hyper: QLearningHyperparams = QLearningHyperparams()

    Config = QLearningConfig
    Hyperparams = QLearningHyperparams
    online = True

    def __post_init__(self) -> None:
        check_ranges("Q-learning", self.hyper, dict.fromkeys(vars(self.hyper), UNIT_INTERVAL))
        _discrete("observations", self.obs_spec)
        needs = {"q": (self._actions.num_values,)}
        check_heads(self.network, self.obs_spec, needs, algorithm="Q-learning")

    @staticmethod
    def networks(
        obs_spec: Spec, action_spec: Spec, config: QLearningConfig = QLearningConfig()
    ) -> dict[str, NetworkSpec]:
        """Describe the table Q-learning uses where nobody brings another network."""
        _discrete("observations", obs_spec)
        head = q_head(_discrete("actions", action_spec).num_values)
        return {"q": NetworkSpec(obs_spec, Table(config.initial_value), (("q", head),))}

    @property
    def num_envs(self) -> int:
        return self.config.num_envs

    @property
    def rollout_length(self) -> int:
        return self.config.rollout_length

    @property
    def learner(self) -> Learner:
        make = optax.inject_hyperparams(optax.sgd)
        return Learner(self.network, make(learning_rate=self.hyper.learning_rate))

    def init(
        self, key: jax.Array, num_envs: int, hyper: QLearningHyperparams | None = None
    ) -> QLearningState:
        numbers = jax.tree.map(
            lambda number: jnp.asarray(number, jnp.float32), self.hyper if hyper is None else hyper
        )
        learner_state = self.learner.init(key)
        if self.config.method != "sarsa":
            return QLearningState(learner=learner_state, hyper=numbers)
        obs, action = (zeros(spec, 1, num_envs) for spec in (self.obs_spec, self.action_spec))
        # Before the first step, one that changes nothing: its end pays what it is thought worth.
        worth = select(self._values(learner_state, obs[0]), action[0])[None]
        nothing = Step(
            obs=obs,
            action=action,
            reward=worth,
            terminated=jnp.ones((1, num_envs), bool),
            next_obs=obs,
            next_action_mask=jnp.ones((1, num_envs, self._actions.num_values), bool),
            truncated=jnp.zeros((1, num_envs), bool),
        )
        return QLearningState(learner=learner_state, hyper=numbers, pending=nothing)

    def initial_carry(self, state: QLearningState, num_envs: int) -> tuple:
        return ()

    def act(
        self,
        state: QLearningState,
        carry: Any,
        inputs: PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> PolicyOutput:
        epsilon = state.hyper.epsilon if explore else jnp.zeros(())
        q = self.action_values(state, inputs.obs)
        uniform = jax.random.uniform(key, q.shape[:1])
        action = draw(epsilon_greedy(q, epsilon, inputs.action_mask), uniform)
        return PolicyOutput(action=action.astype(self._actions.dtype), carry=carry, extras={})

    def update(
        self, state: QLearningState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[QLearningState, dict[str, jax.Array]]:
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

    def _values(self, learner_state: LearnerState, obs: jax.Array) -> jax.Array:
        outputs, _ = self.network.apply(learner_state.variables, obs)
        return merge_heads(outputs)["q"]

    @property
    def _actions(self) -> Discrete:
        return _discrete("actions", self.action_spec)

    def _await_next_action(
        self, state: QLearningState, steps: Step, truncated: jax.Array
    ) -> tuple[Step, Step]:
        """Put what was pending before the steps, and keep back the last, whose next is unknown."""
        mask = steps.next_action_mask
        if mask is None:
            mask = jnp.ones((*truncated.shape, self._actions.num_values), bool)
        steps = replace(steps, next_action_mask=mask, truncated=truncated)
        whole = jax.tree.map(lambda *parts: jnp.concatenate(parts), state.pending, steps)
        ready, last = jax.tree.map(lambda x: x[:-1], whole), jax.tree.map(lambda x: x[-1:], whole)
        return replace(ready, next_action=whole.action[1:]), last

    def _learn(
        self, learner_state: LearnerState, step: Step, key: jax.Array, hyper: QLearningHyperparams
    ) -> tuple[LearnerState, dict[str, jax.Array]]:
        """Take one step on `[N]` transitions."""
        target = step.reward + hyper.discount * jnp.where(
            step.terminated, 0.0, self._next_value(learner_state, step, hyper)
        )

        def loss(outputs: Any, target: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
            error = target - select(merge_heads(outputs)["q"], step.action)
            # The sum over environments, not the mean: each transition moves its value in full.
            return 0.5 * jnp.sum(error**2), {"td_error": jnp.mean(jnp.abs(error))}

        rate = {"learning_rate": hyper.learning_rate}
        learner_state, metrics = self.learner.step_on_outputs(
            learner_state, step.obs, loss, target, key, rate
        )
        # On a table the loss and the gradient's norm say the same again, and cost a tenth.
        return learner_state, {"td_error": metrics["td_error"]}

    def _next_value(
        self, learner_state: LearnerState, step: Step, hyper: QLearningHyperparams
    ) -> jax.Array:
        """Value the successors, `[N]`: all that the three methods differ in."""
        q = self._values(learner_state, step.next_obs)
        greatest = jnp.max(_allowed(q, step.next_action_mask), axis=-1)
        if self.config.method == "q_learning":
            return greatest
        # Equal greatest values share the rest of the probability: their expectation is theirs.
        mean = jnp.mean(q, axis=-1, where=step.next_action_mask)
        expected = hyper.epsilon * mean + (1.0 - hyper.epsilon) * greatest
        if step.next_action is None or step.truncated is None:
            return expected
        return jnp.where(step.truncated, expected, select(q, step.next_action))


def epsilon_greedy(q: jax.Array, epsilon: Number, action_mask: jax.Array | None) -> jax.Array:
    """Compute the probabilities of an epsilon-greedy policy; equal values share them equally.

    Args:
      q: float `[B, num_actions]`.
      epsilon: probability of drawing uniformly from the allowed actions.
      action_mask: bool `[B, num_actions]`, or None where all are allowed.

    Returns:
      Float `[B, num_actions]`; sums to 1 up to rounding.

    >>> epsilon_greedy(jnp.array([[1.0, 3.0, 3.0, 0.0]]), 0.5, None).tolist()
    [[0.125, 0.375, 0.375, 0.125]]
    """
    allowed = jnp.ones_like(q) if action_mask is None else action_mask.astype(q.dtype)
    q = _allowed(q, action_mask)
    best = (q == q.max(axis=-1, keepdims=True)).astype(q.dtype)

    def share(actions: jax.Array) -> jax.Array:
        return actions / actions.sum(axis=-1, keepdims=True)

    return epsilon * share(allowed) + (1.0 - epsilon) * share(best)


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


def _allowed(q: jax.Array, action_mask: jax.Array | None) -> jax.Array:
    return q if action_mask is None else jnp.where(action_mask, q, -jnp.inf)


def _discrete(what: str, spec: Spec) -> Discrete:
    if not isinstance(spec, Discrete):
        raise TriglotError(
            f"Q-learning keeps a table and needs discrete {what}, and this environment's are "
            f"{spec}: choose an environment whose {what} are Discrete."
        )
    return spec
