"""IMPALA, an actor-critic with V-trace: where each rollout is used for several gradient steps.

Source: Espeholt et al. 2018, https://arxiv.org/abs/1802.01561, equation 1 and section 4.2.
Differences: synchronous. A rollout is not late, as it is from the paper's distributed actors, but
replayed for `num_epochs` in minibatches of whole rollouts, so that all gradient steps but the first
are off-policy; V-trace is computed anew for each, with the values of its own parameters. Losses are
averaged over steps; Adam instead of RMSProp; a truncated episode bootstraps from its true last
observation. Continuous actions are squashed by tanh, or clipped, see `rl.PolicyGradientConfig`; the
entropy is taken before.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from .. import nn, rl


@rl.pytree_dataclass
class IMPALAHyperparams(rl.PolicyGradientHyperparams):
    """Hyperparameters of IMPALA, which a sweep may vary under `vmap`.

    Attributes:
      trace_lambda: of the traces c, within [0, 1]; 1 in most of the paper.
      rho_clip: clip threshold of the ratios in the value targets, the paper's rho-bar.
      pg_rho_clip: the same in the policy gradient.
      entropy_coef: weight of the entropy bonus.
      epochs: how many of the `num_epochs` passes are taken; may be a fraction. None: all.
    """

    trace_lambda: rl.Number = rl.unit_interval(1.0)
    rho_clip: rl.Number = rl.between(1.0, 0.0)
    pg_rho_clip: rl.Number = rl.between(1.0, 0.0)
    entropy_coef: rl.Number = 0.01
    epochs: rl.Number | None = rl.part_of("num_epochs")


@dataclass(frozen=True, kw_only=True)
class IMPALAConfig(rl.PolicyGradientConfig):
    """Static configuration of IMPALA.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`.
      num_epochs: passes over a rollout.
      num_minibatches: gradient steps in one pass; must divide `N`.
    """

    num_envs: int = 16
    rollout_length: int = 32
    num_epochs: int = 2
    num_minibatches: int = 4


@rl.pytree_dataclass
class Batch(rl.PolicySamples):
    """Whole rollouts `[B, T, ...]`, with the log-probabilities of the policy that acted."""

    log_prob: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    next_obs: rl.Obs


@dataclass(frozen=True)
class IMPALA(rl.PolicyGradient):
    """The agent; `rl.PolicyGradient` says what its network returns."""

    config: IMPALAConfig = IMPALAConfig()
    hyper: IMPALAHyperparams = IMPALAHyperparams()

    Config = IMPALAConfig
    Hyperparams = IMPALAHyperparams
    learns_estimates = False  # its advantages are V-trace's

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_minibatches(self.config.num_minibatches)

    @property
    def whole_rollouts(self) -> bool:
        return True  # V-trace sums over the steps of a rollout

    def update(
        self, state: rl.PolicyGradientState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[rl.PolicyGradientState, rl.Metrics]:
        trajectory, normalizer = state.normalizer.trajectory(trajectory, state.hyper.discount)
        batch = self.samples(
            Batch,
            trajectory,
            log_prob=self.behaviour(trajectory).log_prob(trajectory.extras["raw"]),
            reward=trajectory.reward,
            terminated=trajectory.terminated,
            truncated=trajectory.truncated,
            next_obs=trajectory.next_obs,
        )
        epochs = state.hyper.epochs
        learner, metrics = self.learn_minibatches(self.loss, state, batch, key, epochs)
        return replace(state, learner=learner, normalizer=normalizer), metrics

    def loss(
        self, variables: nn.Variables, batch: Batch, key: jax.Array, hyper: IMPALAHyperparams
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Add the policy gradient, the value loss and the entropy bonus (section 4.2).

        L = -mean(min(pg_rho_clip, ratio_t) * (r_t + discount * v_{t+1} - V(s_t)) * log pi(a_t|s_t))
            + value_coef * mean(0.5 * (v_t - V(s_t))^2) - entropy_coef * mean(H(pi(s_t))), with the
        V-trace targets v (equation 1) and the ratio of pi to the policy that acted, without
        gradient.

        Returns the loss, float32 `[]`, with the metrics and the network's new state; `key` is for
        the network's own randomness.
        """
        actor, value, steps, new_state = self.evaluate(variables, batch, key)
        log_prob, entropy = actor.log_prob(steps.action), actor.entropy().mean()
        log_ratio = jax.lax.stop_gradient(log_prob) - steps.log_prob
        rollouts = rl.swap_time(replace(batch, carry=()))  # [T, B, ...]
        log_prob, value, ratio = (
            flat.reshape(rollouts.reward.shape) for flat in (log_prob, value, jnp.exp(log_ratio))
        )
        _, next_value = self.values(
            jax.lax.stop_gradient(variables),
            replace(rollouts, carry=batch.carry),
            jax.lax.stop_gradient(value),
        )
        advantage, target = rl.vtrace(
            rollouts.reward,
            rollouts.terminated,
            rollouts.truncated,
            value,
            next_value,
            ratio,
            hyper.discount,
            hyper.trace_lambda,
            hyper.rho_clip,
            hyper.pg_rho_clip,
        )
        policy_loss = -jnp.mean(advantage * log_prob)
        value_loss = 0.5 * jnp.mean((target - value) ** 2)
        total = policy_loss + hyper.value_coef * value_loss - hyper.entropy_coef * entropy
        return total, (
            {
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": entropy,
                "approx_kl": jnp.mean(ratio.ravel() - 1.0 - log_ratio),
                "rho": jnp.mean(jnp.minimum(hyper.rho_clip, ratio)),
                "explained_variance": rl.explained_variance(value, target),
            },
            new_state,
        )
