"""Extend an algorithm: add learning of another kind, such as an intrinsic reward, to any agent."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, ClassVar

import jax

from ..agent import AgentBase, PolicyInput, PolicyOutput, Trajectory
from ..errors import TriglotError
from ..network import Network, Variables
from ..networks.architecture import NetworkSpec
from ..networks.combinators import subset
from ..specs import Spec
from ..types import Metrics, PyTree, pytree_dataclass


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
    config: Any

    name: ClassVar[str]
    Config: ClassVar[type]
    Hyperparams: ClassVar[type]

    @classmethod
    def networks(cls, obs_spec: Spec, action_spec: Spec, config: Any) -> Mapping[str, NetworkSpec]:
        """Describe its networks by name; they are built from the agent's library."""
        del obs_spec, action_spec, config
        return {}

    @classmethod
    def described(
        cls, networks: Mapping[str, Any], obs_spec: Spec, action_spec: Spec, config: Any
    ) -> dict[str, Any]:
        """Describe the algorithm's `networks` and its own."""
        return {**networks, **cls.networks(obs_spec, action_spec, config)}

    @staticmethod
    def variables(state: Any) -> Mapping[str, Variables]:
        """Select the variables of its networks, by their names, from its state."""
        del state
        return {}

    def step_hyper(self, hyper: Any) -> "StepHyper":
        """Select what its optimizer reads: `NAME_learning_rate`."""
        return StepHyper(learning_rate=getattr(hyper, f"{self.name}_learning_rate"))

    def init(self, key: jax.Array, num_envs: int, hyper: Any) -> PyTree:
        """Make its state.

        Args:
          key: a typed key.
          num_envs: environments `N` of the agent.
          hyper: hyperparameters, float32 `[]` each, with the algorithm's.
        """
        raise NotImplementedError

    def check(self, agent: Any) -> None:
        """Refuse an algorithm that it cannot extend, by TriglotError."""
        del agent

    def start(self, agent: Any, state: Any, key: jax.Array, num_envs: int) -> PyTree:
        """Make its state beside the first `state` of `agent`, which is the algorithm."""
        del agent
        return self.init(key, num_envs, state.hyper)

    def update(
        self, state: PyTree, trajectory: Trajectory, key: jax.Array, hyper: Any
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
        self, agent: Any, agent_state: Any, state: PyTree, trajectory: Trajectory, key: jax.Array
    ) -> tuple[Any, PyTree, Metrics]:
        """Learn from a rollout, after the agent did.

        Args:
          agent: the algorithm.
          agent_state: its state after the update.
          state: its own, as `update` returned it.
          trajectory: the rollout from which the agent learned, `[T, N, ...]`.
          key: a typed key.

        Returns:
          The agent's state, its own next state, and scalar metrics.
        """
        del agent, trajectory, key
        return agent_state, state, {}


@pytree_dataclass
class StepHyper:
    """What the optimizer of an extension reads."""

    learning_rate: jax.Array


class ExtendedState:
    """The state of an algorithm with one field more; `extend` makes its classes."""

    algorithm_state: ClassVar[type]
    extension: ClassVar[type[Extension]]

    def divided(self) -> tuple[Any, Mapping[str, Variables]]:
        """Return the algorithm's own state, and the variables of the extension's networks."""
        fields = dict(vars(self))
        own = fields.pop(self.extension.name)
        return self.algorithm_state(**fields), self.extension.variables(own)


