"""What an agent is, and the data that passes between it, the environments and the training loop."""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Protocol, runtime_checkable

import jax

from .errors import TriglotError, kind_of
from .hyper import (
    OptionsT,
    as_float32,
    as_hyperparams,
    check_config,
    check_count,
    check_hyperparams,
    first_numbers,
    for_environment,
    with_schedules,
)
from .learner import Learner, LearnerState
from .network import Network, check_network
from .networks.architecture import NetworkSpec
from .networks.heads import check_heads
from .networks.inputs import images
from .options import OptionTable
from .rl.optimizers import OptimizerFn, adam, check_optimizer
from .specs import Box, Spec
from .types import (
    AnyAgentState,
    AnyConfig,
    AnyHyperparams,
    Carry,
    EnvState,
    Metrics,
    Obs,
    PyTree,
    by_path,
    pytree_dataclass,
)


class Observed(Protocol):
    """What environments show after a reset or a step: a batched `TimeStep` or `VectorState`."""

    @property
    def state(self) -> EnvState:
        """The environments' states `[N, ...]`."""
        ...

    @property
    def obs(self) -> Obs:
        """See `PolicyInput.obs`."""
        ...

    @property
    def action_mask(self) -> jax.Array | None:
        """See `PolicyInput.action_mask`."""
        ...


@pytree_dataclass
class PolicyInput:
    """What a policy observes of `N` environments.

    Attributes:
      obs: `[N, ...]`.
      first: bool `[N]`, an episode starts here.
      action_mask: bool `[N, num_actions]` of allowed actions, or None where all are allowed; for
        `MultiDiscrete` actions `[N, sum(num_values)]`, of the values that each integer may have.
      env_state: the environments' states `[N, ...]`, for an agent that declares `plans`; else None.
    """

    obs: Obs
    first: jax.Array
    action_mask: jax.Array | None = None
    env_state: EnvState = None

    @classmethod
    def of(cls, agent: "Agent", now: Observed, first: jax.Array) -> "PolicyInput":
        """Select what `agent` may observe; only one that `plans` gets the environments' states."""
        env_state = now.state if agent.plans else None
        return cls(obs=now.obs, first=first, action_mask=now.action_mask, env_state=env_state)


@pytree_dataclass
class PolicyOutput:
    """What a policy returns.

    Attributes:
      action: `[N, ...]`.
      carry: the recurrent carry for the next step, `[N, ...]`; `()` without one.
      extras: arrays `[N, ...]` that `update` needs, such as log-probabilities.
    """

    action: jax.Array
    carry: Carry
    extras: dict[str, jax.Array]


@pytree_dataclass
class Trajectory:
    """`T` steps of `N` environments, time-major.

    Attributes:
      obs, first, action_mask: the policy's inputs, `[T, N, ...]`.
      action: `[T, N, ...]`.
      reward: float32 `[T, N]`.
      terminated, truncated: bool `[T, N]`; never merge them.
      next_obs, next_action_mask: the true successor, from before any reset, `[T, N, ...]`.
      extras: the policy's extras, `[T, N, ...]` each.
      carry: the policy's carry before the first step, `[N, ...]`.
    """

    obs: Obs
    first: jax.Array
    action_mask: jax.Array | None
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    next_obs: Obs
    next_action_mask: jax.Array | None
    extras: dict[str, jax.Array]
    carry: Carry

    def checked(self) -> "Trajectory":
        """Return it as it is; called where it is built, and not where JAX takes it apart.

        Raises:
          TriglotError: naming an array that does not begin with the axes `[T, N]`, or with `[N]` in
            the carry; or a flag or mask that is not bool.
        """
        axes = self.reward.shape
        for path, leaf in by_path(self).items():
            name = path.partition(".")[0]
            expected = axes[1:] if name == "carry" else axes
            if leaf.shape[: len(expected)] != expected:
                raise TriglotError(
                    f"{path} of a trajectory must begin with the axes {list(expected)}, got the "
                    f"shape {list(leaf.shape)}: there is a row for each environment."
                )
            if name in _FLAGS and leaf.dtype != bool:
                raise TriglotError(f"{path} of a trajectory must be bool, got {leaf.dtype}.")
        return self


