"""Q-learning of the return's whole quantile function: over QR-DQN for finer distributions or risk.

Source: Dabney et al. 2018, "Implicit Quantile Networks for Distributional Reinforcement Learning",
https://arxiv.org/abs/1806.06923, equations 3 and 4. Options: those of DQN but
Munchausen rewards, with the sources that `algorithms/dqn.py` names.
Differences: a truncated episode bootstraps from its true last observation; priorities, if any, are
the temporal-difference errors of the means; tau's features multiply those of the last hidden layer;
fewer samples of tau by default than the paper's 64; greedy actions take midpoints instead.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl


@rl.pytree_dataclass
class IQNHyperparams(rl.ReplayedQHyperparams):
    """Hyperparameters of IQN, which a sweep may vary under `vmap`.

    Attributes:
      huber_threshold: error from which the loss is linear, kappa.
      cvar: eta, the fraction of the worst returns whose mean is maximized, the conditional value at
        risk; 1 maximizes the expected return.
    """

    huber_threshold: rl.Number = rl.positive(1.0)
    cvar: rl.Number = rl.between(1.0, 0.0, 1.0, above_low=True)


@dataclass(frozen=True, kw_only=True)
class IQNConfig(rl.ReplayedQConfig):
    """Static configuration of IQN.

    Attributes:
      num_tau: samples of tau in the loss, N.
      num_target_tau: samples of tau in the target, N'.
      num_policy_tau: samples of tau that the action values are the mean of, K.
      num_cosines: of tau, which its features are computed from, n.
    """

    num_tau: int = 8
    num_target_tau: int = 8
    num_policy_tau: int = 32
    num_cosines: int = rl.only_for("networks", 64)


@dataclass(frozen=True)
class IQN(rl.ReplayedQ):
    """The agent; it combines three networks, see `nn.implicit_quantile_network`."""

    config: IQNConfig = IQNConfig()
    hyper: IQNHyperparams = IQNHyperparams()

    Config = IQNConfig
    Hyperparams = IQNHyperparams

    def __post_init__(self) -> None:
        described = self.networks(self.obs_spec, self.action_spec, self.config)
        nn.check_parts(self.network, described, algorithm="IQN")
        super().__post_init__()

    @property
    def heads(self) -> dict[str, tuple[int, ...]]:
        return {}  # checked by part

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: IQNConfig = IQNConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe `obs_features`, `tau_features` and `quantiles`: psi, phi and f."""
        return nn.implicit_quantile_network(obs_spec, action_spec, config, algorithm="IQN")

    def q_values(self, variables: nn.Variables, obs: rl.Obs, hyper: IQNHyperparams) -> jax.Array:
        """Average K quantiles at the midpoints tau = cvar * (k - 1/2) / K, without sampling."""
        size = jax.tree.leaves(obs)[0].shape[0]
        tau = hyper.cvar * rl.tau_midpoints(size, self.config.num_policy_tau)
        return self._quantiles(variables, obs, tau)[0].mean(axis=1)

    def act(
        self,
        state: rl.ReplayedQState,
        carry: rl.Carry,
        inputs: rl.PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> rl.PolicyOutput:
        """Maximize the mean of K sampled quantiles; greedily, of those at the midpoints."""
        if not explore:
            return super().act(state, carry, inputs, key, explore=False)
        tau_key, action_key = jax.random.split(key)
        variables, num_envs = state.learner.variables, inputs.first.shape[0]
        tau = self._draw_tau(tau_key, num_envs, self.config.num_policy_tau, state.hyper.cvar)
        q = self._quantiles(variables, inputs.obs, tau)[0].mean(axis=1)
        return self.act_on(q, state, carry, inputs, action_key, explore=True)

    def loss(
        self, variables: nn.Variables, batch: rl.ReplayedBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average the quantile regression losses at sampled tau, weighted (equation 3).

        L = mean(w * sum_i E_j[|tau_i - 1{u_ij < 0}| Huber(u_ij) / kappa]), with the errors
        u_ij = r + discount * Z'_tau'_j(s', a*) - Z_tau_i(s, a), tau_i and tau'_j ~ U[0, 1], Z' of
        the target network, and a* of the largest mean of K quantiles by the target network; by the
        online network if `double`. The `td_errors` are those of the means.
        """
        sample, hyper, config = batch.sample, batch.hyper, self.config
        own_key, *keys = jax.random.split(key, 4)
        size = sample.reward.shape[0]
        tau = self._draw_tau(keys[0], size, config.num_tau)
        next_tau = self._draw_tau(keys[1], size, config.num_target_tau)
        policy_tau = self._draw_tau(keys[2], size, config.num_policy_tau, hyper.cvar)
        quantiles, new_state = self._quantiles(variables, sample.obs, tau, key=own_key, train=True)
        next_quantiles, _ = self._quantiles(batch.target, sample.next_obs, next_tau)
        chooser = variables if config.double else batch.target
        next_q = self._quantiles(chooser, sample.next_obs, policy_tau)[0].mean(axis=1)
        next_q = rl.mask_q(next_q, sample.next_action_mask)
        data = sample.action, sample.reward, sample.discount
        kappa = hyper.huber_threshold
        losses = rl.huber_quantile_losses(quantiles, tau, sample, next_q, next_quantiles, kappa)
        q, next_mean = quantiles.mean(axis=1), next_quantiles.mean(axis=1)
        errors = jax.vmap(rlax.double_q_learning)(q, *data, next_mean, next_q)
        loss = jnp.mean(batch.weight * losses) / kappa
        return loss, ({"td_errors": jnp.asarray(errors), "q": q.mean()}, new_state)

    def _draw_tau(self, key: jax.Array, size: int, count: int, high: rl.Number = 1.0) -> jax.Array:
        """Draw tau uniformly from [0, high], float32 `[size, count]`."""
        return high * jax.random.uniform(key, (size, count))

    def _quantiles(
        self,
        variables: nn.Variables,
        obs: rl.Obs,
        tau: jax.Array,
        key: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, rl.PyTree]:
        """Compute Z_tau(s, a) = f(psi(s) * phi(tau))_a, `[B, N, num_actions]`.

        phi(tau) = relu(sum_i w_i cos(pi * i * tau) + b), i from 0 to n - 1 (equation 4).
        """
        keys = dict.fromkeys(self.network.parts)
        if key is not None:
            keys = dict(zip(keys, jax.random.split(key, len(keys)), strict=True))
        state = {}

        def apply(name: str, inputs: rl.PyTree) -> jax.Array:
            part, part_variables = self.network.parts[name], nn.part_of(variables, name)
            heads, state[name] = nn.apply_heads(
                part, part_variables, inputs, key=keys[name], train=train
            )
            return heads[name]

        steps = jnp.arange(self.config.num_cosines, dtype=jnp.float32)
        cosines = jnp.cos(jnp.pi * tau.reshape(-1, 1) * steps[None])
        phi = jax.nn.relu(apply("tau_features", cosines)).reshape(*tau.shape, -1)
        features = jax.nn.relu(apply("obs_features", obs))[:, None] * phi
        rows = apply("quantiles", features.reshape(-1, features.shape[-1]))
        return rows.reshape(*tau.shape, -1), state
