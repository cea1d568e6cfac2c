"""Soft actor-critic, off-policy with a learned entropy weight: where environment steps are costly.

Source: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications",
https://arxiv.org/abs/1812.05905, algorithm 1 and equations 3, 5, 7, 9 and 18; for discrete actions
Christodoulou 2019, https://arxiv.org/abs/1910.07207, equations 10-12 and algorithm 1.
Differences: a truncated episode bootstraps from its true last observation; observations may be
normalized; with discrete actions, the target entropy counts the allowed actions only.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from .. import nn, rl


@rl.pytree_dataclass
class SACHyperparams(rl.ActorCriticHyperparams):
    """Hyperparameters of SAC, which a sweep may vary under `vmap`.

    Attributes:
      temperature_learning_rate: of the log temperature.
      target_entropy: entropy of the policy that the temperature is tuned to, in nats, of actions
        within [-1, 1]; None: minus the number of action dimensions, or `target_entropy_ratio`.
      target_entropy_ratio: the target entropy of a policy over discrete actions, as a share of the
        uniform policy's, unless `target_entropy` is given.
    """

    temperature_learning_rate: rl.Number = 3e-4
    target_entropy: rl.Number | None = rl.finite(None)
    target_entropy_ratio: rl.Number = rl.unit_interval(0.98)


@dataclass(frozen=True, kw_only=True)
class SACConfig(nn.CriticConfig, rl.ActorCriticConfig):
    """Static configuration of SAC.

    Attributes:
      initial_temperature: weight of the entropy at the start.
    """

    initial_temperature: float = rl.positive(1.0)


@dataclass(frozen=True)
class SAC(rl.ActorCritic):
    """The agent, for discrete actions or a bounded `Box` of floats; it combines three networks.

    `actor` gives `mean` and `log_std` `[B, n]`; `critic`, an ensemble of two, reads observations
    and actions within [-1, 1] and gives `q` `[B]`; `temperature` is the log temperature `[]`. With
    discrete actions, `actor` gives `logits` and `critic` `q` `[B, num_actions]` of observations.
    """

    config: SACConfig = SACConfig()
    hyper: SACHyperparams = SACHyperparams()

    Config = SACConfig
    Hyperparams = SACHyperparams
    discrete = True

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: SACConfig = SACConfig()
    ) -> dict[str, nn.NetworkSpec | nn.Network]:
        """Describe the `actor`, the twin `critic` and the `temperature`."""
        unit = rl.unit_actions(action_spec, algorithm="SAC")
        return nn.soft_actor_critic(obs_spec, unit, config)

    @property
    def losses(self) -> dict[str, rl.Loss]:
        return {
            "critic": self.critic_loss,
            "actor": self.actor_loss,
            "temperature": self.temperature_loss,
        }

    def critic_loss(
        self, critic: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average 0.5 (Q_i(s, a) - y)^2 over samples and sum it over critics (equations 3 and 5).

        y = r + discount * E[min_i Q'_i(s', a') - temperature * log pi(a'|s')], a' ~ pi(s'); E is
        over one drawn action, or over all discrete ones (Christodoulou, equation 10).
        """
        sample, state = batch.sample, batch.state
        draw_key, own_key, target_key = jax.random.split(key, 3)
        actor, mask = state.learners["actor"].variables, sample.next_action_mask
        drawn = rl.weighted_actions(self.policy(actor, sample.next_obs, mask)[0], draw_key)
        next_q, _ = self.q(state.target, sample.next_obs, drawn.action, key=target_key)
        next_value = drawn.mean(next_q.min(axis=0))
        next_value = next_value - self.temperature(state) * drawn.mean(drawn.log_prob)
        target = sample.reward + sample.discount * next_value
        q, new_state = self.q(critic, sample.obs, sample.action, key=own_key, train=True)
        loss, metrics = self.regress(q, target, batch)
        return loss, (metrics, new_state)

    def actor_loss(
        self, actor: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average temperature * log pi(a|s) - min_i Q_i(s, a), a ~ pi(s) (equations 7 and 9).

        With discrete actions, it is averaged over pi exactly (Christodoulou, equation 12).
        """
        sample, state = batch.sample, batch.state
        draw_key, own_key, critic_key = jax.random.split(key, 3)
        policy, new_state = self.policy(
            actor, sample.obs, sample.action_mask, key=own_key, train=True
        )
        drawn = rl.weighted_actions(policy, draw_key)
        critic = state.learners["critic"].variables
        q, _ = self.q(critic, sample.obs, drawn.action, key=critic_key)
        log_prob = drawn.mean(drawn.log_prob)
        loss = jnp.mean(self.temperature(state) * log_prob - drawn.mean(q.min(axis=0)))
        return loss, ({"entropy": -log_prob.mean()}, new_state)
