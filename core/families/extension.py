"""Extend an algorithm: add learning of another kind, such as an intrinsic reward, to any agent."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import ClassVar

import jax

from ..agent import Agent, Algorithm, Extensible, PolicyInput, PolicyOutput, Trajectory
from ..errors import TriglotError, kind_of
from ..hyper import (
    OptionsT,
    as_float32,
    as_hyperparams,
    check_config,
    check_hyperparams,
    with_schedules,
)
from ..network import Network, Variables, check_network
from ..networks.architecture import NetworkSpec
from ..networks.combinators import subset
from ..options import (
    OptionTable,
    OptionValues,
    are_options_of,
    option_fields,
    option_parts,
    option_values,
    replace_options,
    select_options,
)
from ..rl.optimizers import OptimizerFn, adam
from ..specs import Spec
from ..types import (
    AnyAgentState,
    AnyConfig,
    AnyHyperparams,
    Metrics,
    PyTree,
    pytree_dataclass,
)


@dataclass(frozen=True)
class Extension:
    """What is added to an agent: it changes what the agent learns from, and learns itself.

    A subclass defines `Config`, `Hyperparams`, `init` and `update`, and `networks` where it has
    some. Its `name` begins the names of its networks and of its fields, which stand beside those of
    the algorithm.

    Attributes:
      network: the combination of the networks that `networks` lists; None without one.
      obs_spec: one observation.
      config: static configuration, with the algorithm's.
    """

    network: Network | None
    obs_spec: Spec
    config: AnyConfig

    name: ClassVar[str]
    Config: ClassVar[type]
    Hyperparams: ClassVar[type]

    @classmethod
    def networks(
        cls, obs_spec: Spec, action_spec: Spec, config: AnyConfig
    ) -> Mapping[str, NetworkSpec]:
        """Describe its networks by name; they are built from the agent's library."""
        del obs_spec, action_spec, config
        return {}

    @classmethod
    def described(
        cls,
        networks: Mapping[str, NetworkSpec | Network],
        obs_spec: Spec,
        action_spec: Spec,
        config: AnyConfig,
    ) -> dict[str, NetworkSpec | Network]:
        """Describe the algorithm's `networks` and its own."""
        return {**networks, **cls.networks(obs_spec, action_spec, config)}

    @staticmethod
    def variables(state: AnyAgentState) -> Mapping[str, Variables]:
        """Select the variables of its networks, by their names, from its state."""
        del state
        return {}

    def step_hyper(self, hyper: AnyHyperparams) -> "StepHyper":
        """Select what its optimizer reads: `NAME_learning_rate`."""
        return StepHyper(learning_rate=getattr(hyper, f"{self.name}_learning_rate"))

    def init(self, key: jax.Array, num_envs: int, hyper: AnyHyperparams) -> PyTree:
        """Make its state.

        Args:
          key: a typed key.
          num_envs: environments `N` of the agent.
          hyper: hyperparameters, float32 `[]` each, with the algorithm's.
        """
        raise NotImplementedError

    def check(self, agent: Agent) -> None:
        """Refuse an agent that it cannot extend, by TriglotError."""
        del agent

    def start(
        self,
        agent: Agent,
        state: AnyAgentState,
        key: jax.Array,
        num_envs: int,
        hyper: AnyHyperparams,
    ) -> PyTree:
        """Make its state beside the first `state` of `agent`; the rest is as in `init`."""
        del agent, state
        return self.init(key, num_envs, hyper)

    def update(
        self, state: PyTree, trajectory: Trajectory, key: jax.Array, hyper: AnyHyperparams
    ) -> tuple[Trajectory, PyTree, Metrics]:
        """Learn from a rollout, before the agent does.

        Args:
          state: its own.
          trajectory: the rollout `[T, N, ...]`.
          key: a typed key.
          hyper: as in `init`.

        Returns:
          The rollout from which the agent learns, its next state, and scalar metrics.
        """
        raise NotImplementedError

    def after(
        self,
        agent: Extensible,
        agent_state: AnyAgentState,
        state: PyTree,
        trajectory: Trajectory,
        key: jax.Array,
        hyper: AnyHyperparams,
    ) -> tuple[AnyAgentState, PyTree, Metrics]:
        """Learn from a rollout, after the agent did.

        Args:
          agent: the agent that it extends.
          agent_state: its state after the update.
          state: its own, as `update` returned it.
          trajectory: the rollout from which the agent learned, `[T, N, ...]`.
          key: a typed key.
          hyper: as in `init`.

        Returns:
          The agent's state, its own next state, and scalar metrics.
        """
        del agent, trajectory, key, hyper
        return agent_state, state, {}