class ExtendedAgent(AgentBase):
    """An agent with an extension; `extend` makes its classes.

    Its state is that of the algorithm with one field more, named after the extension. Its network
    is the combination of the algorithm's networks and the extension's.
    """

    algorithm: ClassVar[Any]
    extension: ClassVar[type[Extension]]

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = self.inner  # which checks the algorithm's own conditions
        if missing := set(self._specs) - set(self.network.parts):
            raise TriglotError(
                f"{type(self).__name__} has networks beside those of {self.algorithm.__name__}: "
                f"give all of them, each by its name. Missing: {', '.join(sorted(missing))}."
            )
        self.added.check(inner)

    @classmethod
    def networks(cls, obs_spec: Spec, action_spec: Spec, config: Any) -> dict[str, Any]:
        """Describe the algorithm's networks and the extension's."""
        own = cls.algorithm.networks(obs_spec, action_spec, config)
        return cls.extension.described(own, obs_spec, action_spec, config)

    @cached_property
    def _specs(self) -> Mapping[str, NetworkSpec]:
        return self.extension.networks(self.obs_spec, self.action_spec, self.config)

    @cached_property
    def inner(self) -> Any:
        """The algorithm, on its own networks."""
        network = self.network
        if self._specs and network.parts:
            network = subset(network, [name for name in network.parts if name not in self._specs])
        return self.algorithm(
            network=network,
            obs_spec=self.obs_spec,
            action_spec=self.action_spec,
            config=self.config,
            hyper=self.hyper,
            optimizer=self.optimizer,
        )

    @cached_property
    def added(self) -> Extension:
        """The extension, on its own networks."""
        network = subset(self.network, list(self._specs)) if self._specs else None
        return self.extension(network=network, obs_spec=self.obs_spec, config=self.config)

    def init(self, key: jax.Array, num_envs: int, hyper: Any | None = None) -> Any:
        state = self.inner.init(key, num_envs, hyper)
        own_key = jax.random.fold_in(key, 1)
        own = self.added.start(self.inner, state, own_key, num_envs)
        extended = _state_type(type(state), self.extension)
        return extended(**vars(state), **{self.extension.name: own})

    def initial_carry(self, state: Any, num_envs: int) -> PyTree:
        return self.inner.initial_carry(state, num_envs)

    def act(
        self, state: Any, carry: PyTree, inputs: PolicyInput, key: jax.Array, *, explore: bool
    ) -> PolicyOutput:
        return self.inner.act(state, carry, inputs, key, explore=explore)

    def update(self, state: Any, trajectory: Trajectory, key: jax.Array) -> tuple[Any, Metrics]:
        name = self.extension.name
        own_key, inner_key = jax.random.split(key)
        own = getattr(state, name)
        own_key, after_key = jax.random.split(own_key)
        trajectory, own, before = self.added.update(own, trajectory, own_key, state.hyper)
        state, learned = self.inner.update(state, trajectory, inner_key)
        state, own, after = self.added.after(self.inner, state, own, trajectory, after_key)
        metrics = {f"{name}_{one}": value for one, value in {**before, **after}.items()}
        return replace(state, **{name: own}), {**learned, **metrics}

    def __getattr__(self, name: str) -> Any:
        # What an algorithm has beside the members of an agent, such as `action_values`.
        if name.startswith("_") or name not in dir(self.algorithm):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        return getattr(self.inner, name)


@cache
def extend(algorithm: Any, extension: type[Extension]) -> type:
    """Derive an agent that adds an extension to an algorithm.

    Its `Config` and its `Hyperparams` have the fields of both.

    Args:
      algorithm: a class, as `find_algorithm` returns it.
      extension: what it adds.

    Raises:
      TriglotError: if the algorithm plans in the environment's own model, which no extension
        reaches, or both have a field of the same name.
    """
    name = f"{algorithm.__name__}+{extension.name}"
    if getattr(algorithm, "plans", False):
        raise TriglotError(
            f"{algorithm.__name__} plans in the environment itself, which {extension.name} does "
            "not reach: extend an algorithm that learns from rollouts."
        )
    merged = {}
    for part in ("Config", "Hyperparams"):
        bases = getattr(extension, part), getattr(algorithm, part)
        names = [{one.name for one in dataclasses.fields(base)} for base in bases]
        if shared := sorted(names[0] & names[1]):
            raise TriglotError(f"{algorithm.__name__} and {extension.name} both have {shared[0]}.")
        decorate = pytree_dataclass if part == "Hyperparams" else dataclass(frozen=True)
        docs = {"__doc__": bases[1].__doc__, "__module__": bases[1].__module__}
        merged[part] = decorate(type(f"{name}{part}", (bases[1], bases[0]), docs))
    inherited = ("online", "explores_by_parameters", "bootstraps", "discrete", "learns_estimates")
    body = {
        **merged,
        **{one: getattr(algorithm, one) for one in inherited if hasattr(algorithm, one)},
        "algorithm": algorithm,
        "extension": extension,
        "optimizer": next(
            (one.default for one in dataclasses.fields(algorithm) if one.name == "optimizer"), None
        ),
        "__doc__": f"{algorithm.__doc__}\n\nIt is extended by {extension.name}.",
        "__module__": algorithm.__module__,
        "__annotations__": {"optimizer": Any},
    }
    return dataclass(frozen=True)(type(name, (ExtendedAgent,), body))


@cache
def _state_type(kind: type, extension: type[Extension]) -> type:
    body = {
        "__annotations__": {extension.name: PyTree},
        "__doc__": kind.__doc__,
        "algorithm_state": kind,
        "extension": extension,
    }
    return pytree_dataclass(type(f"{kind.__name__}+{extension.name}", (kind, ExtendedState), body))
