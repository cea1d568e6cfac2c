"""Soft actor-critic for continuous actions, with twin critics and a learned temperature.

Source: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications",
https://arxiv.org/abs/1812.05905, algorithm 1 and equations 5, 7, 9 and 18.
Differences: a truncated episode bootstraps from its true last observation; observations may be
normalized.
"""

from dataclasses import dataclass, replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl

# The log standard deviation is clipped to this, as in the authors' own code.
LOG_STD_BOUNDS = (-20.0, 2.0)


@rl.pytree_dataclass
class SACHyperparams:
    """Hyperparameters of SAC, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: of the actor.
      critic_learning_rate: of both critics.
      temperature_learning_rate: of the log temperature.
      discount: of future rewards, within [0, 1].
      tau: weight of the critics' parameters in each update of their targets'.
      target_entropy: entropy of the policy that the temperature is tuned to, in nats, of actions
        within [-1, 1]; None: minus the number of action dimensions.
    """

    learning_rate: rl.Number = 3e-4
    critic_learning_rate: rl.Number = 1e-3
    temperature_learning_rate: rl.Number = 3e-4
    discount: rl.Number = rl.unit_interval(0.99)
    tau: rl.Number = rl.unit_interval(0.005)
    target_entropy: rl.Number | None = rl.finite(None)


@dataclass(frozen=True, kw_only=True)
class SACConfig(rl.ReplayConfig):
    """Static configuration of SAC.

    Attributes:
      learning_starts: environment steps, with random actions, before the first gradient step.
      normalize_obs: normalize observations by their running mean and variance.
      initial_temperature: weight of the entropy at the start.
      hidden_sizes: units of the hidden layers, of the actor and of each critic.
    """

    num_gradient_steps: int = 8
    batch_size: int = 256
    buffer_size: int = 200_000
    learning_starts: int = 1_000
    normalize_obs: bool = False
    initial_temperature: float = rl.positive(1.0)
    hidden_sizes: tuple[int, ...] = rl.only_for("networks", (256, 256))


@rl.pytree_dataclass
class SACState:
    """SAC training state.

    Attributes:
      learners: of `actor`, `critic` and `temperature`.
      target: variables of the critics' targets.
      replay: actions in it are within [-1, 1].
      hyper: float32 `[]` each.
      obs_stats: of the observations so far; None without normalization.
    """

    learners: dict[str, rl.LearnerState]
    target: nn.Variables
    replay: rl.ReplayState
    hyper: SACHyperparams
    obs_stats: rl.RunningStats | None


@rl.pytree_dataclass
class Batch:
    """Samples `[B, ...]`, and the state from before the step, whose other parts a loss reads."""

    sample: rl.Sample
    state: SACState