@pytree_dataclass
class StepHyper:
    """What the optimizer of an extension reads."""

    learning_rate: jax.Array


@pytree_dataclass
class ExtendedState:
    """The state of an agent with an extension.

    Attributes:
      agent: the state of the algorithm, which has `()` in place of its hyperparameters.
      extension: the state of the extension.
      hyper: the hyperparameters of both, float32 `[]` each.
      kind: the extension's class, which selects the variables of its networks.
    """

    agent: AnyAgentState
    extension: PyTree
    hyper: OptionValues
    kind: type[Extension] = field(metadata={"static": True})

    @property
    def variables(self) -> Mapping[str, Variables]:
        """The variables of the extension's networks, by name."""
        return self.kind.variables(self.extension)


@dataclass(frozen=True)
class ExtendedAlgorithm:
    """An algorithm with an extension, such as `ppo+rnd`; calling it builds the agent.

    It has what the class of an algorithm has: `Config` and `Hyperparams` list the fields of both,
    and `networks` describes the networks of both.

    Attributes:
      algorithm: a class, or another algorithm with an extension.
      extension: what is added.

    Raises:
      TriglotError: if the algorithm plans in the environment's own model, which no extension
        reaches, or both have a field of the same name.
    """

    algorithm: Algorithm
    extension: type[Extension]

    plans: ClassVar[bool] = False

    def __post_init__(self) -> None:
        name, added = self.algorithm.__name__, self.extension.name
        if self.algorithm.plans:
            raise TriglotError(
                f"{name} plans in the environment itself, which {added} does not reach: extend an "
                "algorithm that learns from rollouts."
            )
        for part in (self.Config, self.Hyperparams):
            names = [field.name for field in option_fields(part)]
            if shared := sorted({name for name in names if names.count(name) > 1}):
                raise TriglotError(f"{name} and {added} both have {shared[0]}.")

    @property
    def __name__(self) -> str:
        return f"{self.algorithm.__name__}+{self.extension.name}"

    @cached_property
    def Config(self) -> OptionTable:
        """The static configuration of both."""
        parts = *option_parts(self.algorithm.Config), self.extension.Config
        return OptionTable(f"{self.__name__}Config", parts)

    @cached_property
    def Hyperparams(self) -> OptionTable:
        """The hyperparameters of both."""
        parts = *option_parts(self.algorithm.Hyperparams), self.extension.Hyperparams
        return OptionTable(f"{self.__name__}Hyperparams", parts)

    @property
    def optimizer(self) -> OptimizerFn:
        """The algorithm's optimizer, unless another is chosen."""
        return getattr(self.algorithm, "optimizer", adam)

    def networks(
        self, obs_spec: Spec, action_spec: Spec, config: OptionValues
    ) -> dict[str, NetworkSpec | Network]:
        """Describe the algorithm's networks and the extension's."""
        inner = select_options(config, self.algorithm.Config)
        described = self.algorithm.networks(obs_spec, action_spec, inner)
        return self.extension.described(described, obs_spec, action_spec, config)

    def __call__(
        self,
        network: Network,
        obs_spec: Spec,
        action_spec: Spec,
        config: OptionValues | None = None,
        hyper: OptionValues | None = None,
        optimizer: OptimizerFn | None = None,
    ) -> "Extended":
        """Build the agent; the algorithm's own optimizer is the default."""
        return Extended(
            algorithm=self,
            network=network,
            obs_spec=obs_spec,
            action_spec=action_spec,
            config=self.Config() if config is None else config,
            hyper=self.Hyperparams() if hyper is None else hyper,
            optimizer=self.optimizer if optimizer is None else optimizer,
        )


