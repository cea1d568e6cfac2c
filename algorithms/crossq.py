"""CrossQ: SAC with batch normalization and no targets; where environment steps are costly.

Source: Bhatt et al. 2024, "CrossQ: Batch Normalization in Deep Reinforcement Learning for Greater
Sample Efficiency and Simplicity", https://arxiv.org/abs/1902.05605, section 3.
Differences: plain batch normalization, which the authors' code has for its first 100,000 gradient
steps and renormalizes afterwards; its momentum is 0.9902 instead of 0.99; Adam's decay is 0.5 for
the temperature too, whose loss draws actions from the actor that has moved, by its running
statistics; learning starts after 1,000 steps instead of 5,000, and each update takes 3 environment
steps before its 3 gradient steps; a truncated episode bootstraps from its true last observation.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from .. import nn, rl


@rl.pytree_dataclass
class CrossQHyperparams(rl.TargetFreeHyperparams):
    """Hyperparameters of CrossQ, which a sweep may vary under `vmap`.

    Attributes:
      temperature_learning_rate: of the log temperature.
      target_entropy: entropy of the policy that the temperature is tuned to, in nats, of actions
        within [-1, 1]; None: minus the number of action dimensions.
      adam_b1: Adam's decay of the average gradient, within [0, 1].
    """

    learning_rate: rl.Number = 1e-3
    critic_learning_rate: rl.Number = 1e-3
    temperature_learning_rate: rl.Number = 1e-3
    target_entropy: rl.Number | None = rl.finite(None)
    adam_b1: rl.Number = rl.only_for("optimizer", rl.unit_interval(0.5))


@dataclass(frozen=True, kw_only=True)
class CrossQConfig(rl.ActorCriticConfig):
    """Static configuration of CrossQ.

    Attributes:
      num_gradient_steps: of the critics, in one update; a multiple of `policy_delay`.
      policy_delay: gradient steps of the critics for each of the actor and of the temperature.
      initial_temperature: weight of the entropy at the start.
      hidden_sizes: units of the actor's hidden layers.
      critic_hidden_sizes: the same, of each critic.
    """

    num_envs: int = 3
    num_gradient_steps: int = 3
    policy_delay: int = 3
    initial_temperature: float = rl.positive(1.0)
    critic_hidden_sizes: tuple[int, ...] = rl.only_for("networks", (2048, 2048))


@dataclass(frozen=True)
class CrossQ(rl.ActorCritic):
    """The agent, for a bounded `Box` of float actions; it combines three networks.

    They are those of `SAC`; `actor` and `critic` normalize their inputs, and what each activation
    returns, by batches; their kernels start as Flax draws them.
    """

    config: CrossQConfig = CrossQConfig()
    hyper: CrossQHyperparams = CrossQHyperparams()

    Config = CrossQConfig
    Hyperparams = CrossQHyperparams

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: CrossQConfig = CrossQConfig()
    ) -> dict[str, nn.NetworkSpec | nn.Network]:
        """Describe the `actor`, the twin `critic` and the `temperature`."""
        unit = rl.unit_box(action_spec, algorithm="CrossQ")
        wide = replace(config, hidden_sizes=config.critic_hidden_sizes)
        described = nn.soft_actor_critic(obs_spec, unit, config)
        described["critic"] = nn.soft_actor_critic(obs_spec, unit, wide)["critic"]
        normed = {
            name: replace(
                spec.normalized("batch", inputs=True, after_activation=True), lecun_normal=True
            )
            for name, spec in described.items()
            if isinstance(spec, nn.NetworkSpec)
        }
        return described | normed

    def followed(self, variables: dict[str, nn.Variables]) -> dict[str, nn.Variables]:
        """Follow nothing: there are no target networks."""
        del variables
        return {}

    def learn(
        self, state: rl.ActorCriticState, sample: rl.Sample, key: jax.Array
    ) -> tuple[rl.ActorCriticState, rl.Metrics]:
        """Step the critics on each batch; then actor and temperature on the last one."""
        critic_key, actor_key = jax.random.split(key)
        state, metrics = self.step_each(state, sample, critic_key, critic=self.critic_loss)
        last = jax.tree.map(lambda leaf: leaf[-1], sample)
        losses = {"actor": self.actor_loss, "temperature": self.temperature_loss}
        state, actor_metrics = self.step(state, last, actor_key, **losses)
        return state, rl.joined(metrics, actor_metrics)

    def critic_loss(
        self, critic: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average 0.5 (Q_i(s, a) - y)^2 over samples and sum it over both critics (section 3).

        y = r + discount * (min_i Q_i(s', a') - temperature * log pi(a'|s')), a' ~ pi(s'), without
        gradient. The critics read (s, a) and (s', a') as one batch, whose mean and variance
        normalize both alike.
        """
        sample, state = batch.sample, batch.state
        draw_key, own_key = jax.random.split(key)
        policy, _ = self.policy(state.learners["actor"].variables, sample.next_obs)
        drawn = rl.weighted_actions(policy, draw_key)
        obs, action = jax.tree.map(
            lambda now, after: jnp.concatenate([now, after]),
            (sample.obs, sample.action),
            (sample.next_obs, drawn.action),
        )
        both, new_state = self.q(critic, obs, action, key=own_key, train=True)
        q, next_q = jnp.split(both, 2, axis=1)
        next_value = next_q.min(axis=0) - self.temperature(state) * drawn.mean(drawn.log_prob)
        target = jax.lax.stop_gradient(sample.reward + sample.discount * next_value)
        loss, metrics = self.regress(q, target, batch)
        return loss, (metrics, new_state)

    def actor_loss(
        self, actor: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average temperature * log pi(a|s) - min_i Q_i(s, a), a ~ pi(s).

        The actor normalizes by the batch, the critics by their running statistics.
        """
        sample, state = batch.sample, batch.state
        draw_key, own_key = jax.random.split(key)
        policy, new_state = self.policy(actor, sample.obs, key=own_key, train=True)
        drawn = rl.weighted_actions(policy, draw_key)
        q, _ = self.q(state.learners["critic"].variables, sample.obs, drawn.action)
        log_prob = drawn.mean(drawn.log_prob)
        loss = jnp.mean(self.temperature(state) * log_prob - drawn.mean(q.min(axis=0)))
        return loss, ({"entropy": -log_prob.mean()}, new_state)
