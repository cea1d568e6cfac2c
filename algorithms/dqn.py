"""Deep Q-learning for discrete actions.

Source: Mnih et al. 2015, https://doi.org/10.1038/nature14236, algorithm 1. Options: double
Q-learning (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461, equation 4), dueling networks
(Wang et al. 2016, https://arxiv.org/abs/1511.06581, equation 9), prioritized replay (Schaul et al.
2016, https://arxiv.org/abs/1511.05952, proportional) and n-step returns (Hessel et al. 2018,
https://arxiv.org/abs/1710.02298, section "Multi-step learning").
Differences: Adam, on half the squared error without clipping; a truncated episode bootstraps from
its true last observation; the exponent of the importance weights is constant over the run.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl


@rl.pytree_dataclass
class DQNHyperparams(rl.ReplayedQHyperparams):
    """Hyperparameters of DQN, which a sweep may vary under `vmap`."""


@dataclass(frozen=True, kw_only=True)
class DQNConfig(rl.ReplayedQConfig):
    """Static configuration of DQN."""


@dataclass(frozen=True)
class DQN(rl.ReplayedQ):
    """The agent; its network gives `q` `[B, num_actions]`, and must not be recurrent."""

    config: DQNConfig = DQNConfig()
    hyper: DQNHyperparams = DQNHyperparams()

    Config = DQNConfig
    Hyperparams = DQNHyperparams

    @property
    def heads(self) -> dict[str, tuple[int, ...]]:
        return {"q": (self.num_actions,)}

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: DQNConfig = DQNConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `q_network`."""
        torso = nn.default_torso(obs_spec, config.hidden_sizes, config, activation="relu")
        head = nn.q_head(nn.num_actions(action_spec, algorithm="DQN"), dueling=config.dueling)
        return {"q_network": nn.NetworkSpec(obs_spec, torso, (("q", head),))}

    def q_values(self, variables: nn.Variables, obs: Any, hyper: DQNHyperparams) -> jax.Array:
        """Read the action values from the head `q`."""
        del hyper
        return nn.apply_heads(self.network, variables, obs)[0]["q"]

    def loss(
        self, variables: nn.Variables, batch: rl.ReplayedBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, Any]]:
        """Average half the squared temporal-difference error, weighted.

        L = mean(0.5 * w * (r + discount * max_a Q'(s', a) - Q(s, a))^2), with Q' of the target
        network; the online network chooses its action if `double`.

        Returns the loss, float32 `[]`, with the metrics, `td_errors` `[B]` among them, and the
        network's new state; `key` is for the network's own randomness.
        """
        sample, hyper = batch.sample, batch.hyper
        heads, new_state = nn.apply_heads(self.network, variables, sample.obs, key=key, train=True)
        q = heads["q"]
        next_q = self.q_values(batch.target, sample.next_obs, hyper)
        data = (q, sample.action, sample.reward, sample.discount)
        if self.config.double:
            online = self.q_values(variables, sample.next_obs, hyper)
            chooser = rl.mask_q(online, sample.next_action_mask)
            errors = jax.vmap(rlax.double_q_learning)(*data, next_q, chooser)
        else:
            errors = jax.vmap(rlax.q_learning)(*data, rl.mask_q(next_q, sample.next_action_mask))
        errors = jnp.asarray(errors)
        loss = jnp.mean(batch.weight * rlax.l2_loss(errors))
        return loss, ({"td_errors": errors, "q": q.mean()}, new_state)
