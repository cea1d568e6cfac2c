"""Off-policy actor-critics: learners by part, a replay, target networks, random warm-up."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp

from ..agent import AgentBase, PolicyInput, PolicyOutput, Trajectory
from ..errors import TriglotError
from ..hyper import (
    Number,
    as_float32,
    between,
    check_divides,
    only_for,
    positive,
    unit_interval,
)
from ..learner import LearnerState, Loss
from ..network import Network, Variables
from ..networks.actor_critic import check_parts
from ..networks.architecture import ConvolutionConfig, NetworkSpec
from ..networks.combinators import part_of
from ..networks.heads import apply_heads
from ..rl.distributions import (
    Categorical,
    MultiCategorical,
    SquashedGaussian,
    categorical,
    from_unit_box,
    policy,
    squashed,
    unit_actions,
    weighted_actions,
)
from ..rl.learning import replay_and_learn
from ..rl.losses import ensemble_loss
from ..rl.normalize import RunningStats, normalized, require_normalizable
from ..rl.priorities import importance_weights
from ..rl.replay import PrioritizedReplayConfig, Replay, ReplayState, Sample
from ..rl.targets import is_multiple, polyak, target_of
from ..specs import Box, Discrete, Spec
from ..types import AnyAgentState, AnyConfig, AnyHyperparams, Key, Metrics, PyTree, pytree_dataclass

# The log standard deviation is clipped to this, as in Haarnoja et al.'s own code.
LOG_STD_BOUNDS = (-20.0, 2.0)


@pytree_dataclass
class TargetFreeHyperparams:
    """Hyperparameters that every off-policy actor-critic has, also without target networks.

    Attributes:
      learning_rate: of the actor.
      critic_learning_rate: of all critics.
      discount: of future rewards, within [0, 1].
      max_grad_norm: clip threshold of each network's global gradient norm; None: no clipping.
      priority_exponent: of the critics' average error, in a step's priority; 0 samples uniformly.
      importance_sampling_exponent: of the weights that correct the critics' loss for priorities,
        within [0, 1].
      priority_eps: added to the absolute error, so that every step can be sampled.
    """

    learning_rate: Number = 3e-4
    critic_learning_rate: Number = 1e-3
    discount: Number = unit_interval(0.99)
    max_grad_norm: Number | None = between(None, 0.0)
    priority_exponent: Number = only_for("prioritized", 0.6)
    importance_sampling_exponent: Number = only_for("prioritized", unit_interval(0.4))
    priority_eps: Number = only_for("prioritized", positive(1e-6))

    # Without annotations, so that only an algorithm that has the option makes it a field.
    target_update_period = None
    target_entropy_ratio = 0.98


@pytree_dataclass
class ActorCriticHyperparams(TargetFreeHyperparams):
    """Hyperparameters that every off-policy actor-critic with target networks has.

    Attributes:
      tau: weight of the online parameters in each update of their targets'.
    """

    tau: Number = unit_interval(0.005)


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(ConvolutionConfig, PrioritizedReplayConfig):
    """Static configuration that every off-policy actor-critic has.

    Attributes:
      n_step: steps in one sample, whose rewards are summed; the critics bootstrap after the last.
      learning_starts: environment steps, with random actions, before the first gradient step.
      normalize_obs: normalize observations by their running mean and variance.
      hidden_sizes: units of the hidden layers, of the actor and of each critic.
    """

    num_gradient_steps: int = 8
    batch_size: int = 256
    buffer_size: int = 200_000
    learning_starts: int = 1_000
    normalize_obs: bool = False
    hidden_sizes: tuple[int, ...] = only_for("networks", (256, 256))

    # Without an annotation, so that only an algorithm that has the option makes it a field.
    policy_delay = None

    def __post_init__(self) -> None:
        super().__post_init__()
        owner, number = type(self).__name__.removesuffix("Config"), self.num_gradient_steps
        if self.policy_delay is not None:
            check_divides(owner, "policy_delay", self.policy_delay, number, "num_gradient_steps")


@pytree_dataclass
class ActorCriticState:
    """Training state of an off-policy actor-critic.

    Attributes:
      learners: by the names of `networks`.
      target: variables of the target networks, structured as `followed` returns them.
      replay: continuous actions in it are within [-1, 1].
      hyper: float32 `[]` each.
      obs_stats: of the observations so far; None without normalization.
    """

    learners: dict[str, LearnerState]
    target: PyTree
    replay: ReplayState
    hyper: AnyHyperparams
    obs_stats: RunningStats | None


@pytree_dataclass
class ActorCriticBatch:
    """Samples `[B, ...]`, and the state from before the step, whose other parts a loss reads.

    `weight` is that of each sample in the critics' loss, float32 `[B]`; None for 1.
    """

    sample: Sample
    state: ActorCriticState
    weight: jax.Array | None = None


@dataclass(frozen=True)
class ActorCritic(AgentBase, ABC):
    """Act at random, then by the actor; learn from replay, part by part, with target networks.

    After each rollout: add it to the replay; then, from `learning_starts` on, call `learn` on
    samples until the critics have taken `num_gradient_steps` steps. With `prioritized`, the steps
    of a sample get the priority of the `td_errors` that the critics' loss returns.

    An algorithm has `networks` and `losses`, or a `learn` of other steps; its `Config` and
    `Hyperparams` are subclasses of `ActorCriticConfig` and `ActorCriticHyperparams`. A network is
    refused if it is recurrent, or lacks a part or a head that `networks` describes.
    """

    config: ActorCriticConfig = ActorCriticConfig()
    hyper: AnyHyperparams = ActorCriticHyperparams()

    discrete: ClassVar[bool] = False  # whether actions may be discrete

    @staticmethod
    @abstractmethod
    def networks(
        obs_spec: Spec, action_spec: Spec, config: AnyConfig
    ) -> Mapping[str, NetworkSpec | Network]:
        """Describe the networks, `actor` and `critic` among them."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        require_normalizable(name, self.config.normalize_obs, self.obs_spec)
        described = self.networks(self.obs_spec, self.action_spec, self.config)
        check_parts(self.network, described, algorithm=name)
        super().__post_init__()

    @property
    def unit(self) -> Box | Discrete:
        """Describe the actions as critics read them: within [-1, 1], or discrete."""
        name = type(self).__name__
        return unit_actions(self.action_spec, algorithm=name, discrete=self.discrete)

    @property
    def replay(self) -> Replay:
        """The replay; with each state's own action mask where actions are discrete."""
        replay = Replay.of(self.config, self.obs_spec, self.unit)
        return replace(replay, own_masks=isinstance(self.unit, Discrete))

    def followed(self, variables: dict[str, Variables]) -> PyTree:
        """Select what target networks follow: a pytree of the parts' variables."""
        return variables["critic"]

    def init(
        self, key: jax.Array, num_envs: int, hyper: AnyHyperparams | None = None
    ) -> ActorCriticState:
        numbers = as_float32(self.hyper if hyper is None else hyper)
        joined = self.network.init(key)
        variables = {part: part_of(joined, part) for part in self.network.parts}
        return ActorCriticState(
            learners={
                part: self.learner_of(part).start(part_variables, self._with_rate(part, numbers))
                for part, part_variables in variables.items()
            },
            target=target_of(self.followed(variables)),
            replay=self.replay.init(),
            hyper=numbers,
            obs_stats=RunningStats.of(self.obs_spec) if self.config.normalize_obs else None,
        )

    def network_obs(self, state: ActorCriticState, obs: PyTree) -> PyTree:
        """Normalize observations `[B, ...]`, as `config` says."""
        return normalized(state.obs_stats, obs)

    def policy(
        self,
        actor: Variables,
        obs: PyTree,
        action_mask: jax.Array | None = None,
        *,
        key: Key | None = None,
        train: bool = False,
    ) -> tuple[Categorical | SquashedGaussian, PyTree]:
        """Apply a stochastic actor to normalized observations `[B, ...]`.

        Args:
          actor: its variables.
          obs: `[B, ...]`.
          action_mask: bool `[B, num_actions]`, or None where all are allowed.
          key, train: as `Network.apply` takes them.

        Returns:
          The distribution over actions, and the actor's new state.
        """
        network = self.network.parts["actor"]
        heads, state = apply_heads(network, actor, obs, key=key, train=train)
        if "log_std" in heads:
            heads["log_std"] = jnp.clip(heads["log_std"], *LOG_STD_BOUNDS)
        distribution = policy(self.action_spec, heads, action_mask)
        assert not isinstance(distribution, MultiCategorical)  # `unit` refuses such actions
        return distribution, state

    def q(
        self,
        critic: Variables,
        obs: PyTree,
        action: jax.Array | None,
        *,
        key: Key | None = None,
        train: bool = False,
    ) -> tuple[jax.Array, PyTree]:
        """Apply one critic, or an ensemble of `M`, to normalized observations `[B, ...]`.

        Args:
          critic: its variables.
          obs: `[B, ...]`.
          action: `[B, n]` within [-1, 1], or int32 `[B]`; None for all discrete actions.
          key, train: as `Network.apply` takes them.

        Returns:
          Values `[M, B]`, `[M, B, num_actions]` of all actions, and the critics' new state.
        """
        discrete = isinstance(self.unit, Discrete)
        inputs = obs if discrete else (obs, action)
        network = self.network.parts["critic"]
        heads, state = apply_heads(network, critic, inputs, key=key, train=train)
        q = heads["q"] if heads["q"].ndim > 1 + discrete else heads["q"][None]
        if not discrete or action is None:
            return q, state
        index = jnp.broadcast_to(action[None, :, None], (*q.shape[:2], 1))
        return jnp.take_along_axis(q, index, axis=-1)[..., 0], state

    def regress(
        self, q: jax.Array, target: jax.Array, batch: ActorCriticBatch
    ) -> tuple[jax.Array, Metrics]:
        """Compute the critics' loss, and their metrics.

        L = sum_i mean(0.5 * w * (q_i - target)^2), with the weights w of the batch.

        Args:
          q: `[M, B]`, of `M` critics.
          target: `[B]`, without gradient.
          batch: of these samples.

        Returns:
          The loss, `[]`; the average value `q`, and with priorities the average absolute errors of
          the critics as `td_errors`, `[B]`.
        """
        metrics = {"q": q.mean()}
        if batch.weight is not None:
            metrics["td_errors"] = jnp.abs(target[None] - q).mean(axis=0)
        return ensemble_loss(q, target, batch.weight), metrics

    def unit_action(
        self, actor: Variables, obs: PyTree, *, key: Key | None = None, train: bool = False
    ) -> tuple[jax.Array, PyTree]:
        """Apply a deterministic actor to normalized observations: actions `[B, n]` by a tanh."""
        network = self.network.parts["actor"]
        heads, state = apply_heads(network, actor, obs, key=key, train=train)
        return jnp.tanh(heads["action"]), state

    def act(
        self,
        state: ActorCriticState,
        carry: PyTree,
        inputs: PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> PolicyOutput:
        obs, mask = self.network_obs(state, inputs.obs), inputs.action_mask
        if explore:
            action_key, random_key = jax.random.split(key)
            action = self.choose(state, obs, mask, action_key)
            random = self._random(action, mask, random_key)
            action = jnp.where(state.replay.num_added < self.learning_starts, random, action)
        else:
            action = self.choose(state, obs, mask, None)
        if isinstance(self.unit, Discrete):
            return PolicyOutput(action=action, carry=carry, extras={})
        scaled = from_unit_box(self.action_spec, action)
        return PolicyOutput(action=scaled, carry=carry, extras={"unit": action})

    def choose(
        self,
        state: ActorCriticState,
        obs: PyTree,
        action_mask: jax.Array | None,
        key: jax.Array | None,
    ) -> jax.Array:
        """Draw actions of the policy, or take the likeliest ones if `key` is None.

        Returns:
          float32 `[N, n]` within [-1, 1], or discrete actions, int32 `[N]`.
        """
        policy, _ = self.policy(state.learners["actor"].variables, obs, action_mask)
        return squashed(policy, policy.mode() if key is None else policy.sample(key))

    def _random(self, like: jax.Array, action_mask: jax.Array | None, key: jax.Array) -> jax.Array:
        """Draw uniform actions, for the warm-up."""
        if not isinstance(self.unit, Discrete):
            return jax.random.uniform(key, like.shape, minval=-1.0)
        logits = jnp.zeros((*like.shape, self.unit.num_values), jnp.float32)
        return categorical(logits, action_mask).sample(key)

    def update(
        self, state: ActorCriticState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[ActorCriticState, Metrics]:
        if state.obs_stats is not None:
            state = replace(state, obs_stats=state.obs_stats.add(trajectory.obs))
        return replay_and_learn(
            self.replay,
            self.config,
            state,
            trajectory,
            self._learn_normalized,
            key,
            action=trajectory.extras.get("unit"),
            num_batches=self.config.policy_delay,
        )

    def _learn_normalized(
        self, state: ActorCriticState, sample: Sample, key: jax.Array
    ) -> tuple[ActorCriticState, Metrics]:
        obs, next_obs = (normalized(state.obs_stats, x) for x in (sample.obs, sample.next_obs))
        return self.learn(state, replace(sample, obs=obs, next_obs=next_obs), key)

    @property
    def losses(self) -> Mapping[str, Loss]:
        """The losses of the parts by name, in the order in which `learn` steps on them."""
        name = type(self).__name__
        raise NotImplementedError(f"{name} has no losses: define `losses`, or another `learn`.")

    def learn(
        self, state: ActorCriticState, sample: Sample, key: jax.Array
    ) -> tuple[ActorCriticState, Metrics]:
        """Take one gradient step on each of the `losses`, in their order, and move the targets.

        An algorithm with other steps overrides it; each call steps the actor once.

        Args:
          state: the agent's.
          sample: `[B, ...]`, with normalized observations; with a `policy_delay`,
            `[policy_delay, B, ...]`, of which each is for one step of the critics.
          key: a typed key.

        Returns:
          The next state, and the metrics of `step`.
        """
        state, metrics = self.step(state, sample, key, **self.losses)
        return self.move_targets(state), metrics

    def step(
        self, state: ActorCriticState, sample: Sample, key: jax.Array, **losses: Loss
    ) -> tuple[ActorCriticState, Metrics]:
        """Step the parts on their losses, in this order; each reads those that have moved already.

        One learner of all parts, with stopped gradients, would step them at once; algorithm 1 of
        SAC's paper (Haarnoja et al. 2018) steps them in turn.

        Args:
          state: the agent's.
          sample: `[B, ...]`.
          key: a typed key.
          losses: `part=loss(variables, ActorCriticBatch, key) -> (scalar, (metrics, new_state))`;
            with `prioritized`, the metrics of `critic` have `td_errors`, `[B]`, at least 0.

        Returns:
          The next state; the losses' metrics, each loss as `{part}_loss`, their sum `loss`, and the
          `grad_norm` of all gradients together.
        """
        total, squared_norm, metrics, weight = jnp.zeros(()), jnp.zeros(()), {}, None
        if self.config.prioritized:
            exponent = state.hyper.importance_sampling_exponent
            weight = importance_weights(sample.probability, exponent)
        keys = jax.random.split(key, len(losses))
        for (part, loss), own_key in zip(losses.items(), keys, strict=True):
            learner, part_metrics = self.learner_of(part).step(
                state.learners[part],
                loss,
                ActorCriticBatch(sample=sample, state=state, weight=weight),
                own_key,
                self._with_rate(part, state.hyper),
            )
            state = replace(state, learners={**state.learners, part: learner})
            value, norm = part_metrics.pop("loss"), part_metrics.pop("grad_norm")
            if part == "critic" and self.config.prioritized:
                state, part_metrics = self._with_priorities(state, sample, part_metrics)
            metrics |= {f"{part}_loss": value, **part_metrics}
            total, squared_norm = total + value, squared_norm + norm**2
        return state, {**metrics, "loss": total, "grad_norm": jnp.sqrt(squared_norm)}

    def _with_priorities(
        self, state: ActorCriticState, sample: Sample, metrics: Metrics
    ) -> tuple[ActorCriticState, Metrics]:
        """Set the priorities of a sample by its `td_errors`, whose average `td_error` is kept."""
        if "td_errors" not in metrics:
            raise TriglotError(
                f"{type(self).__name__}'s critic loss returns no td_errors, from which priorities "
                "follow: return the metrics of self.regress, or leave out prioritized."
            )
        errors, hyper = metrics["td_errors"], state.hyper
        priority = (errors + hyper.priority_eps) ** hyper.priority_exponent
        replay = self.replay.update_priorities(state.replay, sample.slot, priority)
        kept = {name: value for name, value in metrics.items() if name != "td_errors"}
        return replace(state, replay=replay), {**kept, "td_error": errors.mean()}

    def move_targets(self, state: ActorCriticState) -> ActorCriticState:
        """Average the online parameters into the targets', with the weight `tau`.

        With a `target_update_period`, only after each so many steps of the critics.
        """
        online = self.followed(
            {part: learner.variables for part, learner in state.learners.items()}
        )
        move = partial(polyak, tau=state.hyper.tau)
        moved = jax.tree.map(move, online, state.target, is_leaf=_is_variables)
        if state.hyper.target_update_period is not None:
            number = state.learners["critic"].num_gradient_steps
            is_time = is_multiple(number, state.hyper.target_update_period)
            moved = jax.tree.map(partial(jnp.where, is_time), moved, state.target)
        return replace(state, target=moved)

    def step_each(
        self,
        state: ActorCriticState,
        samples: Sample,
        key: jax.Array,
        *,
        move_targets: bool = False,
        **losses: Loss,
    ) -> tuple[ActorCriticState, Metrics]:
        """Call `step` on each of the samples `[D, B, ...]`; the metrics are averages.

        Args:
          state, samples, key, losses: as for `step`.
          move_targets: whether the targets move after each call.
        """

        def step_on_batch(
            state: AnyAgentState, row: tuple[Sample, jax.Array]
        ) -> tuple[AnyAgentState, Metrics]:
            state, metrics = self.step(state, *row, **losses)
            return self.move_targets(state) if move_targets else state, metrics

        keys = jax.random.split(key, samples.reward.shape[0])
        state, metrics = jax.lax.scan(step_on_batch, state, (samples, keys))
        return state, jax.tree.map(lambda rows: rows.mean(axis=0), metrics)

    def temperature(self, state: ActorCriticState) -> jax.Array:
        """Return the weight of the entropy, which the part `temperature` learns, `[]`."""
        return jnp.exp(state.learners["temperature"].variables.params)

    def temperature_loss(
        self, temperature: Variables, batch: ActorCriticBatch, key: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, PyTree]]:
        """Average -temperature * (log pi(a|s) + target entropy), a ~ pi(s).

        The target entropy is `hyper.target_entropy`; where it is None, minus the number of action
        dimensions, or the share `target_entropy_ratio` of the allowed actions' entropy.

        Source: Haarnoja et al. 2018, equation 18, https://arxiv.org/abs/1812.05905; with discrete
        actions, averaged over pi exactly: Christodoulou 2019, equation 11,
        https://arxiv.org/abs/1910.07207.
        """
        sample, mask, state = batch.sample, batch.sample.action_mask, batch.state
        policy, _ = self.policy(state.learners["actor"].variables, sample.obs, mask)
        drawn = weighted_actions(policy, key)
        value, log_prob = jnp.exp(temperature.params), drawn.mean(drawn.log_prob)
        wanted = state.hyper.target_entropy
        if wanted is None:
            wanted = self._default_target_entropy(mask, state.hyper)
        return -value * jnp.mean(log_prob + wanted), ({"temperature": value}, temperature.state)

    def _default_target_entropy(self, mask: jax.Array | None, hyper: AnyHyperparams) -> Number:
        """Return the entropy that a policy is tuned to, `[]`, or `[B]` with a mask."""
        if isinstance(self.unit, Box):
            return -float(self.unit.shape[0])
        num_actions = jnp.asarray(self.unit.num_values) if mask is None else mask.sum(axis=-1)
        return hyper.target_entropy_ratio * jnp.log(num_actions.astype(jnp.float32))

    def _with_rate(self, part: str, hyper: AnyHyperparams) -> AnyHyperparams:
        """Fill in a part's learning rate, which the optimizer reads."""
        rate_name, known = f"{part}_learning_rate", {field.name for field in fields(hyper)}
        return (
            replace(hyper, learning_rate=getattr(hyper, rate_name)) if rate_name in known else hyper
        )


def joined(metrics: Metrics, others: Metrics) -> Metrics:
    """Join the metrics of two calls of `step`, with the sum of their losses and gradients."""
    squares = metrics["grad_norm"] ** 2 + others["grad_norm"] ** 2
    total = metrics["loss"] + others["loss"]
    return {**metrics, **others, "loss": total, "grad_norm": jnp.sqrt(squares)}


def _is_variables(node: object) -> bool:
    return isinstance(node, Variables)