def extend(algorithm: Algorithm, extension: type[Extension]) -> ExtendedAlgorithm:
    """Add an extension to an algorithm.

    Args:
      algorithm: a class, as `find_algorithm` returns it, or what this function returned.
      extension: what it adds.

    Raises:
      TriglotError: as `ExtendedAlgorithm`.
    """
    return ExtendedAlgorithm(algorithm, extension)


@dataclass(frozen=True)
class Extended:
    """An agent that holds another one and an extension of it.

    The extension learns from each rollout before and after the agent does; everything else is the
    agent's own.

    Attributes:
      algorithm: what was combined.
      network: the combination of the agent's networks and the extension's.
      obs_spec: one observation.
      action_spec: one action.
      config: the static configuration of both.
      hyper: the hyperparameters of both.
      optimizer: the agent's, `hyper -> optax.GradientTransformation`.
      agent: the agent, on its own networks.
      extension: the extension, on its own networks.

    Raises:
      TriglotError: if the networks of one of both are missing, a value is out of range, or the
        extension refuses the agent.
    """

    algorithm: ExtendedAlgorithm
    network: Network
    obs_spec: Spec
    action_spec: Spec
    config: OptionValues
    hyper: OptionValues
    optimizer: OptimizerFn
    agent: Extensible = field(init=False, compare=False, repr=False)
    extension: Extension = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        kind, name = self.algorithm.extension, self.name
        check_network(f"{name}'s network", self.network)
        if not are_options_of(self.Config, self.config):
            raise TriglotError(
                f"{name}'s config must hold the options of {name}, got {kind_of(self.config)}: "
                "build the agent with triglot.make_agent, which takes values by name."
            )
        hyper = as_hyperparams(name, self.hyper, self.Hyperparams())
        specs = kind.networks(self.obs_spec, self.action_spec, self.config)
        network = self.network
        if specs and network.parts:
            network = subset(network, [part for part in network.parts if part not in specs])
        algorithm = self.algorithm.algorithm
        agent = algorithm(
            network=network,
            obs_spec=self.obs_spec,
            action_spec=self.action_spec,
            config=select_options(self.config, algorithm.Config),
            hyper=select_options(hyper, algorithm.Hyperparams),
            optimizer=self.optimizer,
        )
        if missing := set(specs) - set(self.network.parts):
            raise TriglotError(
                f"{name} has networks beside those of {algorithm.__name__}: give all of them, each "
                f"by its name. Missing: {', '.join(sorted(missing))}."
            )
        config = agent.for_environment(replace_options(self.config, option_values(agent.config)))
        hyper = agent.for_environment(replace_options(hyper, option_values(agent.hyper)))
        hyper = with_schedules(hyper)
        check_config(name, select_options(config, kind.Config))
        check_hyperparams(name, select_options(hyper, kind.Hyperparams), config)
        added = subset(self.network, list(specs)) if specs else None
        extension = kind(network=added, obs_spec=self.obs_spec, config=config)
        extension.check(agent)
        for attribute, value in (
            ("config", config), ("hyper", hyper), ("agent", agent), ("extension", extension),
        ):  # fmt: skip
            object.__setattr__(self, attribute, value)

    @property
    def name(self) -> str:
        return self.algorithm.__name__

    @property
    def Config(self) -> OptionTable:
        return self.algorithm.Config

    @property
    def Hyperparams(self) -> OptionTable:
        return self.algorithm.Hyperparams

    def networks(
        self, obs_spec: Spec, action_spec: Spec, config: OptionValues
    ) -> dict[str, NetworkSpec | Network]:
        return self.algorithm.networks(obs_spec, action_spec, config)

    # These are the agent's own.
    num_envs = property(attrgetter("agent.num_envs"))
    rollout_length = property(attrgetter("agent.rollout_length"))
    online = property(attrgetter("agent.online"))
    learning_starts = property(attrgetter("agent.learning_starts"))
    explores_by_parameters = property(attrgetter("agent.explores_by_parameters"))
    bootstraps = property(attrgetter("agent.bootstraps"))
    plans = property(attrgetter("agent.plans"))
    two_players = property(attrgetter("agent.two_players"))
    learns_estimates = property(attrgetter("agent.learns_estimates"))
    learns_absorbing_states = property(attrgetter("agent.learns_absorbing_states"))
    learns_from_next_obs = property(attrgetter("agent.learns_from_next_obs"))
    learns_otherwise = property(attrgetter("agent.learns_otherwise"))

    def for_environment(self, options: OptionsT) -> OptionsT:
        return self.agent.for_environment(options)

    def init(
        self, key: jax.Array, num_envs: int, hyper: AnyHyperparams | None = None
    ) -> ExtendedState:
        numbers = as_float32(self.hyper if hyper is None else self.for_environment(hyper))
        agent_hyper = select_options(numbers, self.algorithm.algorithm.Hyperparams)
        state = self.agent.init(key, num_envs, agent_hyper)
        key = jax.random.fold_in(key, 1)
        return self._state(
            state, self.extension.start(self.agent, state, key, num_envs, numbers), numbers
        )

    def initial_carry(self, state: ExtendedState, num_envs: int) -> PyTree:
        return self.agent.initial_carry(self.agent_state(state), num_envs)

    def act(
        self,
        state: ExtendedState,
        carry: PyTree,
        inputs: PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> PolicyOutput:
        return self.agent.act(self.agent_state(state), carry, inputs, key, explore=explore)

    def update(
        self, state: ExtendedState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[ExtendedState, Metrics]:
        extension_key, agent_key = jax.random.split(key)
        before_key, after_key = jax.random.split(extension_key)
        trajectory, extension, before = self.extension.update(
            state.extension, trajectory, before_key, state.hyper
        )
        agent_state, metrics = self.agent.update(self.agent_state(state), trajectory, agent_key)
        agent_state, extension, after = self.extension.after(
            self.agent, agent_state, extension, trajectory, after_key, state.hyper
        )
        added = {f"{self.extension.name}_{n}": value for n, value in {**before, **after}.items()}
        return self._state(agent_state, extension, state.hyper), {**metrics, **added}

    def network_obs(self, state: ExtendedState, obs: PyTree) -> PyTree:
        """Convert observations `[B, ...]` to what the agent's network reads of them."""
        return self.agent.network_obs(self.agent_state(state), obs)

    def agent_state(self, state: ExtendedState) -> AnyAgentState:
        """Return the state of the agent alone, with its hyperparameters."""
        hyper = select_options(state.hyper, self.algorithm.algorithm.Hyperparams)
        return replace(state.agent, hyper=hyper)

    def _state(
        self, agent_state: AnyAgentState, extension: PyTree, hyper: OptionValues
    ) -> ExtendedState:
        return ExtendedState(
            agent=replace(agent_state, hyper=()),
            extension=extension,
            hyper=replace_options(hyper, option_values(agent_state.hyper)),
            kind=type(self.extension),
        )


def without_extensions(agent: Agent, state: AnyAgentState) -> tuple[Agent, AnyAgentState]:
    """Return the agent that learns and acts, and its state; an agent without extension as it is."""
    while isinstance(agent, Extended):
        agent, state = agent.agent, agent.agent_state(state)
    return agent, state
