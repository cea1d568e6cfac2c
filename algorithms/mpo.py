"""Maximum a posteriori policy optimization, off-policy within KL bounds: for steady improvement.

Source: Abdolmaleki et al. 2018, https://arxiv.org/abs/1806.06920, algorithm 2 and appendix D, with
the separate bounds on a Gaussian's mean and deviation of Abdolmaleki et al. 2018,
https://arxiv.org/abs/1812.02256, section 4.3; both as `rlax.mpo_loss` has them.
Differences: one-step targets instead of Retrace; the temperature and the multipliers are learned as
logarithms, with Adam; a diagonal Gaussian squashed by a tanh instead of one with a full covariance;
a truncated episode bootstraps from its true last observation.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl


@rl.pytree_dataclass
class MPOHyperparams(rl.ActorCriticHyperparams):
    """Hyperparameters of MPO, which a sweep may vary under `vmap`.

    Attributes:
      dual_learning_rate: of the logarithms of the temperature and of the multipliers.
      target_update_period: gradient steps between updates of both target networks; rounded down.
      tau: weight of the online parameters in each update of their targets': 1 copies them.
      temperature_bound: KL bound on the weights of the drawn actions, the paper's epsilon.
      policy_bound: KL bound on a discrete policy.
      mean_bound: the same on a Gaussian's mean.
      std_bound: the same on a Gaussian's standard deviation.
    """

    dual_learning_rate: rl.Number = 1e-2
    target_update_period: rl.Number = rl.between(100.0, 1.0)
    tau: rl.Number = rl.unit_interval(1.0)
    temperature_bound: rl.Number = 0.1
    policy_bound: rl.Number = 0.01
    mean_bound: rl.Number = 0.01
    std_bound: rl.Number = 1e-4


@dataclass(frozen=True, kw_only=True)
class MPOConfig(nn.CriticConfig, rl.ActorCriticConfig):
    """Static configuration of MPO.

    Attributes:
      num_actions: drawn from the target policy at each state.
      initial_temperature: at the start, the paper's eta.
      initial_multiplier: of each KL bound at the start, the paper's alpha.
    """

    num_actions: int = 20
    initial_temperature: float = rl.positive(1.0)
    initial_multiplier: float = rl.positive(10.0)


@rl.pytree_dataclass
class Drawn:
    """Actions drawn from the target policy at some states.

    Attributes:
      policy: the target policy, at `B` states.
      raw: `[M, B, n]` before the tanh, or int32 `[M, B]`.
      q: their values by the target critic, float32 `[M, B]`.
    """

    policy: Any
    raw: jax.Array
    q: jax.Array


@dataclass(frozen=True)
class MPO(rl.ActorCritic):
    """The agent, for discrete actions or a bounded `Box` of floats; it combines three networks.

    `actor` gives `mean` and `log_std` `[B, n]`, or `logits`; `critic` reads observations and
    actions within [-1, 1] and gives `q` `[B]`, or reads observations and gives `[B, num_actions]`;
    `dual` has the logarithms of the temperature and of a multiplier for each bound.
    """

    config: MPOConfig = MPOConfig()
    hyper: MPOHyperparams = MPOHyperparams()

    Config = MPOConfig
    Hyperparams = MPOHyperparams
    discrete = True

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: MPOConfig = MPOConfig()
    ) -> dict[str, nn.NetworkSpec | nn.Network]:
        """Describe the `actor`, the `critic` and the `dual` variables."""
        unit = rl.unit_actions(action_spec, algorithm="MPO")
        bounds = ("mean", "std") if isinstance(unit, rl.Box) else ("policy",)
        logs = {name: nn.scalar(math.log(config.initial_multiplier), "log") for name in bounds}
        logs["temperature"] = nn.scalar(math.log(config.initial_temperature), "log")
        parts = nn.soft_actor_critic(obs_spec, unit, config, num_critics=1)
        return {"actor": parts["actor"], "critic": parts["critic"], "dual": nn.combine(logs)}

    def followed(self, variables: dict[str, nn.Variables]) -> dict[str, nn.Variables]:
        return {part: variables[part] for part in ("actor", "critic")}

    def learn(
        self, state: rl.ActorCriticState, sample: rl.Sample, key: jax.Array
    ) -> tuple[rl.ActorCriticState, rl.Metrics]:
        """Step the critic, the dual variables (E-step), the actor (M-step) and the targets."""
        draw_key, step_key = jax.random.split(key)
        drawn = self.draw(state, sample.obs, sample.action_mask, draw_key)
        state, metrics = self.step(
            state,
            sample,
            step_key,
            critic=self.critic_loss,
            dual=partial(self.dual_loss, drawn),
            actor=partial(self.actor_loss, drawn),
        )
        return self.move_targets(state), metrics

    def draw(
        self, state: rl.ActorCriticState, obs: rl.Obs, action_mask: jax.Array | None, key: jax.Array
    ) -> Drawn:
        """Draw actions of the target policy, and estimate their values by the target critic."""
        target = state.target
        policy, _ = self.policy(target["actor"], obs, action_mask)
        keys = jax.random.split(key, self.config.num_actions + 1)
        raw = jax.vmap(policy.sample)(keys[:-1])

        def value(raw: jax.Array) -> jax.Array:
            action = rl.squashed(policy, raw)
            return self.q(target["critic"], obs, action, key=keys[-1])[0][0]

        return Drawn(policy=policy, raw=raw, q=jax.vmap(value)(raw))

    def critic_loss(
        self, critic: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average 0.5 (Q(s, a) - y)^2, y = r + discount * mean_j Q'(s', a_j), a_j ~ pi'(s')."""
        sample, mask = batch.sample, batch.sample.next_action_mask
        draw_key, own_key = jax.random.split(key)
        next_q = self.draw(batch.state, sample.next_obs, mask, draw_key).q.mean(axis=0)
        q, new_state = self.q(critic, sample.obs, sample.action, key=own_key, train=True)
        loss, metrics = self.regress(q, sample.reward + sample.discount * next_q, batch)
        return loss, (metrics, new_state)

    def dual_loss(
        self, drawn: Drawn, dual: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average eta * (epsilon + log mean_j exp(Q'_j / eta)) + sum_k alpha_k (epsilon_k - KL_k).

        Its first term is the dual of the E-step (equation 9), its second that of the M-step's
        bounds, with the policy held (appendix D.3).
        """
        sample, actor = batch.sample, batch.state.learners["actor"].variables
        policy, _ = self.policy(actor, sample.obs, sample.action_mask)
        parts, divergences = self._improvement(drawn, policy, dual, batch.state.hyper)
        values = {name: jnp.exp(value) for name, value in dual.params.items()}
        metrics = {"temperature": values.pop("temperature")}
        metrics |= {f"{name}_multiplier": value for name, value in values.items()}
        metrics |= {f"{name}_kl": divergence.mean() for name, divergence in divergences.items()}
        return jnp.mean(parts.temperature_loss + parts.alpha_loss), (metrics, dual.state)

    def actor_loss(
        self, drawn: Drawn, actor: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average -sum_j w_j log pi(a_j|s) + sum_k alpha_k KL_k, w_j ~ exp(Q'_j / eta).

        The M-step (equation 12), with multipliers held; the weights sum to 1 (equation 7).
        """
        sample, dual = batch.sample, batch.state.learners["dual"].variables
        policy, new_state = self.policy(actor, sample.obs, sample.action_mask, key=key, train=True)
        parts, _ = self._improvement(drawn, policy, dual, batch.state.hyper)
        loss = jnp.mean(parts.policy_loss + parts.kl_loss)
        return loss, ({"entropy": policy.entropy().mean()}, new_state)

    def _improvement(
        self,
        drawn: Drawn,
        policy: Any,
        dual: nn.Variables,
        hyper: MPOHyperparams,
    ) -> tuple[rl.PyTree, dict[str, jax.Array]]:
        """Compute the losses of both steps `[B]`, and the KL divergences from the target policy.

        A Gaussian's log-density is that with the target's deviation plus that with its mean.
        """
        pieces, old = (policy,), drawn.policy
        if not isinstance(policy, rl.Categorical):
            pieces = (
                rl.squashed_gaussian(policy.mean, old.log_std),
                rl.squashed_gaussian(old.mean, policy.log_std),
            )
        log_prob = jnp.stack([jax.vmap(piece.log_prob)(drawn.raw) for piece in pieces]).sum(axis=0)
        divergences = old.kl_terms(policy)

        def bounded(name: str) -> rlax.LagrangePenalty:
            return rlax.LagrangePenalty(dual.params[name], getattr(hyper, f"{name}_bound"))

        bounds = [(kl, bounded(name)) for name, kl in divergences.items()]
        _, parts = rlax.mpo_loss(
            log_prob, drawn.q, bounded("temperature"), bounds, projection_operator=jnp.exp
        )
        return parts, divergences
