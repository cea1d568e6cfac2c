"""Policy gradients: what PPO, A2C, REINFORCE, IMPALA and V-MPO share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import jax

from ..agent import AgentBase, AgentConfig, AgentState, PolicyInput, PolicyOutput, Trajectory
from ..hyper import (
    Number,
    between,
    check_divides,
    non_negative,
    one_of,
    only_for,
    positive,
    unit_interval,
)
from ..learner import LearnerState
from ..network import Variables
from ..networks.actor_critic import actor_critic
from ..networks.architecture import CELLS, ConvolutionConfig, NetworkSpec
from ..networks.heads import merge_heads, policy_shapes
from ..networks.unroll import apply_step, carries, unroll
from ..rl.distributions import Policy, policy, to_action
from ..rl.losses import gae, successor_values
from ..rl.minibatches import epochs_of_minibatches, flatten, swap_time
from ..rl.normalize import Normalizer, require_normalizable
from ..rl.schedules import schedule
from ..specs import Spec
from ..types import AnyAgentState, AnyConfig, AnyHyperparams, Key, Metrics, PyTree, pytree_dataclass

ADDED_ADVANTAGE = "added_advantage"  # in a trajectory's extras


@pytree_dataclass
class PolicyGradientHyperparams:
    """Hyperparameters that every policy gradient has; a sweep may vary them under `vmap`.

    Attributes:
      learning_rate: of the optimizer; it falls linearly to 0 over the whole run.
      discount: of future rewards, within [0, 1].
      value_coef: weight of the value loss.
      max_grad_norm: clip threshold of the global gradient norm.
      adam_eps: Adam's epsilon.
      rmsprop_decay: of RMSProp's average of squared gradients; None: optax's 0.9.
      rmsprop_eps: RMSProp's epsilon, inside the root; None: optax's 1e-8.
    """

    learning_rate: Number = non_negative(schedule("linear(1e-3, 0)"))
    discount: Number = unit_interval(0.99)
    value_coef: Number = 0.5
    max_grad_norm: Number = between(0.5, 0.0)
    adam_eps: Number = only_for("optimizer", 1e-5)
    rmsprop_decay: Number | None = only_for("optimizer", between(None, 0.0, 1.0))
    rmsprop_eps: Number | None = only_for("optimizer", between(None, 0.0, above_low=True))


@dataclass(frozen=True, kw_only=True)
class PolicyGradientConfig(ConvolutionConfig, AgentConfig):
    """Static configuration that every policy gradient has.

    Attributes:
      shared_torso: one torso with two heads, instead of separate actor and critic networks.
      hidden_sizes: units of the hidden layers; None: 64 64, and those of the `torso` for images.
      normalize_obs: normalize observations by their running mean and variance; None: where actions
        are continuous and observations are float arrays.
      scale_rewards: divide rewards by the running standard deviation of the discounted returns;
        None: where actions are continuous.
      bounds: how a continuous policy, a Gaussian, keeps actions within their bounds: `tanh`
        squashes its samples into them; `clip` clips samples in units of the actions, whose
        log-probabilities are those of the unclipped samples.
      initial_std: standard deviation of a continuous policy before training, before the tanh, or in
        units of the actions where they are clipped.
      state_dependent_std: compute the standard deviation from the observation, instead of learning
        one number for each action dimension.
      cell: `lstm` or `gru` for a recurrent cell before the heads of each network; or `none`.
      cell_size: units of the cell.
    """

    shared_torso: bool = only_for("networks", False)
    hidden_sizes: tuple[int, ...] | None = only_for("networks", None)
    normalize_obs: bool | None = None
    scale_rewards: bool | None = None
    bounds: str = only_for("continuous", one_of("tanh", "clip"))
    initial_std: float = only_for("networks", positive(1.0))
    state_dependent_std: bool = only_for("networks", False)
    cell: str = only_for("networks", one_of("none", *CELLS))
    cell_size: int = only_for("networks", 64)


@pytree_dataclass
class PolicyGradientState(AgentState):
    """Training state; `normalizer` has the statistics from before the last update."""

    normalizer: Normalizer


@pytree_dataclass
class PolicySamples:
    """Samples of a rollout: steps `[B, ...]`, or whole rollouts `[B, T, ...]`.

    An algorithm's batch inherits it and adds what its loss reads, such as advantages.

    Attributes:
      obs, action_mask: the policy's inputs.
      action: as sampled; a continuous one from before the tanh or the clipping.
      first: bool `[B, T]`, of whole rollouts only.
      carry: `[B, ...]` before the first step, of whole rollouts only.
    """

    obs: PyTree
    action_mask: jax.Array | None
    action: jax.Array
    first: jax.Array | None = None
    carry: PyTree = ()


@pytree_dataclass
class AdvantageSamples(PolicySamples):
    """Samples with what the policy and the value learn: `advantage` and `target`, `[B]` each."""

    advantage: jax.Array
    target: jax.Array


SamplesT = TypeVar("SamplesT", bound=PolicySamples)
PolicyLoss: TypeAlias = Callable[
    [Variables, PyTree, Key, AnyHyperparams], tuple[jax.Array, tuple[Metrics, PyTree]]
]


@dataclass(frozen=True)
class PolicyGradient(AgentBase):
    """A policy and a state value, learned from the rollouts that the policy collects.

    The network gives `value` `[B]`, and `logits` `[B, num_actions]` for discrete actions, those of
    all integers joined for `MultiDiscrete` ones, or `mean` and `log_std` `[B, n]` for a bounded
    `Box` of floats. It may be recurrent: samples are then whole rollouts of some of the
    environments, from the carry at the start of each. The `Config` is
    a `PolicyGradientConfig`, the `Hyperparams` are `PolicyGradientHyperparams`.
    """

    Config = PolicyGradientConfig
    Hyperparams = PolicyGradientHyperparams
    learns_estimates = True  # the advantages of `estimate`

    def __post_init__(self) -> None:
        super().__post_init__()
        require_normalizable(type(self).__name__, self.config.normalize_obs, self.obs_spec)

    @property
    def whole_rollouts(self) -> bool:
        """Whether a sample is the rollout of one environment, instead of one step."""
        return self.network.recurrent

    def check_minibatches(self, num_minibatches: int) -> None:
        """Refuse a number of minibatches that does not divide the samples of a rollout.

        Raises:
          TriglotError: naming both.
        """
        samples, what = self.config.steps_per_update, "num_envs * rollout_length"
        if self.whole_rollouts:
            why = "the network is recurrent" if self.network.recurrent else "samples are rollouts"
            samples, what = self.config.num_envs, f"num_envs ({why})"
        name = type(self).__name__
        check_divides(name, "num_minibatches", num_minibatches, samples, what)

    @property
    def heads(self) -> dict[str, tuple[int, ...]]:
        return {**policy_shapes(self.action_spec, algorithm=type(self).__name__), "value": ()}

    @classmethod
    def networks(
        cls, obs_spec: Spec, action_spec: Spec, config: AnyConfig = None
    ) -> dict[str, NetworkSpec]:
        """Describe `actor` and `critic`, or `actor_critic` where the torso is shared."""
        config = cls.Config() if config is None else config
        return actor_critic(obs_spec, action_spec, config, algorithm=cls.__name__)

    def init(
        self, key: jax.Array, num_envs: int, hyper: AnyHyperparams | None = None
    ) -> AnyAgentState:
        learned = vars(super().init(key, num_envs, hyper))
        normalizer = Normalizer.init(self.config, self.obs_spec, self.action_spec, num_envs)
        return PolicyGradientState(**learned, normalizer=normalizer)

    def acting(self, state: AnyAgentState) -> Variables:
        """Select the variables that act: those of the learner."""
        return state.learner.variables

    def initial_carry(self, state: AnyAgentState, num_envs: int) -> PyTree:
        return self.network.initial_carry(self.acting(state), num_envs)

    def network_obs(self, state: AnyAgentState, obs: PyTree) -> PyTree:
        """Normalize observations `[B, ...]`, as `config` says."""
        return state.normalizer.obs(obs)

    def act(
        self,
        state: AnyAgentState,
        carry: PyTree,
        inputs: PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> PolicyOutput:
        """Sample actions; the extras are `raw`, the sample before the bounds, and the heads.

        Log-probabilities, and values of a network of their own, are cheaper for a whole rollout at
        once, in `update`. One network for all heads has computed the value already.
        """
        obs = self.network_obs(state, inputs.obs)
        outputs, carry = apply_step(self.network, self.acting(state), obs, inputs.first, carry)
        heads = merge_heads(outputs)
        actor = policy(self.action_spec, heads, inputs.action_mask)
        raw = actor.sample(key) if explore else actor.mode()
        kept = [name for name in self.heads if name != "value" or len(self.network.parts) <= 1]
        extras = {"raw": raw, **{name: heads[name] for name in kept}}
        action = to_action(self.action_spec, raw, clipped=self.config.bounds == "clip")
        return PolicyOutput(action=action, carry=carry, extras=extras)

    def behaviour(self, trajectory: Trajectory) -> Policy:
        """Build the policy that collected a trajectory, from the heads that `act` kept."""
        return policy(self.action_spec, trajectory.extras, trajectory.action_mask)

    def values(
        self, variables: Variables, steps: PyTree, value: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Estimate V of each step's observation and of its true successor.

        Args:
          variables: of the network.
          steps: a `Trajectory`, or samples that are whole rollouts, `[T, N, ...]`, with its `obs`,
            `next_obs`, `first`, `terminated`, `truncated` and `carry`.
          value: of each step's observation, `[T, N]`, where it is known.

        Returns:
          float32 `[T, N]` each. A terminated step's second value is not meaningful.
        """

        def value_of(inputs: PyTree) -> jax.Array:
            outputs, _ = self.network.apply(variables, inputs)
            heads = outputs[0] if self.network.recurrent else outputs
            return merge_heads(heads)["value"]

        inputs, successors = steps.obs, steps.next_obs
        if self.network.recurrent:
            before, after = carries(self.network, variables, inputs, steps.first, steps.carry)
            inputs, successors = (inputs, before), (successors, after)
        if value is None:
            value = value_of(flatten(inputs)).reshape(steps.terminated.shape)
        ended = steps.terminated, steps.truncated
        return value, successor_values(value_of, value, successors, *ended)

    def estimate(
        self, variables: Variables, trajectory: Trajectory, discount: Number, gae_lambda: Number
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Estimate values, generalized advantages and lambda-returns of a trajectory.

        Args:
          variables: of the network.
          trajectory: of normalized observations, as `act` collected it; what `with_advantage`
            added to it is added to the advantages, and to nothing else.
          discount: float `[]`.
          gae_lambda: float `[]`; 1 gives the whole return, bootstrapped where a time limit or the
            end of the rollout cuts an episode.

        Returns:
          The values, the advantages and the value targets, float32 `[T, N]` each.
        """
        t = trajectory
        value, next_value = self.values(variables, t, t.extras.get("value"))
        advantage, target = gae(
            t.reward, t.terminated, t.truncated, value, next_value, discount, gae_lambda
        )
        if ADDED_ADVANTAGE in t.extras:
            advantage = advantage + t.extras[ADDED_ADVANTAGE]
        return value, advantage, target

    def samples(
        self, kind: type[SamplesT], trajectory: Trajectory, **data: jax.Array | PyTree
    ) -> SamplesT:
        """Rearrange a trajectory to samples `[B, ...]`, or `[B, T, ...]` of whole rollouts.

        Args:
          kind: `PolicySamples`, or what inherits it.
          trajectory: of normalized observations.
          data: the other fields, `[T, N, ...]`.
        """
        steps = kind(
            obs=trajectory.obs,
            action_mask=trajectory.action_mask,
            action=trajectory.extras["raw"],
            **data,
        )
        if not self.whole_rollouts:
            return flatten(steps)
        steps = replace(steps, first=trajectory.first)
        return replace(swap_time(steps), carry=trajectory.carry)

    def evaluate(
        self, variables: Variables, batch: SamplesT, key: Key
    ) -> tuple[Policy, jax.Array, SamplesT, PyTree]:
        """Apply the network to samples, in a loss.

        Args:
          variables: of the network; the gradient flows to them.
          batch: as `samples` makes it.
          key: for the network's own randomness.

        Returns:
          The policy, the values, and the samples that belong to them: `[B, ...]` each; of whole
          rollouts `[T * B, ...]`, one step of all after another. Last the network's new state.
        """
        carry = batch.carry
        if self.whole_rollouts:
            batch = swap_time(replace(batch, carry=()))
        if self.network.recurrent:
            assert batch.first is not None  # of whole rollouts
            outputs, _, new_state = unroll(
                self.network, variables, batch.obs, batch.first, carry, key=key, train=True
            )
            outputs, batch = flatten((outputs, batch))
        else:
            batch = flatten(batch) if self.whole_rollouts else batch
            outputs, new_state = self.network.apply(variables, batch.obs, key=key, train=True)
        heads = merge_heads(outputs)
        actor = policy(self.action_spec, heads, batch.action_mask)
        return actor, heads["value"], batch, new_state

    def learn(
        self, loss: PolicyLoss, state: AnyAgentState, batch: PolicySamples, key: Key
    ) -> tuple[LearnerState, Metrics]:
        """Take one gradient step on all samples.

        Args:
          loss: `loss(variables, batch, key, hyper) -> (scalar, (metrics, new_state))`.
          state: of the agent, from before the update.
          batch: as `samples` makes it.
          key: passed to `loss`.

        Returns:
          The learner's next state, and the metrics with `learning_rate`.
        """
        hyper = state.hyper
        learner, metrics = self.learner.step(
            state.learner, lambda v, b, k: loss(v, b, k, hyper), batch, key, hyper
        )
        return learner, {**metrics, "learning_rate": hyper.learning_rate}

    def learn_minibatches(
        self,
        loss: PolicyLoss,
        state: AnyAgentState,
        batch: PolicySamples,
        key: Key,
        epochs: Number | None = None,
        stop: Callable[[Metrics], jax.Array] | None = None,
    ) -> tuple[LearnerState, Metrics]:
        """Take a gradient step on each minibatch of `num_epochs`, as the `config` says.

        Arguments and results are those of `learn`; the metrics are averages. `epochs` is how many
        of them count, and `stop` ends them early, see `epochs_of_minibatches`.
        """
        config, hyper = self.config, state.hyper

        def step(
            learner: LearnerState, minibatch: PolicySamples, own_key: Key
        ) -> tuple[LearnerState, Metrics]:
            return self.learner.step(
                learner, lambda v, b, k: loss(v, b, k, hyper), minibatch, own_key, hyper
            )

        learner, metrics = epochs_of_minibatches(
            step,
            state.learner,
            batch,
            key,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            epochs=epochs,
            stop=stop,
        )
        return learner, {**metrics, "learning_rate": hyper.learning_rate}


def with_advantage(trajectory: Trajectory, advantage: jax.Array) -> Trajectory:
    """Add advantages of a value that an extension learns, such as that of intrinsic rewards.

    Args:
      trajectory: `[T, N]`, from which an agent learns that `learns_estimates`.
      advantage: float32 `[T, N]`, added to those that the agent estimates.
    """
    if ADDED_ADVANTAGE in trajectory.extras:
        advantage = trajectory.extras[ADDED_ADVANTAGE] + advantage
    return replace(trajectory, extras={**trajectory.extras, ADDED_ADVANTAGE: advantage})
