"""Advantage actor-critic, one gradient step per short rollout: where environment steps are cheap.

Source: Mnih et al. 2016, https://arxiv.org/abs/1602.01783, algorithm S3 and section 4, in its
synchronous form: the gradient of all environments' rollouts is one step.
Differences: Adam (`--optimizer rmsprop --rmsprop-decay 0.99 --rmsprop-eps 0.1` is the paper's
optimizer, equation S2); losses are averaged over steps, where the paper sums them; generalized
advantages with `gae_lambda` below 1; a truncated episode bootstraps from its true last observation.
Continuous actions are squashed by tanh, or clipped, see `rl.PolicyGradientConfig`; the entropy is
taken before.
"""

from dataclasses import dataclass, replace

import chex
import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl


@rl.pytree_dataclass
class A2CHyperparams(rl.PolicyGradientHyperparams):
    """Hyperparameters of A2C, which a sweep may vary under `vmap`.

    Attributes:
      gae_lambda: of generalized advantage estimation; 1 gives the paper's returns of up to `T`
        steps.
      entropy_coef: weight of the entropy bonus.
    """

    learning_rate: rl.Number = rl.non_negative(rl.schedule("linear(7e-4, 0)"))
    gae_lambda: rl.Number = rl.unit_interval(1.0)
    entropy_coef: rl.Number = 0.01


@dataclass(frozen=True, kw_only=True)
class A2CConfig(rl.PolicyGradientConfig):
    """Static configuration of A2C.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`; the paper's `t_max`.
      normalize_advantage: to mean 0 and standard deviation 1, per update.
    """

    num_envs: int = 16
    rollout_length: int = 5
    normalize_advantage: bool = False


@dataclass(frozen=True)
class A2C(rl.PolicyGradient):
    """The agent; `rl.PolicyGradient` says what its network returns."""

    config: A2CConfig = A2CConfig()
    hyper: A2CHyperparams = A2CHyperparams()

    Config = A2CConfig
    Hyperparams = A2CHyperparams

    def update(
        self, state: rl.PolicyGradientState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[rl.PolicyGradientState, rl.Metrics]:
        hyper = state.hyper
        trajectory, normalizer = state.normalizer.trajectory(trajectory, hyper.discount)
        value, advantage, target = self.estimate(
            state.learner.variables, trajectory, hyper.discount, hyper.gae_lambda
        )
        batch = self.samples(rl.AdvantageSamples, trajectory, advantage=advantage, target=target)

        learner, metrics = self.learn(self.loss, state, batch, key)
        metrics = {**metrics, "explained_variance": rl.explained_variance(value, target)}
        return replace(state, learner=learner, normalizer=normalizer), metrics

    def loss(
        self,
        variables: nn.Variables,
        batch: rl.AdvantageSamples,
        key: jax.Array,
        hyper: A2CHyperparams,
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Add the policy gradient, the value loss and the entropy bonus (algorithm S3).

        L = -mean(A * log pi(a|s)) + value_coef * mean(0.5 * (R - V(s))^2)
            - entropy_coef * mean(H(pi(s))), with A = R - V(s) without gradient where `gae_lambda`
        is 1.

        Returns the loss, float32 `[]`, with the metrics and the network's new state; `key` is for
        the network's own randomness.
        """
        actor, value, batch, new_state = self.evaluate(variables, batch, key)
        log_prob, advantage = actor.log_prob(batch.action), batch.advantage
        chex.assert_equal_shape([value, batch.target, log_prob])
        if self.config.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss = -jnp.mean(advantage * log_prob)
        value_loss = jnp.mean(rlax.l2_loss(value, batch.target))
        entropy = actor.entropy().mean()
        total = policy_loss + hyper.value_coef * value_loss - hyper.entropy_coef * entropy
        return total, (
            {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy},
            new_state,
        )