@dataclass(frozen=True)
class SAC(rl.AgentBase):
    """The agent, for a bounded `Box` of float actions; it combines three networks.

    `actor` gives `mean` and `log_std` `[B, n]`; `critic`, an ensemble of two, reads observations
    and actions within [-1, 1] and gives `q` `[B]`; `temperature` is the log temperature `[]`.
    """

    config: SACConfig = SACConfig()
    hyper: SACHyperparams = SACHyperparams()

    Config = SACConfig
    Hyperparams = SACHyperparams

    def __post_init__(self) -> None:
        rl.require_normalizable("SAC", self.config.normalize_obs, self.obs_spec)
        nn.check_soft_actor_critic(self.network, self.obs_spec, self._unit, algorithm="SAC")
        super().__post_init__()

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: SACConfig = SACConfig()
    ) -> dict[str, nn.NetworkSpec | nn.Network]:
        """Describe the `actor`, the twin `critic` and the `temperature`."""
        return nn.soft_actor_critic(obs_spec, rl.unit_box(action_spec, algorithm="SAC"), config)

    @property
    def replay(self) -> rl.Replay:
        return rl.Replay.of(self.config, self.obs_spec, self._unit)

    @property
    def _unit(self) -> rl.Box:
        return rl.unit_box(self.action_spec, algorithm="SAC")

    def init(self, key: jax.Array, num_envs: int, hyper: Any | None = None) -> SACState:
        given: Any = rl.as_float32(self.hyper if hyper is None else hyper)
        variables = self.network.init(key)
        return SACState(
            learners={
                part: self.learner_of(part).start(
                    nn.part_of(variables, part), self._with_rate(part, given)
                )
                for part in self.network.parts
            },
            target=rl.target_of(nn.part_of(variables, "critic")),
            replay=self.replay.init(),
            hyper=given,
            obs_stats=rl.RunningStats.of(self.obs_spec) if self.config.normalize_obs else None,
        )

    def act(
        self, state: SACState, carry: Any, inputs: rl.PolicyInput, key: jax.Array, *, explore: bool
    ) -> rl.PolicyOutput:
        obs = rl.normalized(state.obs_stats, inputs.obs)
        policy, _ = self._policy(state.learners["actor"].variables, obs)
        if explore:
            policy_key, random_key = jax.random.split(key)
            unit = jnp.tanh(policy.sample(policy_key))
            random = jax.random.uniform(random_key, unit.shape, minval=-1.0)
            unit = jnp.where(state.replay.num_added < self.learning_starts, random, unit)
        else:
            unit = jnp.tanh(policy.mode())
        action = rl.from_unit_box(self.action_spec, unit)
        return rl.PolicyOutput(action=action, carry=carry, extras={"unit": unit})

    def update(
        self, state: SACState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[SACState, rl.Metrics]:
        unit, stats = trajectory.extras["unit"], state.obs_stats
        state = replace(
            state,
            replay=self.replay.add_trajectory(state.replay, trajectory, action=unit),
            obs_stats=None if stats is None else stats.add(trajectory.obs),
        )
        ready = state.replay.size >= self.learning_starts
        keys = jax.random.split(key, (self.config.num_gradient_steps, 2))
        state, metrics = rl.steps_if_ready(ready, self._learn, state, keys)
        return state, {**metrics, "replay_size": state.replay.size.astype(jnp.float32)}

    def _learn(self, state: SACState, keys: jax.Array) -> tuple[SACState, rl.Metrics]:
        """Step the critics, the actor, the temperature and the targets, in this order."""
        sample_key, *loss_keys = keys[0], *jax.random.split(keys[1], 3)
        hyper, stats = state.hyper, state.obs_stats
        sample = self.replay.sample(
            state.replay, sample_key, self.config.batch_size, hyper.discount
        )
        obs, next_obs = rl.normalized(stats, sample.obs), rl.normalized(stats, sample.next_obs)
        sample = replace(sample, obs=obs, next_obs=next_obs)
        losses = {
            "critic": self.critic_loss,
            "actor": self.actor_loss,
            "temperature": self.temperature_loss,
        }
        total, squared_norm, metrics = jnp.zeros(()), jnp.zeros(()), {}
        for (part, loss), key in zip(losses.items(), loss_keys, strict=True):
            learner, found = self.learner_of(part).step(
                state.learners[part],
                loss,
                Batch(sample=sample, state=state),
                key,
                self._with_rate(part, hyper),
            )
            state = replace(state, learners={**state.learners, part: learner})
            value, norm = found.pop("loss"), found.pop("grad_norm")
            metrics |= {f"{part}_loss": value, **found}
            total, squared_norm = total + value, squared_norm + norm**2
        metrics |= {"loss": total, "grad_norm": jnp.sqrt(squared_norm)}
        target = rl.polyak(state.learners["critic"].variables, state.target, hyper.tau)
        return replace(state, target=target), metrics

    def critic_loss(
        self, critic: nn.Variables, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, Any]]:
        """Average 0.5 (Q_i(s, a) - y)^2 over samples and sum it over critics (equations 5 and 7).

        y = r + discount * (min_i Q'_i(s', a') - temperature * log pi(a'|s')), a' ~ pi(s').
        """
        sample, state = batch.sample, batch.state
        draw_key, own_key = jax.random.split(key)
        policy, _ = self._policy(state.learners["actor"].variables, sample.next_obs)
        raw = policy.sample(draw_key)
        next_q, _ = self._q(state.target, sample.next_obs, jnp.tanh(raw))
        next_value = next_q.min(axis=0) - self._temperature(state) * policy.squashed_log_prob(raw)
        target = sample.reward + sample.discount * next_value
        q, new_state = self._q(critic, sample.obs, sample.action, key=own_key, train=True)
        chex.assert_equal_shape([q[0], target])
        loss = jnp.mean(jax.vmap(lambda own: rlax.l2_loss(own, target))(q), axis=1).sum()
        return loss, ({"q": q.mean()}, new_state)

    def actor_loss(
        self, actor: nn.Variables, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, Any]]:
        """Average temperature * log pi(a|s) - min_i Q_i(s, a), a ~ pi(s) (equation 9)."""
        sample, state = batch.sample, batch.state
        draw_key, own_key = jax.random.split(key)
        policy, new_state = self._policy(actor, sample.obs, key=own_key, train=True)
        raw = policy.sample(draw_key)
        q, _ = self._q(state.learners["critic"].variables, sample.obs, jnp.tanh(raw))
        log_prob = policy.squashed_log_prob(raw)
        loss = jnp.mean(self._temperature(state) * log_prob - q.min(axis=0))
        return loss, ({"entropy": -log_prob.mean()}, new_state)

    def temperature_loss(
        self, temperature: nn.Variables, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, Any]]:
        """Average -temperature * (log pi(a|s) + target entropy), a ~ pi(s) (equation 18)."""
        sample, state = batch.sample, batch.state
        policy, _ = self._policy(state.learners["actor"].variables, sample.obs)
        log_prob = policy.squashed_log_prob(policy.sample(key))
        value = jnp.exp(temperature.params)
        wanted = state.hyper.target_entropy
        if wanted is None:
            wanted = -float(self._unit.shape[0])
        return -value * jnp.mean(log_prob + wanted), ({"temperature": value}, temperature.state)

    def _with_rate(self, part: str, hyper: SACHyperparams) -> SACHyperparams:
        """Fill in a part's learning rate, which the optimizer reads."""
        rate = hyper.learning_rate if part == "actor" else getattr(hyper, f"{part}_learning_rate")
        return replace(hyper, learning_rate=rate)

    def _temperature(self, state: SACState) -> jax.Array:
        return jnp.exp(state.learners["temperature"].variables.params)

    def _policy(self, actor: nn.Variables, obs: Any, **how: Any) -> tuple[rl.SquashedGaussian, Any]:
        """Apply the actor; `how` is passed to `apply_heads`."""
        heads, state = nn.apply_heads(self.network.parts["actor"], actor, obs, **how)
        log_std = jnp.clip(heads["log_std"], *LOG_STD_BOUNDS)
        return rl.squashed_gaussian(heads["mean"], log_std), state

    def _q(
        self, critic: nn.Variables, obs: Any, action: jax.Array, **how: Any
    ) -> tuple[jax.Array, Any]:
        """Apply the critics, or their targets: `[2, B]`."""
        heads, state = nn.apply_heads(self.network.parts["critic"], critic, (obs, action), **how)
        return heads["q"], state
