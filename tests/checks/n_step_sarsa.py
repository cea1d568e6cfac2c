"""Expected SARSA with returns of several steps; each broken agent joins episodes by one line."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from triglot import nn, rl
from triglot.algorithms.a2c import A2C


@rl.pytree_dataclass
class SarsaHyperparams:
    """Hyperparameters.

    Attributes:
      learning_rate: of Adam.
      discount: of future rewards.
      epsilon: probability of a random action.
    """

    learning_rate: rl.Number = 1e-3
    discount: rl.Number = rl.unit_interval(0.9)
    epsilon: rl.Number = rl.unit_interval(0.2)


@dataclass(frozen=True, kw_only=True)
class SarsaConfig(rl.AgentConfig):
    """Static configuration.

    Attributes:
      n_step: rewards in a return.
      num_envs: environments.
      rollout_length: steps from each.
    """

    n_step: int = 3
    num_envs: int = 4
    rollout_length: int = 8


@rl.pytree_dataclass
class SarsaState(rl.AgentState):
    """State; `kept` `[N]` is what a broken agent carries from one rollout to the next."""

    kept: jax.Array


def _ages(kept: jax.Array, ended: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Count steps since the last that `ended`: what to keep after the rollout, and at each step."""
    first = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
    ones = jnp.ones(ended.shape, jnp.float32)
    last, number = rl.discounted_sums(kept, ones, first=first, discount=1.0)
    return jnp.where(ended[-1], 0.0, last), number


@dataclass(frozen=True)
class NStepSarsa(rl.AgentBase):
    """Learns from one rollout at a time, without a target network."""

    config: SarsaConfig = SarsaConfig()
    hyper: SarsaHyperparams = SarsaHyperparams()

    Config = SarsaConfig
    Hyperparams = SarsaHyperparams

    @property
    def heads(self) -> dict[str, tuple[int, ...]]:
        spec: Any = self.action_spec
        return {"q": (spec.num_values,)}

    @staticmethod
    def networks(obs_spec: Any, action_spec: Any, config: Any) -> dict[str, nn.NetworkSpec]:
        head = nn.q_head(action_spec.num_values)
        torso = nn.default_torso(obs_spec, (8,))
        return {"q_network": nn.NetworkSpec(obs_spec, torso, (("q", head),))}

    def init(self, key: jax.Array, num_envs: int, hyper: Any = None) -> SarsaState:
        return SarsaState(**vars(super().init(key, num_envs, hyper)), kept=jnp.zeros((num_envs,)))

    def q(self, variables: nn.Variables, obs: Any) -> jax.Array:
        return nn.apply_heads(self.network, variables, obs)[0]["q"]

    def act(
        self, state: Any, carry: Any, inputs: rl.PolicyInput, key: jax.Array, *, explore: bool
    ) -> rl.PolicyOutput:
        q = self.q(state.learner.variables, inputs.obs)
        action = rl.greedy(q, inputs.action_mask)
        if explore:
            epsilon = state.hyper.epsilon
            action = rl.epsilon_greedy(action, q.shape[-1], inputs.action_mask, epsilon, key)
        return rl.PolicyOutput(action=action, carry=carry, extras={})

    def update(self, state: Any, trajectory: rl.Trajectory, key: jax.Array) -> Any:
        t, hyper = trajectory, state.hyper
        q = self.q(state.learner.variables, rl.flatten(self.successor(t)))
        value = rl.epsilon_greedy_value(q, hyper.epsilon, self.next_mask(t))
        value = jnp.where(t.terminated, 0.0, value.reshape(t.reward.shape))
        target = self.returns(t, self.reward(t), value, self.discount(hyper))
        kept, weight = self.weight(state, t)
        batch = rl.flatten((t.obs, t.action, target, weight, t.next_obs))
        learner, metrics = self.learner.step(state.learner, self.loss, batch, key, hyper)
        return replace(state, learner=learner, kept=kept), metrics

    def returns(self, t: Any, reward: Any, value: Any, discount: Any) -> jax.Array:
        """Sum up to `n_step` rewards, and add the value after the last one."""
        target = single = reward + discount * value
        last = jnp.zeros_like(t.terminated).at[-1].set(True)
        for _ in range(self.config.n_step - 1):
            follows = jnp.concatenate([target[1:], target[-1:]])
            target = jnp.where(self.ends(t) | last, single, reward + discount * follows)
        return target

    def loss(self, variables: nn.Variables, batch: Any, key: jax.Array) -> Any:
        obs, action, target, weight, next_obs = batch
        heads, state = nn.apply_heads(self.network, variables, obs, key=key, train=True)
        target = target + self.with_gradient(variables, next_obs)
        error = self.errors(target, rl.at_action(heads["q"], action))
        return 0.5 * jnp.mean(weight * error**2), ({}, state)

    # What a broken agent replaces.

    def next_mask(self, t: rl.Trajectory) -> Any:
        return rl.flatten(t.next_action_mask)

    def discount(self, hyper: Any) -> jax.Array:
        return hyper.discount

    def errors(self, target: jax.Array, q: jax.Array) -> jax.Array:
        return target - q

    def with_gradient(self, variables: nn.Variables, next_obs: Any) -> jax.Array:
        """Return 0, with the gradient that targets have."""
        return jnp.zeros(())

    def ends(self, t: rl.Trajectory) -> jax.Array:
        return t.terminated | t.truncated

    def successor(self, t: rl.Trajectory) -> Any:
        return t.next_obs

    def reward(self, t: rl.Trajectory) -> jax.Array:
        return t.reward

    def weight(self, state: Any, t: rl.Trajectory) -> tuple[jax.Array, jax.Array]:
        """Weigh an episode's steps by 0.9 to the power of their number."""
        age, number = _ages(state.kept, self.ends(t))
        return age, 0.9**number


