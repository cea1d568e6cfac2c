"""C51 with all extensions of DQN and noisy layers: the best returns per step, for more computation.

Source: Hessel et al. 2018, "Rainbow: Combining Improvements in Deep Reinforcement Learning",
https://arxiv.org/abs/1710.02298, section "The Integrated Agent": a distributional loss (Bellemare
et al. 2017, https://arxiv.org/abs/1707.06887) and noisy layers (Fortunato et al. 2018,
https://arxiv.org/abs/1706.10295) with double Q-learning, dueling networks, prioritized replay and
n-step returns, which are options, cited in `algorithms/dqn.py`.
Differences: a truncated episode bootstraps from its true last observation; one draw of the noise
serves a whole batch, and all environments of a step; greedy actions are chosen without noise.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

from .. import nn, rl


@rl.pytree_dataclass
class RainbowHyperparams(rl.ReplayedQHyperparams):
    """Hyperparameters of Rainbow, which a sweep may vary under `vmap`.

    Attributes:
      epsilon: probability of a random action; 0, since the noise explores.
      importance_sampling_exponent: of the weights that correct for priorities, at the start.
      importance_sampling_exponent_end: the same, from `importance_sampling_steps` on. None: it
        stays at `importance_sampling_exponent`, which may then be a schedule.
      importance_sampling_steps: environment steps, of all environments together, over which it
        changes linearly.
      v_min: the first atom, a lower bound of returns.
      v_max: the last atom, above `v_min`.
    """

    epsilon: rl.Number = rl.unit_interval(0.0)
    priority_exponent: rl.Number = rl.only_for("prioritized", 0.5)
    importance_sampling_exponent_end: rl.Number | None = rl.only_for(
        "prioritized", rl.anneals("importance_sampling_exponent", rl.unit_interval(1.0))
    )
    importance_sampling_steps: rl.Number = rl.only_for("prioritized", rl.between(250_000.0, 1.0))
    v_min: rl.Number = rl.below("v_max", -10.0)
    v_max: rl.Number = rl.finite(10.0)


@dataclass(frozen=True, kw_only=True)
class RainbowConfig(rl.ReplayedQConfig):
    """Static configuration of Rainbow.

    Attributes:
      num_atoms: of each distribution, evenly spaced from `v_min` to `v_max`, at least 2.
      initial_noise: of the noisy layers at the start, sigma_0.
    """

    n_step: int = 3
    prioritized: bool = True
    double: bool = True
    dueling: bool = rl.only_for("networks", True)
    num_atoms: int = rl.between(51, 2)
    initial_noise: float = rl.only_for("networks", rl.positive(0.5))


@dataclass(frozen=True)
class Rainbow(rl.ReplayedQ):
    """The agent; its network gives `logits` `[B, num_actions, num_atoms]`, with noise by key."""

    config: RainbowConfig = RainbowConfig()
    hyper: RainbowHyperparams = RainbowHyperparams()

    Config = RainbowConfig
    Hyperparams = RainbowHyperparams

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: RainbowConfig = RainbowConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `q_network`."""
        return nn.q_network(
            obs_spec,
            action_spec,
            config,
            algorithm="Rainbow",
            head="logits",
            atoms=config.num_atoms,
            noise=config.initial_noise,
        )

    def importance_sampling_exponent(self, state: rl.ReplayedQState) -> jax.Array:
        hyper, num_steps = state.hyper, state.replay.num_added
        start, end = hyper.importance_sampling_exponent, hyper.importance_sampling_exponent_end
        if end is None:
            return start
        return rl.linear_schedule(start, end, hyper.importance_sampling_steps, num_steps)

    def q_values(
        self, variables: nn.Variables, obs: rl.Obs, hyper: RainbowHyperparams
    ) -> jax.Array:
        """Compute the means, Q(s, a) = sum_i z_i p_i(s, a), without noise."""
        return rl.categorical_mean(self._logits(variables, obs)[0], self._atoms(hyper))

    def act(
        self,
        state: rl.ReplayedQState,
        carry: rl.Carry,
        inputs: rl.PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> rl.PolicyOutput:
        """Maximize the means, with noise in the layers if `explore`."""
        noise_key, action_key = jax.random.split(key)
        drawn_by = noise_key if explore else None
        logits, _ = self._logits(state.learner.variables, inputs.obs, key=drawn_by)
        q = rl.categorical_mean(logits, self._atoms(state.hyper))
        return self.act_on(q, state, carry, inputs, action_key, explore=explore)

    def loss(
        self, variables: nn.Variables, batch: rl.ReplayedBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average the divergence from the projected n-step target, weighted.

        L = mean(w * KL(Phi(R^(n) + discount^n * Z'(s', a*)) || Z(s, a))), with Z' of the target
        network, Phi the projection onto the atoms, and a* = argmax_a Q(s', a) of the online
        network, of the target network unless `double`. Each network application has its own noise.
        The divergences are the `td_errors`, from which the priorities follow.
        """
        sample, atoms = batch.sample, self._atoms(batch.hyper)
        online_key, target_key, chooser_key = jax.random.split(key, 3)
        logits, new_state = self._logits(variables, sample.obs, key=online_key, train=True)
        next_logits, _ = self._logits(batch.target, sample.next_obs, key=target_key)
        if self.config.double:
            chooser, _ = self._logits(variables, sample.next_obs, key=chooser_key)
        else:
            chooser = next_logits
        next_q = rl.mask_q(rl.categorical_mean(chooser, atoms), sample.next_action_mask)
        target = rl.categorical_target(sample, next_logits, next_q, atoms)
        chosen = jnp.take_along_axis(logits, sample.action[:, None, None], axis=1)[:, 0]
        errors = optax.losses.kl_divergence(jax.nn.log_softmax(chosen), target)
        loss = jnp.mean(batch.weight * errors)
        metrics = {"td_errors": errors, "q": rl.categorical_mean(logits, atoms).mean()}
        return loss, (metrics, new_state)

    def _atoms(self, hyper: RainbowHyperparams) -> jax.Array:
        """Space the atoms z evenly, float32 `[num_atoms]`."""
        return jnp.linspace(hyper.v_min, hyper.v_max, self.config.num_atoms)

    def _logits(
        self,
        variables: nn.Variables,
        obs: rl.Obs,
        key: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, rl.PyTree]:
        """Apply the network, `[B, num_actions, num_atoms]`; `key` draws its noise."""
        heads, state = nn.apply_heads(self.network, variables, obs, key=key, train=train)
        return heads["logits"], state
