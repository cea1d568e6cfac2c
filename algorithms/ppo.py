"""Proximal policy optimization, for discrete and for continuous actions.

Source: Schulman et al. 2017, https://arxiv.org/abs/1707.06347, algorithm 1 and equations 7 and 9,
with the details of Huang et al. 2022,
https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/.
Differences: a truncated episode is bootstrapped from the value of its true last observation; the
value loss has the factor 1/2. A recurrent network is trained on whole rollouts of some of the
environments, from the carry that each began with. A continuous policy is a Gaussian whose samples a
tanh brings into the actions' bounds; its entropy is that before the tanh.
"""

from dataclasses import dataclass, replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax
import rlax

from ..core.agent import PolicyInput, PolicyOutput, Trajectory
from ..core.errors import TriglotError, unknown
from ..core.hyper import UNIT_INTERVAL, check_counts, check_ranges
from ..core.learner import Learner, LearnerState, Number
from ..core.network import Network, Variables
from ..core.networks.architecture import (
    CELLS,
    NetworkSpec,
    RecurrentCell,
    default_torso,
    value_head,
)
from ..core.networks.heads import check_heads, merge_heads, policy_heads
from ..core.networks.unroll import carries, restart, unroll
from ..core.rl.distributions import policy, to_action
from ..core.rl.losses import clipped_value_loss, explained_variance, gae
from ..core.rl.normalize import RewardScale, RunningStats, can_normalize
from ..core.specs import Discrete, Spec


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class PPOHyperparams:
    """The numbers of PPO, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: Adam's, at the start.
      decay_updates: updates over which it falls linearly to 0. None: the whole run, as far as
        whoever starts it says how long that is. Infinity: it does not fall.
      discount: of future rewards, within [0, 1].
      gae_lambda: of generalized advantage estimation, within [0, 1].
      clip_epsilon: greatest change of the action's probability ratio that pays.
      value_coef: weight of the value loss.
      entropy_coef: weight of the entropy bonus.
      max_grad_norm: the global gradient norm is clipped to this.
      adam_eps: Adam's epsilon.
    """

    learning_rate: Number = 2.5e-4
    decay_updates: Number | None = None
    discount: Number = 0.99
    gae_lambda: Number = 0.95
    clip_epsilon: Number = 0.2
    value_coef: Number = 0.5
    entropy_coef: Number = 0.01
    max_grad_norm: Number = 0.5
    adam_eps: Number = 1e-5


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """The shapes and counts of PPO, fixed when it is compiled.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`.
      num_epochs: passes over a rollout.
      num_minibatches: gradient steps in one pass; must divide `N * T`.
      clip_value: clip the value loss as well (by `clip_epsilon`).
      normalize_advantage: to mean 0 and standard deviation 1, per minibatch.
      shared_torso: one torso with two heads, instead of an actor and a critic.
      hidden_sizes: units of the hidden layers; None: 64 64, and 64 behind convolutions.
      channels: of the convolutions, one for each, where observations are images.
      kernel_size: of each convolution, in pixels.
      normalize_obs: bring observations to mean 0 and variance 1, by what was seen so far; None:
        where actions are continuous and observations arrays of floats.
      scale_rewards: bring the discounted returns to variance 1, likewise; None: where actions are
        continuous.
      initial_std: of a continuous policy before training, before the tanh.
      cell: `lstm` or `gru` for a recurrent cell after them, in each network; or `none`.
      cell_size: units of the cell.
    """

    num_envs: int = 4
    rollout_length: int = 128
    num_epochs: int = 4
    num_minibatches: int = 4
    clip_value: bool = True
    normalize_advantage: bool = True
    shared_torso: bool = False
    hidden_sizes: tuple[int, ...] | None = None
    channels: tuple[int, ...] = (3,)
    kernel_size: int = 4
    normalize_obs: bool | None = None
    scale_rewards: bool | None = None
    initial_std: float = 1.0
    cell: str = "none"
    cell_size: int = 64

    def __post_init__(self) -> None:
        check_counts("PPO", self)
        batch = self.num_envs * self.rollout_length
        if batch % self.num_minibatches:
            raise TriglotError(
                f"PPO's num_minibatches must divide num_envs * rollout_length = {batch}, "
                f"got {self.num_minibatches}."
            )
        if not 0.0 < self.initial_std < float("inf"):
            raise TriglotError(
                f"PPO's initial_std must be a positive number, got {self.initial_std}."
            )
        if self.cell not in ("none", *CELLS):
            raise unknown("recurrent cell", self.cell, ("none", *CELLS))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class PPOState:
    """Everything PPO has learned, and its numbers.

    Attributes:
      learner: network variables and optimizer state.
      hyper: float32 `[]` each.
      num_updates: int32 `[]`, calls of `update` so far.
      obs_stats: of the observations before this update's; None where they are taken as they are.
      reward_scale: of the rewards; None where they are taken as they are.
    """

    learner: LearnerState
    hyper: PPOHyperparams
    num_updates: jax.Array
    obs_stats: RunningStats | None
    reward_scale: RewardScale | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Batch:
    """Samples of a rollout, with what is computed once per rollout.

    `[B, ...]` each, where a sample is a step; with a recurrent network `[B, T, ...]`, where it is
    an environment's rollout, `first` tells where episodes start, and `carry` `[B, ...]` is from
    before its first step. A continuous `action` is what was drawn, before the tanh.
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


def make_optimizer(
    learning_rate: float, max_grad_norm: float, adam_eps: float
) -> optax.GradientTransformation:
    """Chain the clip of the global norm and Adam."""
    return optax.chain(
        optax.clip_by_global_norm(max_grad_norm), optax.adam(learning_rate, eps=adam_eps)
    )


@dataclass(frozen=True)
class PPO:
    """The agent.

    Attributes:
      network: gives `value` `[B]`, and `logits` `[B, num_actions]`, or for continuous actions
        `mean` and `log_std` `[B, num_actions]`; it may be recurrent.
      obs_spec: one observation.
      action_spec: `Discrete`, or a bounded `Box`.
      config: shapes and counts.
      hyper: the numbers it starts from.

    Raises:
      TriglotError: if there is no policy for such actions, the network's outputs do not fit, or a
        number is out of its range.
    """

    network: Network
    obs_spec: Spec
    action_spec: Spec
    config: PPOConfig = PPOConfig()
    hyper: PPOHyperparams = PPOHyperparams()

    Config = PPOConfig
    Hyperparams = PPOHyperparams

    def __post_init__(self) -> None:
        check_ranges("PPO", self.hyper, {"discount": UNIT_INTERVAL, "gae_lambda": UNIT_INTERVAL})
        heads = dict(policy_heads(self.action_spec, algorithm="PPO"))
        needs = {**{name: (head.size,) for name, head in heads.items()}, "value": ()}
        check_heads(self.network, self.obs_spec, needs, algorithm="PPO")
        if self.config.normalize_obs and not can_normalize(self.obs_spec):
            raise TriglotError(
                "PPO's normalize_obs is for observations that are one array of floats, and these "
                f"are {self.obs_spec}."
            )
        if self.network.recurrent and self.config.num_envs % self.config.num_minibatches:
            raise TriglotError(
                "PPO's num_minibatches must divide num_envs where the network is recurrent, since "
                f"whole rollouts are its samples; got {self.config.num_minibatches} and "
                f"{self.config.num_envs}."
            )

    @staticmethod
    def networks(
        obs_spec: Spec, action_spec: Spec, config: PPOConfig = PPOConfig()
    ) -> dict[str, NetworkSpec]:
        """Describe the networks PPO uses where nobody brings another."""
        torso = default_torso(obs_spec, config.hidden_sizes, config.channels, config.kernel_size)
        cell = None if config.cell == "none" else RecurrentCell(config.cell, config.cell_size)
        actor = policy_heads(action_spec, algorithm="PPO", initial_std=config.initial_std)
        value = ("value", value_head())
        if config.shared_torso:
            return {"actor_critic": NetworkSpec(obs_spec, torso, (*actor, value), cell)}
        return {
            "actor": NetworkSpec(obs_spec, torso, actor, cell),
            "critic": NetworkSpec(obs_spec, torso, (value,), cell),
        }

    @property
    def num_envs(self) -> int:
        return self.config.num_envs

    @property
    def rollout_length(self) -> int:
        return self.config.rollout_length

    @property
    def learner(self) -> Learner:
        numbers = {name: getattr(self.hyper, name) for name in ("max_grad_norm", "adam_eps")}
        make = optax.inject_hyperparams(make_optimizer)
        return Learner(self.network, make(learning_rate=self.hyper.learning_rate, **numbers))

    def init(self, key: jax.Array, num_envs: int, hyper: PPOHyperparams | None = None) -> PPOState:
        numbers = jax.tree.map(
            lambda number: jnp.asarray(number, jnp.float32), self.hyper if hyper is None else hyper
        )
        continuous = not isinstance(self.action_spec, Discrete)
        normalizes, scales = self.config.normalize_obs, self.config.scale_rewards
        if normalizes is None:
            normalizes = continuous and can_normalize(self.obs_spec)
        if scales is None:
            scales = continuous
        return PPOState(
            learner=self.learner.init(key),
            hyper=numbers,
            num_updates=jnp.zeros((), jnp.int32),
            obs_stats=RunningStats.of(self.obs_spec) if normalizes else None,
            reward_scale=RewardScale.zero(num_envs) if scales else None,
        )

    def initial_carry(self, state: PPOState, num_envs: int) -> Any:
        return self.network.initial_carry(state.learner.variables, num_envs)

    def act(
        self, state: PPOState, carry: Any, inputs: PolicyInput, key: jax.Array, *, explore: bool
    ) -> PolicyOutput:
        variables = state.learner.variables
        obs = inputs.obs if state.obs_stats is None else state.obs_stats.normalize(inputs.obs)
        if self.network.recurrent:
            fresh = self.initial_carry(state, inputs.first.shape[0])
            seen = (obs, restart(inputs.first, fresh, carry))
            (outputs, carry), _ = self.network.apply(variables, seen)
        else:
            outputs, _ = self.network.apply(variables, obs)
        heads = merge_heads(outputs)
        actor = policy(self.action_spec, heads, inputs.action_mask)
        drawn = actor.sample(key) if explore else actor.mode()
        # What else the update needs is cheaper for a whole rollout at once than step by step.
        names = [name for name, _ in policy_heads(self.action_spec, algorithm="PPO")]
        return PolicyOutput(
            action=to_action(self.action_spec, drawn),
            carry=carry,
            extras={"drawn": drawn, **{name: heads[name] for name in names}},
        )

    def update(
        self, state: PPOState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[PPOState, dict[str, jax.Array]]:
        config, hyper = self.config, state.hyper
        trajectory, obs_stats, reward_scale = self._normalize(state, trajectory)
        batch = self._prepare(state, trajectory)
        batch_size = batch.advantage.shape[0]
        learning_rate = self._learning_rate(state)

        def minibatch_step(
            learner_state: LearnerState, inputs: tuple[jax.Array, jax.Array]
        ) -> tuple[LearnerState, dict[str, jax.Array]]:
            indices, loss_key = inputs
            minibatch = jax.tree.map(lambda leaf: leaf[indices], batch)
            return self.learner.step(
                learner_state,
                lambda variables, data, k: self.loss(variables, data, k, hyper),
                minibatch,
                loss_key,
                {
                    "learning_rate": learning_rate,
                    "max_grad_norm": hyper.max_grad_norm,
                    "adam_eps": hyper.adam_eps,
                },
            )

        shuffle_key, loss_key = jax.random.split(key)
        shuffle = jax.vmap(lambda k: jax.random.permutation(k, batch_size))
        order = shuffle(jax.random.split(shuffle_key, config.num_epochs))
        num_steps = config.num_epochs * config.num_minibatches
        inputs = (order.reshape(num_steps, -1), jax.random.split(loss_key, num_steps))
        learner_state, metrics = jax.lax.scan(minibatch_step, state.learner, inputs)
        return PPOState(
            learner=learner_state,
            hyper=hyper,
            num_updates=state.num_updates + 1,
            obs_stats=obs_stats,
            reward_scale=reward_scale,
        ), {
            **jax.tree.map(jnp.mean, metrics),
            "explained_variance": explained_variance(batch.value, batch.target),
            "learning_rate": learning_rate,
        }

    def _normalize(
        self, state: PPOState, trajectory: Trajectory
    ) -> tuple[Trajectory, RunningStats | None, RewardScale | None]:
        """Show the update what the policy saw, and add what was seen to the statistics."""
        stats, scale = state.obs_stats, state.reward_scale
        seen = trajectory
        if scale is not None:
            reward, scale = scale.add(trajectory, state.hyper.discount)
            trajectory = replace(trajectory, reward=reward)
        if stats is not None:
            trajectory = replace(
                trajectory,
                obs=stats.normalize(seen.obs),
                next_obs=stats.normalize(seen.next_obs),
            )
            stats = stats.add(seen.obs)
        return trajectory, stats, scale

    def _prepare(self, state: PPOState, trajectory: Trajectory) -> Batch:
        """Estimate advantages, and turn `[T, N]` steps into samples."""
        value, next_value = self._values(state.learner.variables, trajectory)
        advantage, target = gae(
            trajectory.reward,
            trajectory.terminated,
            trajectory.truncated,
            value,
            next_value,
            state.hyper.discount,
            state.hyper.gae_lambda,
        )
        drawn = trajectory.extras["drawn"]
        actor = policy(self.action_spec, trajectory.extras, trajectory.action_mask)
        steps = Batch(
            obs=trajectory.obs,
            action_mask=trajectory.action_mask,
            action=drawn,
            log_prob=actor.log_prob(drawn),
            value=value,
            advantage=advantage,
            target=target,
        )
        if self.network.recurrent:
            steps = replace(steps, first=trajectory.first)
            sequences = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), steps)
            return replace(sequences, carry=trajectory.carry)
        return jax.tree.map(_flatten, steps)

    def _values(self, variables: Variables, trajectory: Trajectory) -> tuple[jax.Array, jax.Array]:
        """Estimate V of each step's observation and of its true successor, `[T, N]` each."""

        def value_of(seen: Any) -> jax.Array:
            outputs, _ = self.network.apply(variables, jax.tree.map(_flatten, seen))
            heads = outputs[0] if self.network.recurrent else outputs
            return merge_heads(heads)["value"].reshape(trajectory.reward.shape)

        if not self.network.recurrent:
            return value_of(trajectory.obs), value_of(trajectory.next_obs)
        before, after = carries(
            self.network, variables, trajectory.obs, trajectory.first, trajectory.carry
        )
        return value_of((trajectory.obs, before)), value_of((trajectory.next_obs, after))

    def _learning_rate(self, state: PPOState) -> jax.Array:
        hyper = state.hyper
        if hyper.decay_updates is None:
            return jnp.asarray(hyper.learning_rate)
        done = state.num_updates.astype(jnp.float32) / hyper.decay_updates
        return hyper.learning_rate * jnp.maximum(1.0 - done, 0.0)

    def loss(
        self, variables: Variables, batch: Batch, key: jax.Array, hyper: PPOHyperparams
    ) -> tuple[jax.Array, tuple[dict[str, jax.Array], Any]]:
        """Add the clipped surrogate, the value loss and the entropy bonus (equation 9).

        Args:
          variables: of the network in training.
          batch: one minibatch.
          key: for the network's own randomness.
          hyper: float32 `[]` each.

        Returns:
          float32 `[]`, with the metrics and the network's new state.
        """
        if self.network.recurrent:
            steps = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), replace(batch, carry=()))
            unrolled, _, new_state = unroll(
                self.network, variables, steps.obs, steps.first, batch.carry, key=key, train=True
            )
            outputs, batch = jax.tree.map(_flatten, (unrolled, steps))
        else:
            outputs, new_state = self.network.apply(variables, batch.obs, key=key, train=True)
        heads = merge_heads(outputs)
        actor = policy(self.action_spec, heads, batch.action_mask)
        log_ratio = actor.log_prob(batch.action) - batch.log_prob
        divide_or_nan = jnp.exp(log_ratio)
        chex.assert_equal_shape([heads["value"], batch.target, divide_or_nan])

        advantage = batch.advantage
        if self.config.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        epsilon: Any = hyper.clip_epsilon  # rlax declares a Python number, and takes arrays.
        policy_loss = jnp.asarray(rlax.clipped_surrogate_pg_loss(divide_or_nan, advantage, epsilon))
        value_loss = (
            clipped_value_loss(heads["value"], batch.value, batch.target, hyper.clip_epsilon)
            if self.config.clip_value
            else jnp.mean(rlax.l2_loss(heads["value"], batch.target))
        )
        entropy = actor.entropy().mean()
        total = policy_loss + hyper.value_coef * value_loss - hyper.entropy_coef * entropy
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            # Schulman's low-variance estimate, http://joschu.net/blog/kl-approx.html.
            "approx_kl": jnp.mean(divide_or_nan - 1.0 - log_ratio),
            "clip_fraction": jnp.mean(
                (jnp.abs(divide_or_nan - 1.0) > hyper.clip_epsilon).astype(jnp.float32)
            ),
        }
        return total, (metrics, new_state)


def _flatten(leaf: jax.Array) -> jax.Array:
    """Turn `[T, N, ...]` to `[B, ...]`."""
    return leaf.reshape((-1, *leaf.shape[2:]))