class EndsTerminated(NStepSarsa):
    """Its returns go on over truncated ends."""

    def ends(self, t: rl.Trajectory) -> jax.Array:
        return t.terminated


class EndsTruncated(NStepSarsa):
    """Its returns go on over terminated ends."""

    def ends(self, t: rl.Trajectory) -> jax.Array:
        return t.truncated


class NextRow(NStepSarsa):
    """Where an episode is truncated, it bootstraps from the first observation of the next one."""

    def successor(self, t: rl.Trajectory) -> Any:
        def shifted(obs: jax.Array, last: jax.Array) -> jax.Array:
            return jnp.concatenate([obs[1:], last[-1:]])

        return jax.tree.map(shifted, t.obs, t.next_obs)


class NeighbouringEnd(NStepSarsa):
    """It cuts returns where an episode starts, one step late."""

    def ends(self, t: rl.Trajectory) -> jax.Array:
        return t.first


class AgeGoesOn(NStepSarsa):
    """Its count of an episode's steps goes on over truncated ends."""

    def weight(self, state: Any, t: rl.Trajectory) -> tuple[jax.Array, jax.Array]:
        age, number = _ages(state.kept, t.terminated)
        return age, 0.9**number


class LastRewardLost(NStepSarsa):
    """The reward of an episode's last step is left out."""

    def reward(self, t: rl.Trajectory) -> jax.Array:
        return jnp.where(self.ends(t), 0.0, t.reward)


class CutEarly(NStepSarsa):
    """It cuts returns one step before an end."""

    def ends(self, t: rl.Trajectory) -> jax.Array:
        ended = t.terminated | t.truncated
        return ended | jnp.concatenate([ended[1:], ended[-1:]])


class RewardIgnored(NStepSarsa):
    """It learns from values alone."""

    def reward(self, t: rl.Trajectory) -> jax.Array:
        return jnp.ones_like(t.reward)


class AverageSubtracted(NStepSarsa):
    """A correct one: rewards are relative to their mean and deviation over the rollout."""

    def reward(self, t: rl.Trajectory) -> jax.Array:
        return (t.reward - t.reward.mean()) / (t.reward.std() + 1e-6)


class Broadcast(NStepSarsa):
    """Its values [B, 1] meet targets [B]."""

    def errors(self, target: jax.Array, q: jax.Array) -> jax.Array:
        return (target[None, :] - q[:, None]).mean(axis=1)


class Residual(NStepSarsa):
    """Its targets have a gradient."""

    def with_gradient(self, variables: nn.Variables, next_obs: Any) -> jax.Array:
        value = self.q(variables, next_obs).max(axis=-1)
        return 0.9 * (value - jax.lax.stop_gradient(value))


