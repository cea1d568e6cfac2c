"""Truncated quantile critics: SAC whose targets leave out the highest quantiles of the return.

Source: Kuznetsov et al. 2020, "Controlling Overestimation Bias with Truncated Mixture of Continuous
Distributional Quantile Critics", https://arxiv.org/abs/2005.04269, section 3 and algorithm 1.
Differences: two critics with two hidden layers of 256 units instead of five with three of 512, as
in sb3-contrib; a truncated episode bootstraps from its true last observation; observations may be
normalized.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from .. import nn, rl
from .sac import SACConfig


@rl.pytree_dataclass
class TQCHyperparams(rl.ActorCriticHyperparams):
    """Hyperparameters of TQC, which a sweep may vary under `vmap`.

    Attributes:
      temperature_learning_rate: of the log temperature.
      target_entropy: entropy of the policy that the temperature is tuned to, in nats, of actions
        within [-1, 1]; None: minus the number of action dimensions.
      huber_threshold: error from which the loss is linear, kappa.
    """

    critic_learning_rate: rl.Number = 3e-4
    temperature_learning_rate: rl.Number = 3e-4
    target_entropy: rl.Number | None = rl.finite(None)
    huber_threshold: rl.Number = rl.positive(1.0)


@dataclass(frozen=True, kw_only=True)
class TQCConfig(SACConfig):
    """Static configuration of TQC.

    Attributes:
      num_critics: of the ensemble, the paper's N.
      num_quantiles: of each critic's distribution, the paper's M.
      num_dropped_quantiles: for each critic, how many of the highest of all N M quantiles are left
        out of the target, the paper's d; below `num_quantiles`.
    """

    num_critics: int = 2
    num_quantiles: int = 25
    num_dropped_quantiles: int = rl.between(2, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_dropped_quantiles >= self.num_quantiles:
            raise rl.TriglotError(
                f"TQC's num_dropped_quantiles must be below num_quantiles = {self.num_quantiles}, "
                f"so that a target is left; got {self.num_dropped_quantiles}."
            )


@dataclass(frozen=True)
class TQC(rl.ActorCritic):
    """The agent, for a bounded `Box` of float actions; it combines three networks.

    They are those of `SAC`, but that `critic`, an ensemble of `num_critics`, gives `quantiles`
    `[B, num_quantiles]`.
    """

    config: TQCConfig = TQCConfig()
    hyper: TQCHyperparams = TQCHyperparams()

    Config = TQCConfig
    Hyperparams = TQCHyperparams

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: TQCConfig = TQCConfig()
    ) -> dict[str, nn.NetworkSpec | nn.Network]:
        """Describe the `actor`, the ensemble `critic` and the `temperature`."""
        unit = rl.unit_box(action_spec, algorithm="TQC")
        described = nn.soft_actor_critic(obs_spec, unit, config, config.num_critics)
        critic = described["critic"]
        head = ("quantiles", nn.Head(size=config.num_quantiles))
        return described | {"critic": replace(critic, heads=(head,))}

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
        """Average the quantile regression losses, and sum them over the critics.

        L = sum_n E_{i, m}[w |tau_m - 1{u < 0}| Huber(u) / kappa], u = y_i - theta_nm(s, a), with
        y_i = r + discount * (z_i - temperature * log pi(a'|s')), a' ~ pi(s'), of the lowest
        N (M - d) quantiles z_i of all targets at (s', a'). The `td_errors` are those of the means.
        """
        sample, state, hyper = batch.sample, batch.state, batch.state.hyper
        draw_key, own_key, target_key = jax.random.split(key, 3)
        actor = state.learners["actor"].variables
        drawn = rl.weighted_actions(self.policy(actor, sample.next_obs)[0], draw_key)
        all_z, _ = self._quantiles(state.target, sample.next_obs, drawn.action, key=target_key)
        z = rl.lowest_quantiles(all_z, self.config.num_dropped_quantiles)
        next_value = z - (self.temperature(state) * drawn.mean(drawn.log_prob))[:, None]
        target = sample.reward[:, None] + sample.discount[:, None] * next_value
        theta, new_state = self._quantiles(
            critic, sample.obs, sample.action, key=own_key, train=True
        )
        losses = rl.ensemble_quantile_losses(theta, target, hyper.huber_threshold)
        q, weight = theta.mean(axis=-1), batch.weight
        metrics = {"q": q.mean()}
        if weight is not None:
            metrics["td_errors"] = jnp.abs(target.mean(axis=-1)[None] - q).mean(axis=0)
            losses = losses * weight[None]
        return losses.mean(axis=1).sum(), (metrics, new_state)

    def actor_loss(
        self, actor: nn.Variables, batch: rl.ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average temperature * log pi(a|s) - mean_{n, m} theta_nm(s, a), a ~ pi(s).

        The mean is that of all quantiles: nothing is left out.
        """
        sample, state = batch.sample, batch.state
        draw_key, own_key, critic_key = jax.random.split(key, 3)
        policy, new_state = self.policy(actor, sample.obs, key=own_key, train=True)
        drawn = rl.weighted_actions(policy, draw_key)
        critic = state.learners["critic"].variables
        theta, _ = self._quantiles(critic, sample.obs, drawn.action, key=critic_key)
        log_prob = drawn.mean(drawn.log_prob)
        loss = jnp.mean(self.temperature(state) * log_prob - theta.mean(axis=(0, 2)))
        return loss, ({"entropy": -log_prob.mean()}, new_state)

    def _quantiles(
        self,
        critic: nn.Variables,
        obs: rl.Obs,
        action: jax.Array | None,
        key: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, rl.PyTree]:
        """Apply the critics, `[N, B, M]`."""
        network = self.network.parts["critic"]
        heads, state = nn.apply_heads(network, critic, (obs, action), key=key, train=train)
        quantiles = heads["quantiles"]
        return quantiles if quantiles.ndim == 3 else quantiles[None], state
