"""Deep Q-learning, the first choice for discrete actions where environment steps are costly.

Source: Mnih et al. 2015, https://doi.org/10.1038/nature14236, algorithm 1. Options: double
Q-learning (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461, equation 4), dueling networks
(Wang et al. 2016, https://arxiv.org/abs/1511.06581, equation 9), prioritized replay (Schaul et al.
2016, https://arxiv.org/abs/1511.05952, proportional), n-step returns (Hessel et al. 2018,
https://arxiv.org/abs/1710.02298, section "Multi-step learning"), layer normalization (Ba et al.
2016, https://arxiv.org/abs/1607.06450), Huber's loss, whose gradient is the clipped error of Mnih
et al. (section "Training algorithm"), and Munchausen rewards (Vieillard et al. 2020,
https://arxiv.org/abs/2007.14430, equation 2).
Differences: Adam, on half the squared error unless `huber`; a truncated episode bootstraps from
its true last observation; the exponent of the importance weights is constant over the run.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl


@rl.pytree_dataclass
class DQNHyperparams(rl.ReplayedQHyperparams):
    """Hyperparameters of DQN, which a sweep may vary under `vmap`.

    Attributes:
      huber_threshold: error from which the loss is linear; 1 clips its gradient to [-1, 1].
      munchausen_coef: of the log-policy that is added to rewards, alpha, within [0, 1].
      munchausen_temperature: of the softmax policy, tau.
      munchausen_min: lower bound of the log-policy times the temperature, l0, at most 0.
    """

    huber_threshold: rl.Number = rl.only_for("huber", rl.positive(1.0))
    munchausen_coef: rl.Number = rl.only_for("munchausen", rl.unit_interval(0.9))
    munchausen_temperature: rl.Number = rl.only_for("munchausen", rl.positive(0.03))
    munchausen_min: rl.Number = rl.only_for("munchausen", rl.finite(-1.0, 0.0))


@dataclass(frozen=True, kw_only=True)
class DQNConfig(rl.ReplayedQConfig):
    """Static configuration of DQN.

    Attributes:
      huber: Huber's loss of an error; otherwise half its square.
      munchausen: add the log-probability of the action, under a softmax of the target network's
        values, to the reward, and bootstrap on that policy's soft value.
    """

    huber: bool = False
    munchausen: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.munchausen and self.double:
            raise rl.TriglotError(
                "DQN's munchausen bootstraps on a softmax of the target network's values, and "
                "double on one action: choose one of them."
            )


@dataclass(frozen=True)
class DQN(rl.ReplayedQ):
    """The agent; its network gives `q` `[B, num_actions]`, and must not be recurrent."""

    config: DQNConfig = DQNConfig()
    hyper: DQNHyperparams = DQNHyperparams()

    Config = DQNConfig
    Hyperparams = DQNHyperparams

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: DQNConfig = DQNConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `q_network`."""
        return nn.q_network(obs_spec, action_spec, config, algorithm="DQN")

    @property
    def replay(self) -> rl.Replay:
        replay = rl.Replay.of(self.config, self.obs_spec, self.action_spec)
        return replace(replay, own_masks=self.config.munchausen)

    def q_values(self, variables: nn.Variables, obs: rl.Obs, hyper: DQNHyperparams) -> jax.Array:
        """Read the action values from the head `q`."""
        del hyper
        return nn.apply_heads(self.network, variables, obs)[0]["q"]

    def loss(
        self, variables: nn.Variables, batch: rl.ReplayedBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average half the squared temporal-difference error, weighted.

        L = mean(0.5 * w * (r + discount * max_a Q'(s', a) - Q(s, a))^2), with Q' of the target
        network; the online network chooses its action if `double`. Of an error u beyond the
        threshold k, `huber` takes k (|u| - k / 2) instead of u^2 / 2.

        Returns the loss, float32 `[]`, with the metrics, `td_errors` `[B]` among them, and the
        network's new state; `key` is for the network's own randomness.
        """
        sample, hyper = batch.sample, batch.hyper
        heads, new_state = nn.apply_heads(self.network, variables, sample.obs, key=key, train=True)
        q = heads["q"]
        next_q = self.q_values(batch.target, sample.next_obs, hyper)
        data = (q, sample.action, sample.reward, sample.discount)
        if self.config.munchausen:
            errors = self._munchausen_errors(q, next_q, batch)
        elif self.config.double:
            online = self.q_values(variables, sample.next_obs, hyper)
            chooser = rl.mask_q(online, sample.next_action_mask)
            errors = jax.vmap(rlax.double_q_learning)(*data, next_q, chooser)
        else:
            errors = jax.vmap(rlax.q_learning)(*data, rl.mask_q(next_q, sample.next_action_mask))
        errors = jnp.asarray(errors)
        if self.config.huber:
            losses = rlax.huber_loss(errors, hyper.huber_threshold)
        else:
            losses = rlax.l2_loss(errors)
        loss = jnp.mean(batch.weight * losses)
        return loss, ({"td_errors": errors, "q": q.mean()}, new_state)

    def _munchausen_errors(
        self, q: jax.Array, next_q: jax.Array, batch: rl.ReplayedBatch
    ) -> jax.Array:
        """Compute r + alpha * clip(tau * log pi(a|s), l0, 0) + discount * V(s') - Q(s, a).

        pi = softmax(Q' / tau) and V = tau * log sum_a exp(Q' / tau), which is the sum over a of
        pi(a) * (Q'(a) - tau * log pi(a)), over allowed actions; of n steps, the first one's
        log-policy is added.
        """
        sample, hyper = batch.sample, batch.hyper
        own_q = self.q_values(batch.target, sample.obs, hyper)
        value = rl.soft_value(own_q, sample.action_mask, hyper.munchausen_temperature)
        log_policy = rl.at_action(own_q, sample.action) - value
        bonus = jnp.clip(log_policy, hyper.munchausen_min, 0.0)
        next_value = rl.soft_value(next_q, sample.next_action_mask, hyper.munchausen_temperature)
        reward = sample.reward + hyper.munchausen_coef * bonus
        q_taken = rl.at_action(q, sample.action)
        return jnp.asarray(jax.vmap(rlax.td_learning)(q_taken, reward, sample.discount, next_value))
