"""Proximal policy optimization, for discrete and for continuous actions.

Source: Schulman et al. 2017, https://arxiv.org/abs/1707.06347, algorithm 1 and equations 7 and 9,
with the details of Huang et al. 2022,
https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/.
Differences: a truncated episode bootstraps from the value of its true last observation; the value
loss has the factor 1/2. A recurrent network trains on whole rollouts of some of the environments,
from the carry at the start of each. A continuous policy is a Gaussian squashed by tanh into the
action bounds; its entropy is taken before the tanh.
"""

from dataclasses import dataclass, replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl


@rl.pytree_dataclass
class PPOHyperparams:
    """Hyperparameters of PPO, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: at the start.
      decay_updates: updates over which it falls linearly to 0. None: the whole run. Infinity: it
        is constant.
      discount: of future rewards, within [0, 1].
      gae_lambda: of generalized advantage estimation, within [0, 1].
      clip_epsilon: clip range of the probability ratio.
      value_coef: weight of the value loss.
      entropy_coef: weight of the entropy bonus.
      max_grad_norm: clip threshold of the global gradient norm.
      adam_eps: Adam's epsilon.
    """

    learning_rate: rl.Number = 2.5e-4
    decay_updates: rl.Number | None = rl.between(None, 0.0, above_low=True)
    discount: rl.Number = rl.unit_interval(0.99)
    gae_lambda: rl.Number = rl.unit_interval(0.95)
    clip_epsilon: rl.Number = rl.between(0.2, 0.0)
    value_coef: rl.Number = 0.5
    entropy_coef: rl.Number = 0.01
    max_grad_norm: rl.Number = rl.between(0.5, 0.0)
    adam_eps: rl.Number = rl.only_for("optimizer", 1e-5)


@dataclass(frozen=True, kw_only=True)
class PPOConfig(nn.ConvolutionConfig, rl.AgentConfig):
    """Static configuration of PPO.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`.
      num_epochs: passes over a rollout.
      num_minibatches: gradient steps in one pass; must divide `N * T`.
      clip_value: clip the value loss as well (by `clip_epsilon`).
      normalize_advantage: to mean 0 and standard deviation 1, per minibatch.
      shared_torso: one torso with two heads, instead of separate actor and critic networks.
      hidden_sizes: units of the hidden layers; None: 64 64, and 64 after convolutions.
      normalize_obs: normalize observations by their running mean and variance; None: where actions
        are continuous and observations are float arrays.
      scale_rewards: divide rewards by the running standard deviation of the discounted returns;
        None: where actions are continuous.
      initial_std: standard deviation of a continuous policy before training, before the tanh.
      cell: `lstm` or `gru` for a recurrent cell before the heads of each network; or `none`.
      cell_size: units of the cell.
    """

    num_envs: int = 4
    rollout_length: int = 128
    num_epochs: int = 4
    num_minibatches: int = 4
    clip_value: bool = True
    normalize_advantage: bool = True
    shared_torso: bool = rl.only_for("networks", False)
    hidden_sizes: tuple[int, ...] | None = rl.only_for("networks", None)
    normalize_obs: bool | None = None
    scale_rewards: bool | None = None
    initial_std: float = rl.only_for("networks", rl.positive(1.0))
    cell: str = rl.only_for("networks", rl.one_of("none", *nn.CELLS))
    cell_size: int = rl.only_for("networks", 64)


@rl.pytree_dataclass
class PPOState(rl.AgentState):
    """PPO training state; `normalizer` has the statistics from before the last update."""

    normalizer: rl.Normalizer


@rl.pytree_dataclass
class Batch:
    """Samples of a rollout: `[B, ...]`, or with a recurrent network whole rollouts `[B, T, ...]`.

    `first` and `carry` `[B, ...]`, from before the first step, are for recurrent networks. A
    continuous `action` is the sample before the tanh.
    """

    obs: Any
    action_mask: jax.Array | None
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array
    target: jax.Array
    first: Any = None
    carry: Any = ()