class DiscountedTwice(NStepSarsa):
    """It multiplies by the discount twice."""

    def discount(self, hyper: Any) -> jax.Array:
        return hyper.discount**2


class DiscountForgotten(NStepSarsa):
    """It reads the discount, and does not multiply the last value by it."""

    def returns(self, t: Any, reward: Any, value: Any, discount: Any) -> jax.Array:
        return super().returns(t, reward, value / discount, discount)


class NextMaskForgotten(NStepSarsa):
    """Its targets take values of actions that are not allowed."""

    def next_mask(self, t: rl.Trajectory) -> Any:
        return None


@rl.pytree_dataclass
class TauHyperparams(SarsaHyperparams):
    """Hyperparameters.

    Attributes:
      tau: of a target network.
    """

    tau: rl.Number = rl.unit_interval(0.005)


@dataclass(frozen=True)
class TauUnused(NStepSarsa):
    """It has a hyperparameter of a target network, and no such network."""

    hyper: TauHyperparams = TauHyperparams()
    Hyperparams = TauHyperparams


class EntropyFought(A2C):
    """Its entropy bonus is a penalty."""

    def loss(self, variables: Any, batch: Any, key: Any, hyper: Any) -> Any:
        wrong = replace(hyper, entropy_coef=-hyper.entropy_coef)
        return super().loss(variables, batch, key, wrong)


@dataclass(frozen=True)
class SarsaLambda(rl.Tabular):
    """Tabular expected SARSA with accumulating eligibility traces."""

    title = "Sarsa(lambda)"
    cuts_traces = True

    def init(self, key: jax.Array, num_envs: int, hyper: Any = None) -> SarsaState:
        kept = jnp.zeros((num_envs, self.num_states, self.actions.num_values))
        return SarsaState(**vars(super().init(key, num_envs, hyper)), kept=kept)

    def learn(self, state: Any, step: rl.Trajectory, key: jax.Array) -> Any:
        hyper, rows = state.hyper, jnp.arange(step.reward.shape[0])
        trace = state.kept.at[rows, step.obs, step.action].add(1.0)
        q = rl.at_action(self.values(state.learner, step.obs), step.action)
        next_q = self.values(state.learner, step.next_obs)
        value = rl.epsilon_greedy_value(next_q, hyper.epsilon, step.next_action_mask)
        error = step.reward + hyper.discount * jnp.where(step.terminated, 0.0, value) - q
        change = jnp.einsum("n,nsa->sa", error, trace)

        def loss(variables: nn.Variables, change: jax.Array, key: jax.Array) -> Any:
            obs = jnp.arange(self.num_states, dtype=step.obs.dtype)
            heads, new_state = nn.apply_heads(self.network, variables, obs, key=key, train=True)
            return -jnp.sum(heads["q"] * change), ({"td_error": jnp.abs(error).mean()}, new_state)

        learner, metrics = self.learner.step(state.learner, loss, change, key, hyper)
        ended = (step.terminated | step.truncated) & self.cuts_traces
        trace = jnp.where(ended[:, None, None], 0.0, 0.8 * hyper.discount * trace)
        return replace(state, learner=learner, kept=trace), {"td_error": metrics["td_error"]}


class TracesGoOn(SarsaLambda):
    """Its traces go on over ends."""

    cuts_traces = False


@dataclass(frozen=True)
class Stacking(NStepSarsa):
    """It acts on the average of this observation and the one before, which is its carry."""

    resets = True

    def initial_carry(self, state: Any, num_envs: int) -> Any:
        return rl.zeros(self.obs_spec, num_envs)

    def act(
        self, state: Any, carry: Any, inputs: rl.PolicyInput, key: jax.Array, *, explore: bool
    ) -> rl.PolicyOutput:
        starts = inputs.first[:, None] & self.resets
        before = jnp.where(starts, inputs.obs, carry)
        output = super().act(state, carry, inputs, key, explore=explore)
        extras = {"stacked": 0.5 * (before + inputs.obs)}
        return replace(output, carry=inputs.obs, extras=extras)


class StackJoined(Stacking):
    """It does not empty its stack where an episode starts."""

    resets = False