_FLAGS = ("first", "action_mask", "terminated", "truncated", "next_action_mask")


@runtime_checkable
class Agent(Protocol):
    """An algorithm with its network: a frozen dataclass of static configuration.

    Everything that training changes is in its state. `AgentBase` has a default for all members but
    `Config`, `Hyperparams`, `networks`, `act` and `update`; inherit it, or declare the members.
    """

    @property
    def name(self) -> str:
        """How messages call it, such as `PPO`."""
        ...

    @property
    def Config(self) -> type | OptionTable:
        """Static configuration, fixed at compile time: a dataclass; its fields become options."""
        ...

    @property
    def Hyperparams(self) -> type | OptionTable:
        """Numeric hyperparameters: a pytree dataclass kept in the state, so that a sweep vmaps."""
        ...

    @staticmethod
    def networks(
        obs_spec: Spec, action_spec: Spec, config: AnyConfig
    ) -> Mapping[str, NetworkSpec | Network]:
        """Describe the default networks by name; a library builds them from its own layers."""
        ...

    @property
    def network(self) -> Network:
        """The network, or the combination of the networks by name."""
        ...

    @property
    def obs_spec(self) -> Spec:
        """Describe one observation."""
        ...

    @property
    def action_spec(self) -> Spec:
        """Describe one action."""
        ...

    @property
    def config(self) -> AnyConfig:
        """A `Config`."""
        ...

    @property
    def hyper(self) -> AnyHyperparams:
        """The `Hyperparams` that a training starts from."""
        ...

    @property
    def optimizer(self) -> OptimizerFn:
        """Build the optimizer from hyperparameters: `hyper -> optax.GradientTransformation`."""
        ...

    @property
    def num_envs(self) -> int:
        """Number of environments `N` stepped at a time."""
        ...

    @property
    def rollout_length(self) -> int:
        """Number of steps `T` collected from each environment between updates."""
        ...

    @property
    def online(self) -> bool:
        """Whether to call `update` after every step, with a trajectory of length 1.

        A rollout is then `rollout_length` steps with as many updates; metrics are averaged over it.
        """
        ...

    @property
    def learning_starts(self) -> int:
        """Environment steps before the first gradient step."""
        ...

    @property
    def explores_by_parameters(self) -> bool:
        """Whether exploration comes from the parameters, as in an evolution strategy.

        Each rollout then begins with new episodes, which no earlier parameters have begun.
        """
        ...

    @property
    def bootstraps(self) -> bool:
        """Whether the values of next observations enter the targets."""
        ...

    @property
    def plans(self) -> bool:
        """Whether it plans in the environment: it has a `model`, see `core.rl.planning`."""
        ...

    @property
    def two_players(self) -> bool:
        """Whether it moves for both players of a game, in turn."""
        ...

    @property
    def learns_estimates(self) -> bool:
        """Whether it learns from advantages to which an extension may add, by `with_advantage`."""
        ...

    @property
    def learns_absorbing_states(self) -> bool:
        """Whether a model learns that nothing follows an end, with the actions taken after it."""
        ...

    @property
    def learns_from_next_obs(self) -> bool:
        """Whether a loss has a gradient by what the network makes of `next_obs`, as a model's."""
        ...

    @property
    def learns_otherwise(self) -> str:
        """Why the network may return something else in a loss than while acting; "" if it may not.

        That is for equal inputs and parameters, such as other statistics of batch normalization.
        """
        ...

    def for_environment(self, options: OptionsT) -> OptionsT:
        """Fill in what its `Config` and `Hyperparams` leave to the environment."""
        ...

    def init(
        self, key: jax.Array, num_envs: int, hyper: AnyHyperparams | None = None
    ) -> AnyAgentState:
        """Make its state; `hyper` replaces its default hyperparameters."""
        ...

    def initial_carry(self, state: AnyAgentState, num_envs: int) -> Carry:
        """Make the policy's carry at an episode's start, `[N, ...]`; `()` without one."""
        ...

    def act(
        self,
        state: AnyAgentState,
        carry: Carry,
        inputs: PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> PolicyOutput:
        """Choose actions; greedily where `explore` is False."""
        ...

    def update(
        self, state: AnyAgentState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[AnyAgentState, Metrics]:
        """Learn from one trajectory; the metrics are scalars."""
        ...


def with_network(agent: Agent, network: Network) -> Agent:
    """Replace the network of an agent, which is a field of a dataclass."""
    assert is_dataclass(agent) and not isinstance(agent, type)
    return replace(agent, network=network)


class Algorithm(Protocol):
    """What builds an agent: a class such as `PPO`, or an `ExtendedAlgorithm`."""

    @property
    def __name__(self) -> str:
        """The name in messages."""
        ...

    @property
    def Config(self) -> type | OptionTable:
        """See `Agent.Config`."""
        ...

    @property
    def Hyperparams(self) -> type | OptionTable:
        """See `Agent.Hyperparams`."""
        ...

    @property
    def plans(self) -> bool:
        """See `Agent.plans`; the agent then takes a `model` too."""
        ...

    def networks(
        self, obs_spec: Spec, action_spec: Spec, config: AnyConfig
    ) -> Mapping[str, NetworkSpec | Network]:
        """See `Agent.networks`."""
        ...

    def __call__(
        self,
        *,
        network: Network,
        obs_spec: Spec,
        action_spec: Spec,
        config: AnyConfig,
        hyper: AnyHyperparams,
        **further: Any,
    ) -> Agent:
        """Build the agent; `further` are the `optimizer`, the `model` and `two_players`."""
        ...


@runtime_checkable
class ActionValues(Agent, Protocol):
    """An agent that estimates action values; this is optional."""

    def action_values(self, state: AnyAgentState, obs: Obs) -> jax.Array:
        """Estimate the values of the actions, float32 `[B, num_actions]`."""
        ...


class Extensible(Agent, Protocol):
    """An agent that an extension can learn beside; `AgentBase` has a default for its member."""

    def network_obs(self, state: AnyAgentState, obs: Obs) -> PyTree:
        """Convert observations `[B, ...]` to what the network reads of them."""
        ...


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """Static configuration that every agent has; counts must be at least 1.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`.
    """

    num_envs: int = 8
    rollout_length: int = 64

    # Without annotation, so that only a subclass makes it a field.
    learning_starts = 0

    def __post_init__(self) -> None:
        owner = type(self).__name__.removesuffix("Config")
        check_config(owner, self)
        if None not in (self.num_envs, self.rollout_length):  # None: it depends on the actions
            check_count(f"{owner}'s num_envs * rollout_length", self.steps_per_update)

    @property
    def steps_per_update(self) -> int:
        """Environment steps in one rollout of all environments."""
        return self.num_envs * self.rollout_length


@pytree_dataclass
class AgentState:
    """What an agent learns at least.

    Attributes:
      learner: network variables and optimizer state.
      hyper: float32 `[]` each.
    """

    learner: LearnerState
    hyper: AnyHyperparams


@dataclass(frozen=True)
class AgentBase:
    """Defaults for the members of `Agent`; subclasses are frozen dataclasses too.

    Attributes:
      network: has the outputs that `heads` lists.
      obs_spec: one observation.
      action_spec: one action.
      config: static configuration.
      hyper: the hyperparameters that a training starts from.
      optimizer: `hyper -> optax.GradientTransformation`, see `triglot.core.rl.optimizers`.

    Raises:
      TriglotError: if the network's outputs do not fit, a hyperparameter is out of range, or the
        optimizer is not such a function.
    """

    network: Network
    obs_spec: Spec
    action_spec: Spec
    config: AnyConfig = None
    hyper: AnyHyperparams = None
    optimizer: OptimizerFn = adam

    # Without annotations, so that these are not fields. As a ClassVar, none could be a field or a
    # property of a subclass, and none would be the property that `Agent` declares.
    online = False
    explores_by_parameters = False
    bootstraps = True
    plans = False
    two_players = False
    learns_estimates = False
    learns_absorbing_states = False
    learns_from_next_obs = False
    learns_otherwise = ""

    def __post_init__(self) -> None:
        name = self.name
        check_network(f"{name}'s network", self.network)
        for spec in ("obs_spec", "action_spec"):
            if not isinstance(getattr(self, spec), Spec):
                raise TriglotError(
                    f"{name}'s {spec} must be a Box, Discrete, MultiDiscrete or Dict of triglot, "
                    f"as env.{spec} is; got {kind_of(getattr(self, spec))}."
                )
        self._check_config(name)
        default = self.hyper
        if hyperparams := getattr(self, "Hyperparams", None):
            default = self.hyper if isinstance(self.hyper, hyperparams) else hyperparams()
        hyper = as_hyperparams(name, self.hyper, default)
        object.__setattr__(self, "config", self.for_environment(self.config))
        object.__setattr__(self, "hyper", with_schedules(self.for_environment(hyper)))
        check_hyperparams(name, self.hyper, self.config)
        check_optimizer(name, self.optimizer, first_numbers(self.hyper))
        if heads := self.heads:
            check_heads(self.network, self.obs_spec, heads, algorithm=name)

    def _check_config(self, name: str) -> None:
        kind = getattr(self, "Config", None)
        if kind is None or self.config is None or isinstance(self.config, kind):
            return
        raise TriglotError(
            f"{name}'s config must be a {kind.__name__}, got {kind_of(self.config)}: give "
            f"{name}.Config(...), or build the agent with triglot.make_agent, which takes values "
            "by name."
        )

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def heads(self) -> Mapping[str, tuple[int, ...]]:
        """List the network's outputs that it needs: shapes by name, without the batch axis."""
        return {}

    @property
    def num_envs(self) -> int:
        return self.config.num_envs

    @property
    def rollout_length(self) -> int:
        return self.config.rollout_length

    @property
    def learning_starts(self) -> int:
        return self.config.learning_starts if isinstance(self.config, AgentConfig) else 0

    @property
    def learner(self) -> Learner:
        """The network with its optimizer."""
        return Learner(self.network, self.optimizer)

    def learner_of(self, part: str) -> Learner:
        """One network of a combination with its optimizer, by its name in `networks`."""
        return Learner(self.network.parts[part], self.optimizer)

    def init(
        self, key: jax.Array, num_envs: int, hyper: AnyHyperparams | None = None
    ) -> AnyAgentState:
        del num_envs
        numbers = as_float32(self.hyper if hyper is None else self.for_environment(hyper))
        return AgentState(learner=self.learner.init(key, numbers), hyper=numbers)

    def for_environment(self, options: OptionsT) -> OptionsT:
        """Fill in what a `Config` or `Hyperparams` leaves to the environment (`by_environment`).

        Its kinds are `images`, where observations have some, and `continuous`, where actions are a
        `Box` and the network is not recurrent.
        """
        continuous = isinstance(self.action_spec, Box) and not self.network.recurrent
        kinds = [*["images"] * bool(images(self.obs_spec)), *["continuous"] * continuous]
        return for_environment(options, kinds)

    def initial_carry(self, state: AnyAgentState, num_envs: int) -> Carry:
        del state, num_envs
        return ()

    def network_obs(self, state: AnyAgentState, obs: Obs) -> PyTree:
        """Convert observations `[B, ...]` to what the network reads of them."""
        del state
        return obs
