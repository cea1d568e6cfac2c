"""V-MPO, policy improvement within KL bounds: on-policy without a clip range or entropy bonus.

Source: Song et al. 2019, https://arxiv.org/abs/1909.12238, equations 3 to 5 and section 4, with
the separate bounds on a Gaussian's mean and deviation of Abdolmaleki et al. 2018,
https://arxiv.org/abs/1812.02256, section 4.3.
Differences: each rollout of the target policy is used for `num_epochs` of minibatches; the
temperature and the multipliers are learned as logarithms, with Adam at a rate of their own, instead
of being projected; no PopArt; generalized advantages with `gae_lambda` below 1; a truncated episode
bootstraps from its true last observation. Continuous actions are squashed by tanh, or
clipped, see `rl.PolicyGradientConfig`.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl


@rl.pytree_dataclass
class VMPOHyperparams(rl.PolicyGradientHyperparams):
    """Hyperparameters of V-MPO, which a sweep may vary under `vmap`.

    Attributes:
      dual_learning_rate: of the logarithms of the temperature and of the multipliers.
      gae_lambda: of generalized advantage estimation; 1 gives the paper's returns of up to `T`
        steps.
      temperature_bound: KL bound on the weights of the samples, the paper's epsilon_eta.
      policy_bound: KL bound on a discrete policy, the paper's epsilon_alpha.
      mean_bound: the same on a Gaussian's mean.
      std_bound: the same on a Gaussian's standard deviation.
      target_update_period: updates between copies of the learned network to the target, which
        acts; rounded down.
      epochs: how many of the `num_epochs` passes are taken; may be a fraction. None: all.
    """

    dual_learning_rate: rl.Number = 1e-2
    gae_lambda: rl.Number = rl.unit_interval(1.0)
    temperature_bound: rl.Number = 0.1
    policy_bound: rl.Number = 0.01
    mean_bound: rl.Number = 0.01
    std_bound: rl.Number = 1e-3
    target_update_period: rl.Number = rl.between(1.0, 1.0)
    epochs: rl.Number | None = rl.part_of("num_epochs")


@dataclass(frozen=True, kw_only=True)
class VMPOConfig(rl.PolicyGradientConfig):
    """Static configuration of V-MPO.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`.
      num_epochs: passes over a rollout.
      num_minibatches: gradient steps in one pass; must divide `N * T`.
      top_fraction: share of a minibatch, by advantage, that the policy learns from.
      initial_temperature: at the start, the paper's eta.
      initial_multiplier: of each KL bound at the start, the paper's alpha.
    """

    num_envs: int = 16
    rollout_length: int = 32
    num_epochs: int = 4
    num_minibatches: int = 4
    top_fraction: float = rl.between(0.5, 0.0, 1.0, above_low=True)
    initial_temperature: float = rl.positive(1.0)
    initial_multiplier: float = rl.positive(5.0)


@rl.pytree_dataclass
class VMPOState(rl.PolicyGradientState):
    """V-MPO training state.

    Attributes:
      target: variables of the network that acts.
      duals: the logarithms of the temperature and of the multipliers.
    """

    target: nn.Variables
    duals: rl.LearnerState


@rl.pytree_dataclass
class Batch(rl.AdvantageSamples):
    """Samples of a rollout; `heads` are those of the target policy, which collected it."""

    heads: dict[str, jax.Array]


@dataclass(frozen=True)
class VMPO(rl.PolicyGradient):
    """The agent; `rl.PolicyGradient` says what its network returns."""

    config: VMPOConfig = VMPOConfig()
    hyper: VMPOHyperparams = VMPOHyperparams()

    Config = VMPOConfig
    Hyperparams = VMPOHyperparams

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_minibatches(self.config.num_minibatches)
        size = self.config.steps_per_update // self.config.num_minibatches
        if self.config.top_fraction * size < 1.0:
            raise rl.TriglotError(
                f"VMPO's top_fraction of {self.config.top_fraction:g} is less than one sample of a "
                f"minibatch of {size}: set fewer num_minibatches or more num_envs."
            )

    @property
    def duals(self) -> rl.Learner:
        """The temperature and the multipliers, one for each bound, with their optimizer."""
        bounds = ("mean", "std") if isinstance(self.action_spec, rl.Box) else ("policy",)
        start = math.log(self.config.initial_multiplier)
        logs = {name: nn.scalar(start, name) for name in bounds}
        logs["temperature"] = nn.scalar(math.log(self.config.initial_temperature), "temperature")
        return rl.Learner(nn.combine(logs), self.optimizer)

    def init(
        self, key: jax.Array, num_envs: int, hyper: VMPOHyperparams | None = None
    ) -> VMPOState:
        net_key, dual_key = jax.random.split(key)
        learned = super().init(net_key, num_envs, hyper)
        target = rl.target_of(learned.learner.variables)
        duals = self.duals.init(dual_key, self._dual_rate(learned.hyper))
        return VMPOState(**vars(learned), target=target, duals=duals)

    def acting(self, state: VMPOState) -> nn.Variables:
        return state.target

    def update(
        self, state: VMPOState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[VMPOState, rl.Metrics]:
        config, hyper = self.config, state.hyper
        trajectory, normalizer = state.normalizer.trajectory(trajectory, hyper.discount)
        # A shared torso gives values of the target network, which may be old.
        heads = {name: head for name, head in trajectory.extras.items() if name != "value"}
        trajectory = replace(trajectory, extras=heads)
        value, advantage, target = self.estimate(
            state.learner.variables, trajectory, hyper.discount, hyper.gae_lambda
        )
        explained = rl.explained_variance(value, target)
        batch = self.samples(Batch, trajectory, heads=heads, advantage=advantage, target=target)
        num_steps = config.num_epochs * config.num_minibatches

        def minibatch_step(
            learners: tuple[rl.LearnerState, rl.LearnerState], minibatch: Batch, key: jax.Array
        ) -> tuple[tuple[rl.LearnerState, rl.LearnerState], rl.Metrics]:
            """Take both steps from the same parameters, as one of their joint loss would be."""
            learner, duals = learners
            key, dual_key = jax.random.split(key)

            def loss(
                variables: nn.Variables, data: Batch, key: jax.Array
            ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
                return self.loss(variables, duals.variables, data, key, hyper)

            def dual_loss(
                variables: nn.Variables, data: Batch, key: jax.Array
            ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
                total, _ = self.loss(learner.variables, variables, data, key, hyper)
                return total, ({}, variables.state)

            after, metrics = self.learner.step(learner, loss, minibatch, key, hyper)
            rate = self._dual_rate(hyper)
            duals, _ = self.duals.step(duals, dual_loss, minibatch, dual_key, rate)
            return (after, duals), metrics

        (learner, duals), metrics = rl.epochs_of_minibatches(
            minibatch_step,
            (state.learner, state.duals),
            batch,
            key,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            epochs=hyper.epochs,
        )
        number = learner.num_gradient_steps // num_steps
        is_time = rl.is_multiple(number, hyper.target_update_period)
        target = jax.tree.map(partial(jnp.where, is_time), learner.variables, state.target)
        new = {"learner": learner, "duals": duals, "target": target, "normalizer": normalizer}
        return replace(state, **new), {
            **metrics,
            "explained_variance": explained,
            "learning_rate": hyper.learning_rate,
        }

    def loss(
        self,
        variables: nn.Variables,
        duals: nn.Variables,
        batch: Batch,
        key: jax.Array,
        hyper: VMPOHyperparams,
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Add the losses of the policy, the temperature, the bounds and the value (section 4).

        L_pi = -sum(psi * log pi(a|s)), psi = exp(A / eta) / sum(exp(A / eta)) of the samples in the
        top half by advantage (equation 3), L_eta = eta * bound + eta * log(mean(exp(A / eta))) of
        them (equation 4), and L_alpha = mean(alpha * (bound - sg[KL]) + sg[alpha] * KL), with the
        KL divergence from the target policy to pi in all samples (equation 5).

        Returns the loss, float32 `[]`, with the metrics and the network's new state; `key` is for
        the network's own randomness.
        """
        actor, value, batch, new_state = self.evaluate(variables, batch, key)
        acted: Any = rl.policy(self.action_spec, batch.heads, batch.action_mask)
        divergences = acted.kl_terms(actor)

        def bounded(name: str) -> rlax.LagrangePenalty:
            return rlax.LagrangePenalty(duals.params[name], getattr(hyper, f"{name}_bound"))

        losses, parts = rlax.vmpo_loss(
            actor.log_prob(batch.action),
            batch.advantage,
            bounded("temperature"),
            [(divergence, bounded(name)) for name, divergence in divergences.items()],
            projection_operator=jnp.exp,
            top_k_fraction=self.config.top_fraction,
        )
        value_loss = jnp.mean(rlax.l2_loss(value, batch.target))
        return jnp.mean(losses) + hyper.value_coef * value_loss, (
            {
                "policy_loss": jnp.mean(parts.policy_loss),
                "value_loss": value_loss,
                "entropy": actor.entropy().mean(),
                "temperature": jnp.exp(duals.params["temperature"]),
                "temperature_loss": jnp.asarray(parts.temperature_loss),
                **{f"{name}_kl": jnp.mean(divergence) for name, divergence in divergences.items()},
                **{f"{name}_multiplier": jnp.exp(duals.params[name]) for name in divergences},
            },
            new_state,
        )

    def _dual_rate(self, hyper: VMPOHyperparams) -> VMPOHyperparams:
        """Fill in the duals' learning rate, which the optimizer reads."""
        return replace(hyper, learning_rate=hyper.dual_learning_rate)
