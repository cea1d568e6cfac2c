"""Twin delayed DDPG, deterministic with a pessimistic target: for continuous control in simulators.

Source: Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods",
https://arxiv.org/abs/1802.09477, algorithm 1 and equations 10, 14 and 15.
Differences: a truncated episode bootstraps from its true last observation; observations may be
normalized.
"""

from dataclasses import dataclass

import jax

from .. import nn, rl


@rl.pytree_dataclass
class TD3Hyperparams(rl.ActorCriticHyperparams):
    """Hyperparameters of TD3, which a sweep may vary under `vmap`.

    Attributes:
      exploration_noise: standard deviation of the noise on actions within [-1, 1].
      target_noise: the same, on the actions of the critics' targets.
      target_noise_clip: the largest absolute value of the latter.
    """

    learning_rate: rl.Number = 1e-3
    exploration_noise: rl.Number = 0.1
    target_noise: rl.Number = 0.2
    target_noise_clip: rl.Number = 0.5


@dataclass(frozen=True, kw_only=True)
class TD3Config(nn.CriticConfig, rl.ActorCriticConfig):
    """Static configuration of TD3.

    Attributes:
      num_gradient_steps: of the critics, in one update; a multiple of `policy_delay`.
      policy_delay: gradient steps of the critics for each of the actor and of the targets.
    """

    policy_delay: int = 2


@dataclass(frozen=True)
class TD3(rl.ActorCritic):
    """The agent, for a bounded `Box` of float actions; it combines two networks.

    `actor` gives `action` `[B, n]`, which a tanh squashes; `critic`, an ensemble of two, reads
    observations and actions within [-1, 1] and gives `q` `[B]`.
    """

    config: TD3Config = TD3Config()
    hyper: TD3Hyperparams = TD3Hyperparams()

    Config = TD3Config
    Hyperparams = TD3Hyperparams

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: TD3Config = TD3Config()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `actor` and the twin `critic`."""
        unit = rl.unit_box(action_spec, algorithm="TD3")
        return nn.continuous_actor_critic(obs_spec, unit, config, ("action",), num_critics=2)

    def followed(self, variables: dict[str, nn.Variables]) -> dict[str, nn.Variables]:
        return variables

    def choose(
        self,
        state: rl.ActorCriticState,
        obs: rl.Obs,
        action_mask: jax.Array | None,
        key: jax.Array | None,
    ) -> jax.Array:
        """Add Gaussian noise to the actor's action to explore (algorithm 1)."""
        action, _ = self.unit_action(state.learners["actor"].variables, obs)
        return action if key is None else rl.noisy(action, state.hyper.exploration_noise, key)

    def learn(
        self, state: rl.ActorCriticState, sample: rl.Sample, key: jax.Array
    ) -> tuple[rl.ActorCriticState, rl.Metrics]:
        """Step the critics on each batch; then the actor, on the last one, and all targets."""
        critic_key, actor_key = jax.random.split(key)
        state, metrics = self.step_each(state, sample, critic_key, critic=self.critic_loss)
        last = jax.tree.map(lambda leaf: leaf[-1], sample)
        state, actor_metrics = self.step(state, last, actor_key, actor=self.actor_loss)
        return self.move_targets(state), rl.joined(metrics, actor_metrics)

    def critic_loss(
        self, critic: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average 0.5 (Q_i(s, a) - y)^2 over samples and sum it over both critics.

        y = r + discount * min_i Q'_i(s', a'), with a' = mu'(s') + clip(noise, -c, c), within
        [-1, 1] (equations 10, 14 and 15).
        """
        sample, target, hyper = batch.sample, batch.state.target, batch.state.hyper
        noise_key, own_key, target_key = jax.random.split(key, 3)
        greedy, _ = self.unit_action(target["actor"], sample.next_obs)
        limit = hyper.target_noise_clip
        next_action = rl.noisy(greedy, hyper.target_noise, noise_key, limit=limit)
        next_q, _ = self.q(target["critic"], sample.next_obs, next_action, key=target_key)
        q, new_state = self.q(critic, sample.obs, sample.action, key=own_key, train=True)
        next_value = sample.discount * next_q.min(axis=0)
        loss, metrics = self.regress(q, sample.reward + next_value, batch)
        return loss, (metrics, new_state)

    def actor_loss(
        self, actor: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average -Q_1(s, mu(s)), of the first critic alone (algorithm 1)."""
        sample, critic = batch.sample, batch.state.learners["critic"].variables
        own_key, critic_key = jax.random.split(key)
        action, new_state = self.unit_action(actor, sample.obs, key=own_key, train=True)
        q, _ = self.q(critic, sample.obs, action, key=critic_key)
        return -q[0].mean(), ({}, new_state)
