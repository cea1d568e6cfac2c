"""Recurrent replay distributed DQN (R2D2): for discrete actions where memory is needed.

Source: Kapturowski et al. 2019, https://openreview.net/forum?id=r1lyTjAqYX, section 2.3 (value
rescaling, priorities) and section 3 (stored state and burn-in). A policy of another epsilon for
each environment: Horgan et al. 2018, https://arxiv.org/abs/1803.00933, section 4.1.
Differences: one process collects and learns in turns; sequences start where rollouts do, and go on
through the ends of episodes, at which the carry starts anew; a truncated episode bootstraps from
its true last observation, and the n-step return of a sequence's last steps from its last one; the
network sees observations alone, not the last action and reward; the online network chooses the next
actions by the outputs of the pass that learns; a new sequence has the highest priority so far, not
that of its first errors; a loss is the average over a sequence's steps, not their sum.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl


@rl.pytree_dataclass
class R2D2Hyperparams(rl.ReplayedQHyperparams):
    """Hyperparameters of R2D2, which a sweep may vary under `vmap`.

    Attributes:
      epsilon: probability of a random action in the first environment.
      epsilon_alpha: the last environment's epsilon is that of the first to the power of
        1 + epsilon_alpha, those between follow geometrically; 0: all explore alike.
      priority_eta: weight of a sequence's largest error in its priority, within [0, 1]; the rest is
        that of the average error.
    """

    epsilon: rl.Number = rl.unit_interval(0.4)
    epsilon_alpha: rl.Number = rl.between(7.0, 0.0)
    target_update_period: rl.Number = rl.between(100.0, 1.0)
    priority_exponent: rl.Number = rl.only_for("prioritized", 0.9)
    priority_eta: rl.Number = rl.only_for("prioritized", rl.unit_interval(0.9))
    importance_sampling_exponent: rl.Number = rl.only_for("prioritized", rl.unit_interval(0.6))


@dataclass(frozen=True, kw_only=True)
class R2D2Config(rl.SequenceReplayConfig, rl.ReplayedQConfig):
    """Static configuration of R2D2.

    Attributes:
      rollout_length: steps from each environment between updates, and from the start of a sequence
        to that of the next, `T`.
      learning_starts: environment steps before the first gradient step. None: 20,000 where
        observations have images, else 10,000.
      burn_in_length: first steps of a sequence, which only prepare the carry.
      unroll_length: the steps after them, which are learned from.
      rescale_values: learn h(Q), h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x, instead of Q.
      cell: `lstm` or `gru`, the recurrent cell before the heads.
      cell_size: units of the cell.
    """

    num_envs: int = 16
    rollout_length: int = 20
    num_gradient_steps: int = 4
    buffer_size: int = 100_000
    learning_starts: int = rl.by_environment(10_000, images=20_000)
    burn_in_length: int = rl.between(20, 0)
    unroll_length: int = 40
    n_step: int = 5
    prioritized: bool = True
    double: bool = True
    dueling: bool = rl.only_for("networks", True)
    rescale_values: bool = True
    cell: str = rl.only_for("networks", rl.one_of(*nn.CELLS))
    cell_size: int = rl.only_for("networks", 64)

    @property
    def sequence_length(self) -> int:
        """Steps in one sequence."""
        return self.burn_in_length + self.unroll_length

    @property
    def sequence_period(self) -> int:
        """Steps from the start of a sequence to that of the next."""
        return self.rollout_length


@dataclass(frozen=True)
class R2D2(rl.ReplayedQ):
    """The agent; its network gives `q` `[B, num_actions]`, and must be recurrent."""

    config: R2D2Config = R2D2Config()
    hyper: R2D2Hyperparams = R2D2Hyperparams()

    Config = R2D2Config
    Hyperparams = R2D2Hyperparams
    recurrent = True

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: R2D2Config = R2D2Config()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `q_network`."""
        described = nn.q_network(obs_spec, action_spec, config, algorithm="R2D2")
        cell = nn.RecurrentCell(config.cell, config.cell_size)
        return {name: replace(spec, cell=cell) for name, spec in described.items()}

    @property
    def replay(self) -> rl.SequenceReplay:
        """The replay buffer."""
        return rl.SequenceReplay.of(self.config, self.obs_spec, self.action_spec)

    def init(
        self, key: jax.Array, num_envs: int, hyper: R2D2Hyperparams | None = None
    ) -> rl.ReplayedQState:
        state = super().init(key, num_envs, hyper)
        return replace(state, replay=self.replay.init(self.initial_carry(state, num_envs)))

    def initial_carry(self, state: rl.ReplayedQState, num_envs: int) -> rl.Carry:
        return self.network.initial_carry(state.learner.variables, num_envs)

    def q_values(self, variables: nn.Variables, obs: rl.Obs, hyper: R2D2Hyperparams) -> jax.Array:
        """Compute the action values of observations with which episodes start."""
        del hyper
        carry = self.network.initial_carry(variables, len(jax.tree.leaves(obs)[0]))
        outputs, _ = self.network.apply(variables, (obs, carry))
        return nn.merge_heads(outputs[0])["q"]

    def act(
        self,
        state: rl.ReplayedQState,
        carry: rl.Carry,
        inputs: rl.PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> rl.PolicyOutput:
        variables = state.learner.variables
        outputs, carry = nn.apply_step(self.network, variables, inputs.obs, inputs.first, carry)
        q = nn.merge_heads(outputs)["q"]
        action = rl.greedy(q, inputs.action_mask)
        if explore:
            # Horgan et al. 2018: epsilon_i = epsilon^(1 + alpha i / (N - 1)).
            share = jnp.linspace(0.0, 1.0, len(q))
            epsilon = state.hyper.epsilon ** (1.0 + state.hyper.epsilon_alpha * share)
            action = rl.epsilon_greedy(action, q.shape[-1], inputs.action_mask, epsilon, key)
        return rl.PolicyOutput(action=action, carry=carry, extras={})

    def update(
        self, state: rl.ReplayedQState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[rl.ReplayedQState, rl.Metrics]:
        state = replace(state, replay=self.replay.add(state.replay, trajectory))
        keys = jax.random.split(key, (self.config.num_gradient_steps, 2))

        def step(state: rl.ReplayedQState, keys: jax.Array) -> tuple[rl.ReplayedQState, rl.Metrics]:
            sequences = self.replay.sample(state.replay, keys[0], self.config.batch_size)
            return self._learn_from(state, sequences, keys[1])

        ready = state.replay.size >= self.config.learning_starts
        state, metrics = rl.steps_if_ready(ready, step, state, keys)
        size = state.replay.size.astype(jnp.float32)
        return state, {**metrics, "epsilon": state.hyper.epsilon, "replay_size": size}

    def loss(
        self, variables: nn.Variables, batch: rl.ReplayedBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average half the squared n-step errors of the steps after the burn-in, weighted.

        L = mean(0.5 * w * (y_t - Q(s_t, a_t))^2), y_t = h(sum_{k<n} discount^k r_{t+k}
        + discount^n h^-1(Q'(s_{t+n}, argmax_a Q(s_{t+n}, a)))), with Q' of the target network, up
        to the episode's end or the sequence's; its own best action counts unless `double`. Both
        networks start from the stored carry and burn it in (sections 2.3 and 3).

        Returns the loss, float32 `[]`, with the metrics, each sequence's priority `[B]` as
        `td_errors` among them, and the network's new state; `key` is for the network's own
        randomness.
        """
        config, hyper, sequence = self.config, batch.hyper, batch.sample.steps
        cut = config.burn_in_length
        steps = jax.tree.map(lambda leaf: leaf[cut:], replace(sequence, carry=()))
        q, after, new_state = self._unroll(variables, sequence, key=key, train=True)
        target_q, target_after, _ = self._unroll(batch.target, sequence)
        value = self._next_q(batch.target, steps, target_q, target_after)
        chooser = self._next_q(variables, steps, q, after) if config.double else value
        best = rl.greedy(chooser, steps.next_action_mask)

        pair = rlax.SIGNED_HYPERBOLIC_PAIR if config.rescale_values else rlax.IDENTITY_PAIR
        target = _n_step_returns(steps, pair.apply_inv(_pick(value, best)), hyper, config.n_step)
        errors = pair.apply(target) - _pick(q, steps.action)
        loss = jnp.mean(batch.weight * jnp.mean(rlax.l2_loss(errors), axis=0))
        priority = rl.sequence_priority(errors, hyper.priority_eta)
        return loss, ({"td_errors": priority, "q": q.mean()}, new_state)

    def _unroll(
        self,
        variables: nn.Variables,
        steps: rl.Trajectory,
        key: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, rl.Carry, rl.PyTree]:
        """Compute Q `[L, B, A]` and the carries after the burn-in, which has no gradient."""
        cut, carry, inputs = self.config.burn_in_length, steps.carry, (steps.obs, steps.first)
        if cut:
            early = jax.tree.map(lambda leaf: leaf[:cut], inputs)
            inputs = jax.tree.map(lambda leaf: leaf[cut:], inputs)
            fixed = jax.lax.stop_gradient(variables)
            carry = nn.unroll(self.network, fixed, *early, carry=carry)[1]
        outputs, after, new_state = nn.outputs_and_carries(
            self.network, variables, *inputs, carry=carry, key=key, train=train
        )
        return nn.merge_heads(outputs)["q"], after, new_state

    def _next_q(
        self, variables: nn.Variables, steps: rl.Trajectory, q: jax.Array, after: rl.Carry
    ) -> jax.Array:
        """Estimate the action values of the true successors, `[L, B, A]`, without gradient."""
        fixed, q, after = jax.lax.stop_gradient((variables, q, after))
        return rl.successor_values(
            lambda rows: nn.merge_heads(self.network.apply(fixed, rows)[0][0])["q"],
            q,
            (steps.next_obs, after),
            steps.terminated,
            rl.truncations(steps),
        )


def _n_step_returns(
    steps: rl.Trajectory, next_value: jax.Array, hyper: R2D2Hyperparams, n_step: int
) -> jax.Array:
    """Sum the rewards of `n_step` steps, or up to an end, and the value after them, `[L, B]`."""
    goes_on = 1.0 - steps.terminated.astype(jnp.float32)
    keeps = 1.0 - rl.truncations(steps).astype(jnp.float32)  # 0: bootstraps here
    return jax.vmap(
        lambda r_t, discount_t, v_t, lambda_t: jnp.asarray(
            rlax.n_step_bootstrapped_returns(r_t, discount_t, v_t, n_step, lambda_t)
        ),
        in_axes=1,
        out_axes=1,
    )(steps.reward, hyper.discount * goes_on, next_value, keeps)


def _pick(q: jax.Array, action: jax.Array) -> jax.Array:
    """Return the values of actions `[L, B]`."""
    return jnp.take_along_axis(q, action[..., None], axis=-1)[..., 0]
