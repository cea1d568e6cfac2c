"""Soft actor-critic for continuous actions, with twin critics and a temperature that is learned.

Source: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications",
https://arxiv.org/abs/1812.05905, algorithm 1 and equations 5, 7, 9 and 18.
Differences: critics, actor and temperature take their gradient steps at once, from the parameters
before any of them moved, with one optimizer that has a learning rate for each; a truncated episode
is bootstrapped from its true last observation; observations may be normalised.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax
import rlax

from ..core import specs
from ..core.agent import PolicyInput, PolicyOutput, Trajectory
from ..core.errors import TriglotError
from ..core.hyper import UNIT_INTERVAL, check_counts, check_ranges
from ..core.learner import Learner, LearnerState, Number, steps_if_ready
from ..core.network import Network, Variables
from ..core.networks.architecture import MLP, Head, NetworkSpec, value_head
from ..core.networks.combinators import part_of, scalar
from ..core.networks.heads import check_heads, merge_heads
from ..core.rl.distributions import SquashedGaussian, to_bounds
from ..core.rl.normalize import RunningStats, can_normalize
from ..core.rl.replay import Replay, ReplayState, Sample, Step
from ..core.specs import Box, Spec

PARTS = ("actor", "critic", "temperature")
CRITICS = 2
RANGES = {"discount": UNIT_INTERVAL, "tau": UNIT_INTERVAL, "target_entropy": (-math.inf, math.inf)}
# The logarithm of the standard deviation is cut to this, as the authors' own code does.
LOG_STD_BOUNDS = (-20.0, 2.0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class SACHyperparams:
    """The numbers of SAC, which a sweep may vary under `vmap`.

    Attributes:
      actor_learning_rate: Adam's, for the policy.
      critic_learning_rate: Adam's, for both critics.
      temperature_learning_rate: Adam's, for the logarithm of the temperature.
      discount: of future rewards, within [0, 1].
      tau: share of the critics' parameters in their targets', at each gradient step.
      target_entropy: what the temperature keeps the policy's entropy at, in nats, of actions within
        [-1, 1]; None for minus their number.
    """

    actor_learning_rate: Number = 3e-4
    critic_learning_rate: Number = 1e-3
    temperature_learning_rate: Number = 3e-4
    discount: Number = 0.99
    tau: Number = 0.005
    target_entropy: Number | None = None


@dataclass(frozen=True, kw_only=True)
class SACConfig:
    """The shapes and counts of SAC, fixed when it is compiled.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`.
      num_gradient_steps: gradient steps in one update.
      batch_size: samples in one gradient step, `B`.
      buffer_size: environment steps kept for replay, rounded up to whole rollouts.
      learning_starts: environment steps, taken at random, before the first gradient step.
      normalize_obs: bring observations to mean 0 and variance 1, by what was seen so far.
      initial_temperature: weight of the entropy at the start.
      hidden_sizes: units of the hidden layers, of the actor and of each critic.
    """

    num_envs: int = 8
    rollout_length: int = 1
    num_gradient_steps: int = 8
    batch_size: int = 256
    buffer_size: int = 200_000
    learning_starts: int = 1_000
    normalize_obs: bool = False
    initial_temperature: float = 1.0
    hidden_sizes: tuple[int, ...] = (256, 256)

    def __post_init__(self) -> None:
        check_counts("SAC", self)
        if not self.initial_temperature > 0.0:
            raise TriglotError(
                f"SAC's initial_temperature must be above 0, got {self.initial_temperature}."
            )
        if not self.batch_size <= self.learning_starts <= self.capacity:
            raise TriglotError(
                "SAC learns once the replay holds a batch: it needs batch_size <= learning_starts "
                f"<= buffer_size, got {self.batch_size}, {self.learning_starts} and "
                f"{self.buffer_size}."
            )

    @property
    def steps_per_update(self) -> int:
        """Environment steps in one rollout."""
        return self.num_envs * self.rollout_length

    @property
    def capacity(self) -> int:
        """`buffer_size`, rounded up to whole rollouts."""
        return -(-self.buffer_size // self.steps_per_update) * self.steps_per_update


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class SACState:
    """Everything SAC has learned and remembers, and its numbers.

    Attributes:
      learner: variables of actor, critics and temperature, and the optimizer's state.
      target: variables of the critics' targets.
      replay: the last steps; their actions are within [-1, 1].
      hyper: float32 `[]` each.
      num_updates: int32 `[]`, calls of `update` so far.
      obs_stats: of the observations so far; None where they are taken as they are.
    """

    learner: LearnerState
    target: Variables
    replay: ReplayState
    hyper: SACHyperparams
    num_updates: jax.Array
    obs_stats: RunningStats | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one gradient step learns from.

    Attributes:
      sample: transitions, `[B, ...]`; actions within [-1, 1].
      target: variables of the critics' targets.
      target_entropy: float32 `[]`, nats.
    """

    sample: Sample
    target: Variables
    target_entropy: jax.Array


def make_optimizer(
    actor_learning_rate: float, critic_learning_rate: float, temperature_learning_rate: float
) -> optax.GradientTransformation:
    """Give each part an Adam of its own."""
    return optax.partition(
        {
            "actor": optax.adam(actor_learning_rate),
            "critic": optax.adam(critic_learning_rate),
            "temperature": optax.adam(temperature_learning_rate),
        },
        {name: name for name in PARTS},
    )


@dataclass(frozen=True)
class SAC:
    """The agent.

    Attributes:
      network: combines an `actor`, which gives `mean` and `log_std` `[B, num_actions]`; a
        `critic`, an ensemble of two, each of which reads observations and actions within [-1, 1]
        and gives `q` `[B]`; and the logarithm of the `temperature`, `[]`.
      obs_spec: one observation.
      action_spec: must be a bounded `Box` of floats.
      config: shapes and counts.
      hyper: the numbers it starts from.

    Raises:
      TriglotError: if the actions are no such box, a network is missing or its outputs do not fit,
        or a number is out of its range.
    """

    network: Network
    obs_spec: Spec
    action_spec: Spec
    config: SACConfig = SACConfig()
    hyper: SACHyperparams = SACHyperparams()

    Config = SACConfig
    Hyperparams = SACHyperparams

    def __post_init__(self) -> None:
        check_ranges("SAC", self.hyper, RANGES)
        unit = unit_actions(self.action_spec)
        if set(self.network.parts) != set(PARTS):
            raise TriglotError(
                "SAC needs an actor and a critic, which read different things, and got one network "
                f"{self.network.name!r}: give them by name, networks={{'actor': ..., "
                "'critic': ...}."
            )
        if self.network.recurrent:
            raise TriglotError(
                f"SAC replays single steps, and the network {self.network.name!r} is recurrent: "
                "take one without a carry, or PPO, which trains recurrent networks."
            )
        if self.config.normalize_obs and not can_normalize(self.obs_spec):
            raise TriglotError(
                "SAC's normalize_obs is for observations that are one array of floats, and these "
                f"are {self.obs_spec}."
            )
        parts = self.network.parts
        policy = {"mean": unit.shape, "log_std": unit.shape}
        check_heads(parts["actor"], self.obs_spec, policy, algorithm="SAC")
        seen = (self.obs_spec, unit)
        check_heads(parts["critic"], seen, {"q": ()}, algorithm="SAC", ensemble_size=CRITICS)

    @staticmethod
    def networks(
        obs_spec: Spec, action_spec: Spec, config: SACConfig = SACConfig()
    ) -> dict[str, NetworkSpec | Network]:
        """Describe the networks SAC uses where nobody brings others."""
        unit = unit_actions(action_spec)
        torso = MLP(hidden_sizes=config.hidden_sizes, activation="relu")
        size = unit.shape[0]
        policy = (("mean", Head(size=size, scale=0.01)), ("log_std", Head(size=size, scale=0.01)))
        value = (("q", value_head()),)
        return {
            "actor": NetworkSpec(obs_spec, torso, policy),
            "critic": NetworkSpec((obs_spec, unit), torso, value, ensemble_size=CRITICS),
            "temperature": scalar(math.log(config.initial_temperature), "log"),
        }

    @property
    def num_envs(self) -> int:
        return self.config.num_envs

    @property
    def rollout_length(self) -> int:
        return self.config.rollout_length

    @property
    def learner(self) -> Learner:
        make = optax.inject_hyperparams(make_optimizer)
        return Learner(self.network, make(**_learning_rates(self.hyper)))

    @property
    def replay(self) -> Replay:
        return Replay(capacity=self.config.capacity, num_envs=self.config.num_envs)

    def init(self, key: jax.Array, num_envs: int, hyper: SACHyperparams | None = None) -> SACState:
        del num_envs
        numbers = self.hyper if hyper is None else hyper
        if numbers.target_entropy is None:
            size = unit_actions(self.action_spec).shape[0]
            numbers = replace(numbers, target_entropy=-float(size))
        learner_state = self.learner.init(key)
        return SACState(
            learner=learner_state,
            # A copy, since whoever donates the state may give no buffer twice.
            target=jax.tree.map(jnp.copy, part_of(learner_state.variables, "critic")),
            replay=self.replay.init(self._no_steps),
            hyper=jax.tree.map(lambda number: jnp.asarray(number, jnp.float32), numbers),
            num_updates=jnp.zeros((), jnp.int32),
            obs_stats=RunningStats.of(self.obs_spec) if self.config.normalize_obs else None,
        )

    def _no_steps(self, count: int) -> Step:
        return Step(
            obs=specs.zeros(self.obs_spec, count),
            action=specs.zeros(unit_actions(self.action_spec), count),
            reward=jnp.zeros((count,), jnp.float32),
            terminated=jnp.zeros((count,), bool),
            truncated=jnp.zeros((count,), bool),
            next_obs=specs.zeros(self.obs_spec, count),
            next_action_mask=None,
        )

    def initial_carry(self, state: SACState, num_envs: int) -> Any:
        del state, num_envs
        return ()

    def act(
        self, state: SACState, carry: Any, inputs: PolicyInput, key: jax.Array, *, explore: bool
    ) -> PolicyOutput:
        obs = _normalized(state.obs_stats, inputs.obs)
        policy, _ = self._policy(state.learner.variables, obs)
        if explore:
            policy_key, random_key = jax.random.split(key)
            unit = jnp.tanh(policy.sample(policy_key))
            steps = state.num_updates * self.config.steps_per_update
            random = jax.random.uniform(random_key, unit.shape, minval=-1.0)
            unit = jnp.where(steps < self.config.learning_starts, random, unit)
        else:
            unit = jnp.tanh(policy.mode())
        assert isinstance(self.action_spec, Box)
        action = to_bounds(self.action_spec, unit.reshape((-1, *self.action_spec.shape)))
        return PolicyOutput(
            action=action.astype(self.action_spec.dtype), carry=carry, extras={"unit": unit}
        )

    def update(
        self, state: SACState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[SACState, dict[str, jax.Array]]:
        steps = Step(
            obs=trajectory.obs,
            action=trajectory.extras["unit"],
            reward=trajectory.reward,
            terminated=trajectory.terminated,
            truncated=trajectory.truncated,
            next_obs=trajectory.next_obs,
            next_action_mask=None,
        )
        stats = state.obs_stats
        state = replace(
            state,
            replay=self.replay.add(state.replay, steps),
            obs_stats=None if stats is None else stats.add(trajectory.obs),
        )
        ready = state.replay.size >= self.config.learning_starts
        keys = jax.random.split(key, (self.config.num_gradient_steps, 2))
        state, metrics = steps_if_ready(ready, self._learn, state, keys)
        return replace(state, num_updates=state.num_updates + 1), {
            **metrics,
            "replay_size": state.replay.size.astype(jnp.float32),
        }

    def _learn(self, state: SACState, keys: jax.Array) -> tuple[SACState, dict[str, jax.Array]]:
        """Take one gradient step."""
        sample_key, loss_key = keys
        hyper = state.hyper
        sample = self.replay.sample(
            state.replay, sample_key, self.config.batch_size, hyper.discount
        )
        sample = replace(
            sample,
            obs=_normalized(state.obs_stats, sample.obs),
            next_obs=_normalized(state.obs_stats, sample.next_obs),
        )
        assert hyper.target_entropy is not None
        batch = Batch(
            sample=sample,
            target=state.target,
            target_entropy=jnp.asarray(hyper.target_entropy),
        )
        learner_state, metrics = self.learner.step(
            state.learner, self.loss, batch, loss_key, _learning_rates(hyper)
        )
        online = part_of(learner_state.variables, "critic")
        tau: Any = hyper.tau
        target = Variables(
            params=optax.incremental_update(online.params, state.target.params, tau),
            state=online.state,
        )
        return replace(state, learner=learner_state, target=target), metrics

    def loss(
        self, variables: Variables, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[dict[str, jax.Array], Any]]:
        """Add the losses of critics, actor and temperature, each of its own part's parameters only.

        critics: mean over samples of 0.5 (Q_i(s, a) - y)^2, summed over i, with
          y = r + discount (min_i Q'_i(s', a') - temperature log pi(a'|s')) (equations 5 and 7);
        actor: mean of temperature log pi(a|s) - min_i Q_i(s, a) (equation 9);
        temperature: mean of -temperature (log pi(a|s) + target entropy) (equation 18).

        Args:
          variables: of the network in training.
          batch: samples, and the targets' variables.
          key: of the actions drawn, and for the network's own randomness.

        Returns:
          float32 `[]`, with the metrics and the network's new state.
        """
        sample = batch.sample
        next_key, draw_key, actor_key, critic_key = jax.random.split(key, 4)
        log_temperature, temperature_state = self.network.parts["temperature"].apply(
            part_of(variables, "temperature")
        )
        temperature = jnp.exp(log_temperature)
        weight = jax.lax.stop_gradient(temperature)

        next_policy, _ = self._policy(variables, sample.next_obs)
        next_raw = next_policy.sample(next_key)
        next_q, _ = self._q(batch.target, sample.next_obs, jnp.tanh(next_raw))
        next_value = next_q.min(axis=0) - weight * next_policy.squashed_log_prob(next_raw)
        target = jax.lax.stop_gradient(sample.reward + sample.discount * next_value)
        critic = part_of(variables, "critic")
        q, critic_state = self._q(critic, sample.obs, sample.action, key=critic_key, train=True)
        chex.assert_equal_shape([q[0], target])
        critic_loss = jnp.mean(jax.vmap(lambda own: rlax.l2_loss(own, target))(q), axis=1).sum()

        policy, actor_state = self._policy(variables, sample.obs, key=actor_key, train=True)
        raw = policy.sample(draw_key)
        log_prob = policy.squashed_log_prob(raw)
        frozen = jax.lax.stop_gradient(critic)
        drawn_q, _ = self._q(frozen, sample.obs, jnp.tanh(raw))
        actor_loss = jnp.mean(weight * log_prob - drawn_q.min(axis=0))

        missing = jax.lax.stop_gradient(log_prob) + batch.target_entropy
        temperature_loss = -jnp.mean(temperature * missing)
        new_state = {
            "actor": actor_state,
            "critic": critic_state,
            "temperature": temperature_state,
        }
        return critic_loss + actor_loss + temperature_loss, (
            {
                "critic_loss": critic_loss,
                "actor_loss": actor_loss,
                "temperature_loss": temperature_loss,
                "temperature": temperature,
                "entropy": -log_prob.mean(),
                "q": q.mean(),
            },
            new_state,
        )

    def _policy(self, variables: Variables, obs: Any, **how: Any) -> tuple[SquashedGaussian, Any]:
        """Apply the actor; `how` it is applied is passed on."""
        outputs, state = self.network.parts["actor"].apply(part_of(variables, "actor"), obs, **how)
        heads = merge_heads(outputs)
        log_std = jnp.clip(heads["log_std"], *LOG_STD_BOUNDS)
        return SquashedGaussian(heads["mean"], log_std), state

    def _q(
        self, critic: Variables, obs: Any, action: jax.Array, **how: Any
    ) -> tuple[jax.Array, Any]:
        """Apply the critics, or their targets: `[2, B]`."""
        outputs, state = self.network.parts["critic"].apply(critic, (obs, action), **how)
        return merge_heads(outputs)["q"], state


def unit_actions(action_spec: Spec) -> Box:
    """Describe actions as the critics see them: `n` numbers within [-1, 1].

    Raises:
      TriglotError: if the actions are no bounded box of floats.
    """
    floats = isinstance(action_spec, Box) and jnp.issubdtype(action_spec.dtype, jnp.floating)
    if not isinstance(action_spec, Box) or not floats or not action_spec.bounded:
        raise TriglotError(
            "SAC serves continuous actions within bounds, and this environment's are "
            f"{action_spec}: choose an environment with such a Box, or DQN or PPO, which serve "
            "discrete ones."
        )
    return Box((math.prod(action_spec.shape),), "float32", -1.0, 1.0)


def _normalized(stats: RunningStats | None, obs: Any) -> Any:
    return obs if stats is None else stats.normalize(obs)


def _learning_rates(hyper: SACHyperparams) -> dict[str, Any]:
    names = (f"{part}_learning_rate" for part in PARTS)
    return {name: getattr(hyper, name) for name in names}
