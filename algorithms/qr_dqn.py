"""Q-learning of quantiles of the return: over C51 where the range of returns is not known.

Source: Dabney et al. 2017, "Distributional Reinforcement Learning with Quantile Regression",
https://arxiv.org/abs/1710.10044, algorithm 1 and equations 9 and 10. Options: those of DQN but
Munchausen rewards, with the sources that `algorithms/dqn.py` names.
Differences: a truncated episode bootstraps from its true last observation; priorities, if any, are
the temporal-difference errors of the means.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl


@rl.pytree_dataclass
class QRDQNHyperparams(rl.ReplayedQHyperparams):
    """Hyperparameters of QR-DQN, which a sweep may vary under `vmap`.

    Attributes:
      huber_threshold: error from which the loss is linear, kappa.
    """

    huber_threshold: rl.Number = rl.only_for("huber", rl.positive(1.0))


@dataclass(frozen=True, kw_only=True)
class QRDQNConfig(rl.ReplayedQConfig):
    """Static configuration of QR-DQN.

    Attributes:
      num_quantiles: of each distribution, N.
      huber: Huber's loss of an error; otherwise its absolute value (QR-DQN-0).
    """

    num_quantiles: int = 51
    huber: bool = True


@dataclass(frozen=True)
class QRDQN(rl.ReplayedQ):
    """The agent; its network gives `quantiles` `[B, num_actions, num_quantiles]`."""

    config: QRDQNConfig = QRDQNConfig()
    hyper: QRDQNHyperparams = QRDQNHyperparams()

    Config = QRDQNConfig
    Hyperparams = QRDQNHyperparams

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: QRDQNConfig = QRDQNConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `q_network`."""
        return nn.q_network(
            obs_spec,
            action_spec,
            config,
            algorithm="QR-DQN",
            head="quantiles",
            atoms=config.num_quantiles,
        )

    def q_values(self, variables: nn.Variables, obs: rl.Obs, hyper: QRDQNHyperparams) -> jax.Array:
        """Average the quantiles, Q(s, a) = sum_i theta_i(s, a) / N."""
        del hyper
        return self._quantiles(variables, obs)[0].mean(axis=1)

    def loss(
        self, variables: nn.Variables, batch: rl.ReplayedBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average the quantile regression losses, weighted.

        L = mean(w * sum_i E_j[|tau_i - 1{u_ij < 0}| Huber(u_ij)]), with the errors
        u_ij = r + discount * theta'_j(s', a*) - theta_i(s, a), theta' of the target network, the
        midpoints tau_i = (i - 1/2) / N and a* = argmax_a Q'(s', a); the online network chooses a*
        if `double`. The `td_errors` are those of the means.
        """
        sample = batch.sample
        theta, new_state = self._quantiles(variables, sample.obs, key=key, train=True)
        next_theta, _ = self._quantiles(batch.target, sample.next_obs)
        if self.config.double:
            chooser, _ = self._quantiles(variables, sample.next_obs)
        else:
            chooser = next_theta
        next_q = rl.mask_q(chooser.mean(axis=1), sample.next_action_mask)
        tau = rl.tau_midpoints(*theta.shape[:2])
        data = sample.action, sample.reward, sample.discount
        if self.config.huber:
            kappa = batch.hyper.huber_threshold
            losses = rl.huber_quantile_losses(theta, tau, sample, next_q, next_theta, kappa)
        else:
            regress = jax.vmap(rlax.quantile_q_learning)
            losses = jnp.asarray(regress(theta, tau, *data, next_q[:, None], next_theta))
        q, next_mean = theta.mean(axis=1), next_theta.mean(axis=1)
        errors = jax.vmap(rlax.double_q_learning)(q, *data, next_mean, next_q)
        loss = jnp.mean(batch.weight * losses)
        return loss, ({"td_errors": jnp.asarray(errors), "q": q.mean()}, new_state)

    def _quantiles(
        self,
        variables: nn.Variables,
        obs: rl.Obs,
        key: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, rl.PyTree]:
        """Apply the network, `[B, num_quantiles, num_actions]`."""
        heads, state = nn.apply_heads(self.network, variables, obs, key=key, train=train)
        return heads["quantiles"].swapaxes(1, 2), state
