"""REINFORCE with a learned baseline, on Monte-Carlo returns: for teaching and as a baseline.

Source: Williams 1992, https://doi.org/10.1007/BF00992696, theorem 1 with a reinforcement baseline;
Sutton and Barto 2018, http://incompleteideas.net/book/the-book-2nd.html, section 13.4, "REINFORCE
with Baseline (episodic)".
Differences: one gradient step for a whole rollout, which need not end with an episode: a return is
the sum of all rewards until its episode ends, and bootstraps from the baseline only where a time
limit or the end of the rollout cuts the episode. Adam for both step sizes; `value_coef` is their
ratio. The factor discount^t of the policy's update is an option.
"""

from dataclasses import dataclass, replace

import chex
import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl


@rl.pytree_dataclass
class REINFORCEHyperparams(rl.PolicyGradientHyperparams):
    """Hyperparameters of REINFORCE, which a sweep may vary under `vmap`.

    The learning rate is constant; `value_coef` is the weight of the baseline's loss.
    """

    learning_rate: rl.Number = 3e-3


@dataclass(frozen=True, kw_only=True)
class REINFORCEConfig(rl.PolicyGradientConfig):
    """Static configuration of REINFORCE.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`; long enough for most episodes to end.
      discount_steps: weigh the step `t` of an episode by discount^t, as the gradient of the
        discounted return from an episode's start does.
    """

    num_envs: int = 8
    rollout_length: int = 256
    discount_steps: bool = False


@rl.pytree_dataclass
class REINFORCEState(rl.PolicyGradientState):
    """REINFORCE training state; `age` `[N]` counts the steps of the last episodes so far."""

    age: jax.Array


@dataclass(frozen=True)
class REINFORCE(rl.PolicyGradient):
    """The agent; `rl.PolicyGradient` says what its network returns."""

    config: REINFORCEConfig = REINFORCEConfig()
    hyper: REINFORCEHyperparams = REINFORCEHyperparams()

    Config = REINFORCEConfig
    Hyperparams = REINFORCEHyperparams

    def init(
        self, key: jax.Array, num_envs: int, hyper: REINFORCEHyperparams | None = None
    ) -> REINFORCEState:
        learned = super().init(key, num_envs, hyper)
        return REINFORCEState(**vars(learned), age=jnp.zeros((num_envs,), jnp.float32))

    def update(
        self, state: REINFORCEState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[REINFORCEState, rl.Metrics]:
        hyper = state.hyper
        trajectory, normalizer = state.normalizer.trajectory(trajectory, hyper.discount)
        value, advantage, returns = self.estimate(
            state.learner.variables, trajectory, hyper.discount, gae_lambda=1.0
        )
        ones = jnp.ones_like(returns)
        age, count = rl.discounted_sums(state.age, ones, first=trajectory.first, discount=1.0)
        if self.config.discount_steps:
            advantage = hyper.discount ** (count - 1.0) * advantage
        batch = self.samples(rl.AdvantageSamples, trajectory, advantage=advantage, target=returns)

        learner, metrics = self.learn(self.loss, state, batch, key)
        metrics = {**metrics, "explained_variance": rl.explained_variance(value, returns)}
        return replace(state, learner=learner, normalizer=normalizer, age=age), metrics

    def loss(
        self,
        variables: nn.Variables,
        batch: rl.AdvantageSamples,
        key: jax.Array,
        hyper: REINFORCEHyperparams,
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Add the losses whose gradients are the two updates of the book's box.

        L = -mean(A * log pi(a|s)) + value_coef * mean(0.5 * (G - V(s))^2), with the return G and
        A = G - V(s) of before the update, without gradient; times discount^t of an episode's step t
        if `discount_steps`.

        Returns the loss, float32 `[]`, with the metrics and the network's new state; `key` is for
        the network's own randomness.
        """
        actor, value, batch, new_state = self.evaluate(variables, batch, key)
        log_prob = actor.log_prob(batch.action)
        chex.assert_equal_shape([value, batch.target, log_prob])
        policy_loss = -jnp.mean(batch.advantage * log_prob)
        value_loss = jnp.mean(rlax.l2_loss(value, batch.target))
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": actor.entropy().mean(),
        }
        return policy_loss + hyper.value_coef * value_loss, (metrics, new_state)
