"""Q-learning of return distributions on fixed atoms: over DQN where the range of returns is known.

Source: Bellemare et al. 2017, "A Distributional Perspective on Reinforcement Learning",
https://arxiv.org/abs/1707.06887, algorithm 1. Options: those of DQN but Munchausen rewards, with
the sources that `algorithms/dqn.py` names; the priorities are those of Rainbow (Hessel et al. 2018,
https://arxiv.org/abs/1710.02298).
Differences: a truncated episode bootstraps from its true last observation; the loss is the
divergence from the target, whose gradient is that of the cross-entropy.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

from .. import nn, rl


@rl.pytree_dataclass
class C51Hyperparams(rl.ReplayedQHyperparams):
    """Hyperparameters of C51, which a sweep may vary under `vmap`.

    Attributes:
      v_min: the first atom, a lower bound of returns.
      v_max: the last atom, above `v_min`.
    """

    v_min: rl.Number = rl.below("v_max", -10.0)
    v_max: rl.Number = rl.finite(10.0)


@dataclass(frozen=True, kw_only=True)
class C51Config(rl.ReplayedQConfig):
    """Static configuration of C51.

    Attributes:
      num_atoms: of each distribution, evenly spaced from `v_min` to `v_max`, at least 2.
    """

    num_atoms: int = rl.between(51, 2)


@dataclass(frozen=True)
class C51(rl.ReplayedQ):
    """The agent; its network gives `logits` `[B, num_actions, num_atoms]`."""

    config: C51Config = C51Config()
    hyper: C51Hyperparams = C51Hyperparams()

    Config = C51Config
    Hyperparams = C51Hyperparams

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: C51Config = C51Config()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `q_network`."""
        return nn.q_network(
            obs_spec, action_spec, config, algorithm="C51", head="logits", atoms=config.num_atoms
        )

    def _atoms(self, hyper: C51Hyperparams) -> jax.Array:
        """Space the atoms z evenly, float32 `[num_atoms]`."""
        return jnp.linspace(hyper.v_min, hyper.v_max, self.config.num_atoms)

    def q_values(self, variables: nn.Variables, obs: rl.Obs, hyper: C51Hyperparams) -> jax.Array:
        """Compute the means, Q(s, a) = sum_i z_i p_i(s, a)."""
        return rl.categorical_mean(self._logits(variables, obs)[0], self._atoms(hyper))

    def loss(
        self, variables: nn.Variables, batch: rl.ReplayedBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average the divergence from the projected target distribution, weighted.

        L = mean(w * KL(Phi(r + discount * Z'(s', a*)) || Z(s, a))), with Z' of the target network,
        Phi the projection onto the atoms (equation 7), and a* = argmax_a Q'(s', a); the online
        network chooses a* if `double`. The divergences are the `td_errors`.
        """
        sample, atoms = batch.sample, self._atoms(batch.hyper)
        logits, new_state = self._logits(variables, sample.obs, key=key, train=True)
        next_logits, _ = self._logits(batch.target, sample.next_obs)
        if self.config.double:
            chooser, _ = self._logits(variables, sample.next_obs)
        else:
            chooser = next_logits
        next_q = rl.mask_q(rl.categorical_mean(chooser, atoms), sample.next_action_mask)
        target = rl.categorical_target(sample, next_logits, next_q, atoms)
        chosen = jnp.take_along_axis(logits, sample.action[:, None, None], axis=1)[:, 0]
        errors = optax.losses.kl_divergence(jax.nn.log_softmax(chosen), target)
        loss = jnp.mean(batch.weight * errors)
        metrics = {"td_errors": errors, "q": rl.categorical_mean(logits, atoms).mean()}
        return loss, (metrics, new_state)

    def _logits(
        self,
        variables: nn.Variables,
        obs: rl.Obs,
        key: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, rl.PyTree]:
        """Apply the network, `[B, num_actions, num_atoms]`."""
        heads, state = nn.apply_heads(self.network, variables, obs, key=key, train=train)
        return heads["logits"], state
