"""What an agent is, and the data that passes between it, the environments and the loop."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax

PyTree: TypeAlias = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class PolicyInput:
    """What a policy may see of `N` environments.

    Attributes:
      obs: `[N, ...]`.
      first: bool `[N]`, an episode starts here.
      action_mask: bool `[N, num_actions]` of allowed actions, or None where all are.
    """

    obs: PyTree
    first: jax.Array
    action_mask: jax.Array | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class PolicyOutput:
    """What a policy answers: an action `[N, ...]`, its next carry, and notes for the update."""

    action: jax.Array
    carry: PyTree
    extras: dict[str, jax.Array]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """`T` steps of `N` environments, time-major.

    Attributes:
      obs, first, action_mask: what the policy saw, `[T, N, ...]`.
      action: `[T, N, ...]`.
      reward: float32 `[T, N]`.
      terminated, truncated: bool `[T, N]`; they are never one flag.
      next_obs, next_action_mask: the true successor, from before any reset, `[T, N, ...]`.
      extras: what `act` noted, `[T, N, ...]` each.
      carry: the policy's carry before the first step, `[N, ...]`.
    """

    obs: PyTree
    first: jax.Array
    action_mask: jax.Array | None
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    next_obs: PyTree
    next_action_mask: jax.Array | None
    extras: dict[str, jax.Array]
    carry: PyTree


@runtime_checkable
class Agent(Protocol):
    """An algorithm; implement it as a frozen dataclass with shapes and counts in its fields.

    Numeric hyperparameters live in the state, so that a sweep over them is one compiled `vmap`.
    One that learns after every step, and acts on what it has learned, also declares `online = True`
    (see `is_online`).
    """

    @property
    def hyper(self) -> PyTree:
        """The numeric hyperparameters it starts from."""
        ...

    @property
    def num_envs(self) -> int:
        """Number of environments `N` it steps at a time."""
        ...

    @property
    def rollout_length(self) -> int:
        """Number of steps `T` it collects from each environment between updates."""
        ...

    def init(self, key: jax.Array, num_envs: int, hyper: PyTree | None = None) -> Any:
        """Make its state; `hyper` replaces its default hyperparameters."""
        ...

    def initial_carry(self, state: Any, num_envs: int) -> PyTree:
        """Make the policy's carry at an episode's start; `()` where it has none."""
        ...

    def act(
        self, state: Any, carry: PyTree, inputs: PolicyInput, key: jax.Array, *, explore: bool
    ) -> PolicyOutput:
        """Choose actions; greedily where `explore` is False."""
        ...

    def update(
        self, state: Any, trajectory: Trajectory, key: jax.Array
    ) -> tuple[Any, dict[str, jax.Array]]:
        """Learn from one trajectory; the metrics are scalars."""
        ...


def is_online(agent: Agent) -> bool:
    """Tell whether the loop gives each step to the agent's `update`, as a trajectory of length 1.

    A rollout is then `rollout_length` steps with as many calls of `update`, and its metrics are
    their averages.
    """
    return getattr(agent, "online", False)
