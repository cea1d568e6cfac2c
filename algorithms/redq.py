"""Randomized ensembled double Q-learning: SAC with more gradient steps per step; slow, few steps.

Source: Chen et al. 2021, "Randomized Ensembled Double Q-Learning: Learning Fast Without a Model",
https://arxiv.org/abs/2101.05982, algorithm 1.
Differences: the temperature is learned as in SAC; a truncated episode bootstraps from its true last
observation; actions may be discrete, as in SAC.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from .. import nn, rl
from .sac import SACConfig, SACHyperparams


@rl.pytree_dataclass
class REDQHyperparams(SACHyperparams):
    """Hyperparameters of REDQ, which a sweep may vary under `vmap`."""

    critic_learning_rate: rl.Number = 3e-4


@dataclass(frozen=True, kw_only=True)
class REDQConfig(SACConfig):
    """Static configuration of REDQ.

    Attributes:
      num_gradient_steps: of the critics, in one update; a multiple of `policy_delay`.
      policy_delay: gradient steps of the critics for each of the actor and of the temperature. With
        as many gradient steps for each environment step, it is the paper's ratio G.
      num_critics: of the ensemble, the paper's N.
      num_target_critics: drawn from it for each target, the paper's M.
    """

    num_envs: int = 1
    learning_starts: int = 5_000
    num_gradient_steps: int = 20
    policy_delay: int = 20
    num_critics: int = 10
    num_target_critics: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_target_critics > self.num_critics:
            raise rl.TriglotError(
                f"REDQ's num_target_critics must be at most num_critics = {self.num_critics}, got "
                f"{self.num_target_critics}."
            )


@dataclass(frozen=True)
class REDQ(rl.ActorCritic):
    """The agent, for discrete actions or a bounded `Box` of floats; it combines three networks.

    They are those of `SAC`, with a `critic` of `num_critics` members.
    """

    config: REDQConfig = REDQConfig()
    hyper: REDQHyperparams = REDQHyperparams()

    Config = REDQConfig
    Hyperparams = REDQHyperparams
    discrete = True

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: REDQConfig = REDQConfig()
    ) -> dict[str, nn.NetworkSpec | nn.Network]:
        """Describe the `actor`, the ensemble `critic` and the `temperature`."""
        unit = rl.unit_actions(action_spec, algorithm="REDQ")
        return nn.soft_actor_critic(obs_spec, unit, config, config.num_critics)

    def learn(
        self, state: rl.ActorCriticState, sample: rl.Sample, key: jax.Array
    ) -> tuple[rl.ActorCriticState, rl.Metrics]:
        """Step critics and targets on each batch; then actor and temperature on the last one."""
        critic_key, actor_key = jax.random.split(key)
        state, metrics = self.step_each(
            state, sample, critic_key, move_targets=True, critic=self.critic_loss
        )
        last = jax.tree.map(lambda leaf: leaf[-1], sample)
        losses = {"actor": self.actor_loss, "temperature": self.temperature_loss}
        state, actor_metrics = self.step(state, last, actor_key, **losses)
        return state, rl.joined(metrics, actor_metrics)

    def critic_loss(
        self, critic: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average 0.5 (Q_i(s, a) - y)^2 over samples and sum it over all N critics (algorithm 1).

        y = r + discount * (min_i Q'_i(s', a') - temperature * log pi(a'|s')), a' ~ pi(s'), over
        the i in a random set of M critics.
        """
        sample, state = batch.sample, batch.state
        draw_key, set_key, own_key, target_key = jax.random.split(key, 4)
        actor, mask = state.learners["actor"].variables, sample.next_action_mask
        drawn = rl.weighted_actions(self.policy(actor, sample.next_obs, mask)[0], draw_key)
        next_q, _ = self.q(state.target, sample.next_obs, drawn.action, key=target_key)
        chosen = jax.random.permutation(set_key, len(next_q))[: self.config.num_target_critics]
        next_value = drawn.mean(next_q[chosen].min(axis=0))
        next_value = next_value - self.temperature(state) * drawn.mean(drawn.log_prob)
        target = sample.reward + sample.discount * next_value
        q, new_state = self.q(critic, sample.obs, sample.action, key=own_key, train=True)
        loss, metrics = self.regress(q, target, batch)
        return loss, (metrics, new_state)

    def actor_loss(
        self, actor: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average temperature * log pi(a|s) - mean_i Q_i(s, a), a ~ pi(s), over all N critics."""
        sample, state = batch.sample, batch.state
        draw_key, own_key, critic_key = jax.random.split(key, 3)
        policy, new_state = self.policy(
            actor, sample.obs, sample.action_mask, key=own_key, train=True
        )
        drawn = rl.weighted_actions(policy, draw_key)
        critic = state.learners["critic"].variables
        q, _ = self.q(critic, sample.obs, drawn.action, key=critic_key)
        log_prob = drawn.mean(drawn.log_prob)
        loss = jnp.mean(self.temperature(state) * log_prob - drawn.mean(q.mean(axis=0)))
        return loss, ({"entropy": -log_prob.mean()}, new_state)