@dataclass(frozen=True)
class PPO(rl.AgentBase):
    """The agent; its network may be recurrent.

    The network gives `value` `[B]`, and `logits` `[B, num_actions]` for discrete actions, or `mean`
    and `log_std` `[B, n]` for a bounded `Box` of floats.
    """

    config: PPOConfig = PPOConfig()
    hyper: PPOHyperparams = PPOHyperparams()

    Config = PPOConfig
    Hyperparams = PPOHyperparams

    def __post_init__(self) -> None:
        super().__post_init__()
        config = self.config
        rl.require_normalizable("PPO", config.normalize_obs, self.obs_spec)
        # A sample is a step, or the whole rollout of an environment.
        samples, what = config.steps_per_update, "num_envs * rollout_length"
        if self.network.recurrent:
            samples, what = config.num_envs, "num_envs (the network is recurrent)"
        rl.check_divides("PPO", "num_minibatches", config.num_minibatches, samples, what)

    @property
    def heads(self) -> dict[str, tuple[int, ...]]:
        return {**nn.policy_shapes(self.action_spec, algorithm="PPO"), "value": ()}

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: PPOConfig = PPOConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe `actor` and `critic`, or `actor_critic` where the torso is shared."""
        return nn.actor_critic(obs_spec, action_spec, config, algorithm="PPO")

    def init(self, key: jax.Array, num_envs: int, hyper: Any | None = None) -> PPOState:
        learned = vars(super().init(key, num_envs, hyper))
        normalizer = rl.Normalizer.init(self.config, self.obs_spec, self.action_spec, num_envs)
        return PPOState(**learned, normalizer=normalizer)

    def initial_carry(self, state: PPOState, num_envs: int) -> Any:
        return self.network.initial_carry(state.learner.variables, num_envs)

    def act(
        self, state: PPOState, carry: Any, inputs: rl.PolicyInput, key: jax.Array, *, explore: bool
    ) -> rl.PolicyOutput:
        obs = state.normalizer.obs(inputs.obs)
        variables = state.learner.variables
        outputs, carry = nn.apply_step(self.network, variables, obs, inputs.first, carry)
        heads = nn.merge_heads(outputs)
        actor = rl.policy(self.action_spec, heads, inputs.action_mask)
        raw = actor.sample(key) if explore else actor.mode()
        # Log-probabilities, and values of a network of their own, are cheaper for a whole rollout
        # at once, in `update`. One network for all heads has computed the value already.
        kept = [name for name in self.heads if name != "value" or len(self.network.parts) <= 1]
        extras = {"raw": raw, **{name: heads[name] for name in kept}}
        return rl.PolicyOutput(
            action=rl.to_action(self.action_spec, raw), carry=carry, extras=extras
        )

    def update(
        self, state: PPOState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[PPOState, rl.Metrics]:
        config, hyper = self.config, state.hyper
        trajectory, normalizer = state.normalizer.trajectory(trajectory, hyper.discount)
        batch = self._prepare(state, trajectory)
        batch_size = batch.advantage.shape[0]
        scheduled = replace(hyper, learning_rate=self._learning_rate(state))

        def minibatch_step(
            learner_state: rl.LearnerState, inputs: tuple[jax.Array, jax.Array]
        ) -> tuple[rl.LearnerState, rl.Metrics]:
            indices, loss_key = inputs
            minibatch = jax.tree.map(lambda leaf: leaf[indices], batch)
            return self.learner.step(
                learner_state,
                lambda variables, data, k: self.loss(variables, data, k, hyper),
                minibatch,
                loss_key,
                scheduled,
            )

        shuffle_key, loss_key = jax.random.split(key)
        shuffle = jax.vmap(lambda k: jax.random.permutation(k, batch_size))
        order = shuffle(jax.random.split(shuffle_key, config.num_epochs))
        num_steps = config.num_epochs * config.num_minibatches
        inputs = (order.reshape(num_steps, -1), jax.random.split(loss_key, num_steps))
        learner_state, metrics = self.learner.scan(minibatch_step, state.learner, inputs)
        return PPOState(learner=learner_state, hyper=hyper, normalizer=normalizer), {
            **jax.tree.map(jnp.mean, metrics),
            "explained_variance": rl.explained_variance(batch.value, batch.target),
            "learning_rate": scheduled.learning_rate,
        }

    def _learning_rate(self, state: PPOState) -> jax.Array:
        hyper = state.hyper
        if hyper.decay_updates is None:
            return jnp.asarray(hyper.learning_rate)
        steps_per_update = self.config.num_epochs * self.config.num_minibatches
        num_updates = state.learner.num_gradient_steps // steps_per_update
        done = num_updates.astype(jnp.float32) / hyper.decay_updates
        return hyper.learning_rate * jnp.maximum(1.0 - done, 0.0)

    def _prepare(self, state: PPOState, trajectory: rl.Trajectory) -> Batch:
        """Estimate advantages, and reshape `[T, N]` steps to samples."""
        value, next_value = self._values(state.learner.variables, trajectory)
        advantage, target = rl.gae(
            trajectory.reward,
            trajectory.terminated,
            trajectory.truncated,
            value,
            next_value,
            state.hyper.discount,
            state.hyper.gae_lambda,
        )
        raw = trajectory.extras["raw"]
        actor = rl.policy(self.action_spec, trajectory.extras, trajectory.action_mask)
        steps = Batch(
            obs=trajectory.obs,
            action_mask=trajectory.action_mask,
            action=raw,
            log_prob=actor.log_prob(raw),
            value=value,
            advantage=advantage,
            target=target,
        )
        if self.network.recurrent:
            steps = replace(steps, first=trajectory.first)
            sequences = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), steps)
            return replace(sequences, carry=trajectory.carry)
        return jax.tree.map(_flatten, steps)

    def _values(
        self, variables: nn.Variables, trajectory: rl.Trajectory
    ) -> tuple[jax.Array, jax.Array]:
        """Estimate V of each step's observation and of its true successor, `[T, N]` each."""

        def value_of(seen: Any) -> jax.Array:
            outputs, _ = self.network.apply(variables, seen)
            heads = outputs[0] if self.network.recurrent else outputs
            return nn.merge_heads(heads)["value"]

        seen, successors = trajectory.obs, trajectory.next_obs
        if self.network.recurrent:
            before, after = nn.carries(
                self.network, variables, seen, trajectory.first, trajectory.carry
            )
            seen, successors = (seen, before), (successors, after)
        value = trajectory.extras.get("value")
        if value is None:
            value = value_of(jax.tree.map(_flatten, seen)).reshape(trajectory.reward.shape)
        ended = trajectory.terminated, trajectory.truncated
        return value, rl.successor_values(value_of, value, successors, *ended)

    def loss(
        self, variables: nn.Variables, batch: Batch, key: jax.Array, hyper: PPOHyperparams
    ) -> tuple[jax.Array, tuple[rl.Metrics, Any]]:
        """Add the clipped surrogate, the value loss and the entropy bonus (equation 9).

        Returns the loss, float32 `[]`, with the metrics and the network's new state; `key` is for
        the network's own randomness.
        """
        if self.network.recurrent:
            steps = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), replace(batch, carry=()))
            unrolled, _, new_state = nn.unroll(
                self.network, variables, steps.obs, steps.first, batch.carry, key=key, train=True
            )
            outputs, batch = jax.tree.map(_flatten, (unrolled, steps))
        else:
            outputs, new_state = self.network.apply(variables, batch.obs, key=key, train=True)
        heads = nn.merge_heads(outputs)
        actor = rl.policy(self.action_spec, heads, batch.action_mask)
        log_ratio = actor.log_prob(batch.action) - batch.log_prob
        ratio = jnp.exp(log_ratio)
        chex.assert_equal_shape([heads["value"], batch.target, ratio])

        advantage = batch.advantage
        if self.config.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        epsilon: Any = hyper.clip_epsilon  # rlax declares a Python number, and takes arrays.
        policy_loss = jnp.asarray(rlax.clipped_surrogate_pg_loss(ratio, advantage, epsilon))
        value_loss = (
            rl.clipped_value_loss(heads["value"], batch.value, batch.target, hyper.clip_epsilon)
            if self.config.clip_value
            else jnp.mean(rlax.l2_loss(heads["value"], batch.target))
        )
        entropy = actor.entropy().mean()
        total = policy_loss + hyper.value_coef * value_loss - hyper.entropy_coef * entropy
        clipped = jnp.abs(ratio - 1.0) > hyper.clip_epsilon
        return total, (
            {
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": entropy,
                # Schulman's low-variance estimate, http://joschu.net/blog/kl-approx.html.
                "approx_kl": jnp.mean(ratio - 1.0 - log_ratio),
                "clip_fraction": jnp.mean(clipped.astype(jnp.float32)),
            },
            new_state,
        )


def _flatten(leaf: jax.Array) -> jax.Array:
    """Reshape `[T, N, ...]` to `[B, ...]`."""
    return leaf.reshape((-1, *leaf.shape[2:]))
