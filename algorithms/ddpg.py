"""Deep deterministic policy gradient, the simplest actor-critic for continuous actions: to study.

Source: Lillicrap et al. 2016, https://arxiv.org/abs/1509.02971, algorithm 1 and equations 4 to 6.
Differences: independent Gaussian noise instead of an Ornstein-Uhlenbeck process; random actions
until learning starts; no weight decay and no batch normalization; the critic reads the action in
its first layer; a truncated episode bootstraps from its true last observation.
"""

from dataclasses import dataclass

import jax

from .. import nn, rl


@rl.pytree_dataclass
class DDPGHyperparams(rl.ActorCriticHyperparams):
    """Hyperparameters of DDPG, which a sweep may vary under `vmap`.

    Attributes:
      exploration_noise: standard deviation of the noise on actions within [-1, 1].
    """

    tau: rl.Number = rl.unit_interval(0.001)
    exploration_noise: rl.Number = 0.1


@dataclass(frozen=True, kw_only=True)
class DDPGConfig(nn.CriticConfig, rl.ActorCriticConfig):
    """Static configuration of DDPG."""


@dataclass(frozen=True)
class DDPG(rl.ActorCritic):
    """The agent, for a bounded `Box` of float actions; it combines two networks.

    `actor` gives `action` `[B, n]`, which a tanh squashes; `critic` reads observations and actions
    within [-1, 1] and gives `q` `[B]`.
    """

    config: DDPGConfig = DDPGConfig()
    hyper: DDPGHyperparams = DDPGHyperparams()

    Config = DDPGConfig
    Hyperparams = DDPGHyperparams

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: DDPGConfig = DDPGConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `actor` and the `critic`."""
        unit = rl.unit_box(action_spec, algorithm="DDPG")
        return nn.continuous_actor_critic(obs_spec, unit, config, ("action",), num_critics=1)

    def followed(self, variables: dict[str, nn.Variables]) -> dict[str, nn.Variables]:
        return variables

    def choose(
        self,
        state: rl.ActorCriticState,
        obs: rl.Obs,
        action_mask: jax.Array | None,
        key: jax.Array | None,
    ) -> jax.Array:
        """Add noise to the actor's action to explore, mu(s) + N (algorithm 1)."""
        action, _ = self.unit_action(state.learners["actor"].variables, obs)
        return action if key is None else rl.noisy(action, state.hyper.exploration_noise, key)

    @property
    def losses(self) -> dict[str, rl.Loss]:
        return {"critic": self.critic_loss, "actor": self.actor_loss}  # then both targets move

    def critic_loss(
        self, critic: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average 0.5 (Q(s, a) - y)^2, with y = r + discount * Q'(s', mu'(s')) (equations 4, 5)."""
        sample, target = batch.sample, batch.state.target
        own_key, target_key = jax.random.split(key)
        next_action, _ = self.unit_action(target["actor"], sample.next_obs)
        next_q, _ = self.q(target["critic"], sample.next_obs, next_action, key=target_key)
        q, new_state = self.q(critic, sample.obs, sample.action, key=own_key, train=True)
        loss, metrics = self.regress(q, sample.reward + sample.discount * next_q[0], batch)
        return loss, (metrics, new_state)

    def actor_loss(
        self, actor: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average -Q(s, mu(s)), with the deterministic policy gradient (equation 6)."""
        sample, critic = batch.sample, batch.state.learners["critic"].variables
        own_key, critic_key = jax.random.split(key)
        action, new_state = self.unit_action(actor, sample.obs, key=own_key, train=True)
        q, _ = self.q(critic, sample.obs, action, key=critic_key)
        return -q[0].mean(), ({}, new_state)
