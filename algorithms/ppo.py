"""Proximal policy optimization: the first choice, for any actions and for recurrent networks.

Source: Schulman et al. 2017, https://arxiv.org/abs/1707.06347, algorithm 1 and equations 7 and 9,
with the details of Huang et al. 2022,
https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/.
Differences: a truncated episode bootstraps from the value of its true last observation; the value
loss has the factor 1/2. A recurrent network trains on whole rollouts of some of the environments,
from the carry at the start of each. Continuous actions are squashed by tanh, or clipped, see
`rl.PolicyGradientConfig`. For them the rollout, the epochs, the minibatches, the learning rate and
the absence of an entropy bonus are those of the paper's table 3; the learning rate falls to 0, and
a recurrent network keeps the other defaults. `target_kl` stops as Stable-Baselines3 does (Raffin et
al. 2021, https://jmlr.org/papers/v22/20-1364.html), and a `value_clip_range` of its own is
Engstrom et al. 2020's, https://arxiv.org/abs/2005.12729, section 3.
"""

from dataclasses import dataclass, replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl


@rl.pytree_dataclass
class PPOHyperparams(rl.PolicyGradientHyperparams):
    """Hyperparameters of PPO, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: of the optimizer. None: it falls to 0 over the whole run from 2.5e-4, and from
        3e-4 for continuous actions.
      gae_lambda: of generalized advantage estimation, within [0, 1].
      clip_epsilon: clip range of the probability ratio.
      value_clip_range: clip range of the values, in units of the returns. None: `clip_epsilon`.
      entropy_coef: weight of the entropy bonus. None: 0.01, and 0 for continuous actions.
      epochs: how many of the `num_epochs` passes are taken; may be a fraction. None: all.
      target_kl: no more gradient steps are taken on a rollout, once the KL divergence from the
        policy that collected it is above 1.5 times this in a minibatch. None: all are taken.
    """

    learning_rate: rl.NumberByEnvironment = rl.by_environment(
        rl.schedule("linear(2.5e-4, 0)"), continuous=rl.schedule("linear(3e-4, 0)")
    )
    gae_lambda: rl.Number = rl.unit_interval(0.95)
    clip_epsilon: rl.Number = rl.between(0.2, 0.0)
    value_clip_range: rl.Number | None = rl.only_for("clip_value", rl.between(None, 0.0))
    entropy_coef: rl.NumberByEnvironment = rl.by_environment(0.01, continuous=0.0)
    epochs: rl.Number | None = rl.part_of("num_epochs")
    target_kl: rl.Number | None = rl.between(None, 0.0, above_low=True)


@dataclass(frozen=True, kw_only=True)
class PPOConfig(rl.PolicyGradientConfig):
    """Static configuration of PPO.

    Attributes:
      num_envs: environments stepped at a time, `N`. None: 4, and 1 for continuous actions.
      rollout_length: steps from each between updates, `T`. None: 128, and 2048 for continuous
        actions.
      num_epochs: passes over a rollout. None: 4, and 10 for continuous actions.
      num_minibatches: gradient steps in one pass; must divide `N * T`. None: 4, and 32 for
        continuous actions.
      clip_value: clip the value loss as well.
      normalize_advantage: to mean 0 and standard deviation 1, per minibatch.
    """

    num_envs: rl.CountByEnvironment = rl.by_environment(4, continuous=1)
    rollout_length: rl.CountByEnvironment = rl.by_environment(128, continuous=2048)
    num_epochs: rl.CountByEnvironment = rl.by_environment(4, continuous=10)
    num_minibatches: rl.CountByEnvironment = rl.by_environment(4, continuous=32)
    clip_value: bool = True
    normalize_advantage: bool = True


@rl.pytree_dataclass
class Batch(rl.AdvantageSamples):
    """Samples with the log-probabilities and values of the parameters that collected them."""

    log_prob: jax.Array
    value: jax.Array


@dataclass(frozen=True)
class PPO(rl.PolicyGradient):
    """The agent; `rl.PolicyGradient` says what its network returns."""

    config: PPOConfig = PPOConfig()
    hyper: PPOHyperparams = PPOHyperparams()

    Config = PPOConfig
    Hyperparams = PPOHyperparams

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_minibatches(self.config.num_minibatches)

    def update(
        self, state: rl.PolicyGradientState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[rl.PolicyGradientState, rl.Metrics]:
        trajectory, normalizer = state.normalizer.trajectory(trajectory, state.hyper.discount)
        batch = self._prepare(state, trajectory)
        hyper = state.hyper

        def is_far(metrics: rl.Metrics) -> jax.Array:
            return metrics["approx_kl"] > 1.5 * hyper.target_kl

        stop = None if hyper.target_kl is None else is_far
        learner, metrics = self.learn_minibatches(self.loss, state, batch, key, hyper.epochs, stop)
        explained = rl.explained_variance(batch.value, batch.target)
        metrics = {**metrics, "explained_variance": explained}
        return replace(state, learner=learner, normalizer=normalizer), metrics

    def _prepare(self, state: rl.PolicyGradientState, trajectory: rl.Trajectory) -> Batch:
        """Estimate advantages, and rearrange `[T, N]` steps to samples."""
        variables, hyper = state.learner.variables, state.hyper
        value, advantage, target = self.estimate(
            variables, trajectory, hyper.discount, hyper.gae_lambda
        )
        log_prob = self.behaviour(trajectory).log_prob(trajectory.extras["raw"])
        data = {"log_prob": log_prob, "value": value, "advantage": advantage, "target": target}
        return self.samples(Batch, trajectory, **data)

    def loss(
        self, variables: nn.Variables, batch: Batch, key: jax.Array, hyper: PPOHyperparams
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Add the clipped surrogate, the value loss and the entropy bonus (equation 9).

        L = -mean(min(ratio * A, clip(ratio, 1 - epsilon, 1 + epsilon) * A)) (equation 7)
            + value_coef * value loss - entropy_coef * entropy.

        Returns the loss, float32 `[]`, with the metrics and the network's new state; `key` is for
        the network's own randomness.
        """
        actor, value, batch, new_state = self.evaluate(variables, batch, key)
        log_ratio = actor.log_prob(batch.action) - batch.log_prob
        ratio = jnp.exp(log_ratio)
        chex.assert_equal_shape([value, batch.target, ratio])

        advantage = batch.advantage
        if self.config.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        epsilon: Any = hyper.clip_epsilon  # rlax declares a Python number, and takes arrays.
        policy_loss = jnp.asarray(rlax.clipped_surrogate_pg_loss(ratio, advantage, epsilon))
        value_range = (
            hyper.clip_epsilon if hyper.value_clip_range is None else hyper.value_clip_range
        )
        value_loss = (
            rl.clipped_value_loss(value, batch.value, batch.target, value_range)
            if self.config.clip_value
            else jnp.mean(rlax.l2_loss(value, batch.target))
        )
        entropy = actor.entropy().mean()
        total = policy_loss + hyper.value_coef * value_loss - hyper.entropy_coef * entropy
        clipped = jnp.abs(ratio - 1.0) > hyper.clip_epsilon
        return total, (
            {
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": entropy,
                # Schulman's low-variance estimate, http://joschu.net/blog/kl-approx.html.
                "approx_kl": jnp.mean(ratio - 1.0 - log_ratio),
                "clip_fraction": jnp.mean(clipped.astype(jnp.float32)),
            },
            new_state,
        )
