"""Vectorized environments that are stepped in Python, such as Gymnasium's."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, SupportsIndex, TypeAlias, runtime_checkable

import jax
import numpy as np
import numpy.typing as npt

from .environment import Environment
from .errors import TriglotError
from .specs import Dict, Spec, Specified, mask_size

Arrays: TypeAlias = Any  # an array, or a dictionary of arrays where the spec is a Dict


def to_dtype(values: npt.ArrayLike, dtype: npt.DTypeLike, name: str = "a value") -> np.ndarray:
    """Copy values from Python to an array of a dtype, which must hold them.

    Floats are rounded to a shorter float type. Integers, and what becomes an integer or a bool,
    keep their values.

    Args:
      values: an array, a number, or nested lists of numbers.
      dtype: of the result.
      name: what they are, for the message.

    Raises:
      TriglotError: with the first value that the dtype cannot hold.
    """
    array, dtype = np.asarray(values), np.dtype(dtype)
    if array.dtype == dtype:
        return array.copy()
    try:
        with np.errstate(over="raise", invalid="raise"):
            result = array.astype(dtype)
    except (FloatingPointError, OverflowError):
        result = None
    if result is not None and (dtype.kind == "f" or (result == array).all()):
        return result
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(np.float64).astype(dtype)
    wrong = ~np.isfinite(cast) & np.isfinite(array) if dtype.kind == "f" else cast != array
    raise TriglotError(
        f"{name} is {array[wrong].flat[0]}, which {dtype} cannot hold{_way_out(dtype)}"
    )


def _way_out(dtype: np.dtype) -> str:
    if dtype.kind == "b":
        return ": return True or False"
    if dtype.kind == "f":
        return ": scale the values in the environment or in a wrapper"
    return (
        ": declare float32 in the environment's space or spec, or convert the values in a wrapper "
        "to a smaller range"
    )


class HostStart(NamedTuple):
    """What `reset` returns in environments with action masks.

    Attributes:
      obs: `[N, ...]`.
      action_mask: bool `[N, num_actions]`, as `PolicyInput.action_mask`.
    """

    obs: Arrays
    action_mask: np.ndarray


class HostStep(NamedTuple):
    """The batched result of one step; environments whose episode ended are reset.

    Attributes:
      reward: float32 `[N]`.
      terminated, truncated: bool `[N]`, at most one of them True.
      next_obs: the true successor, from before any reset, `[N, ...]`.
      obs: the next policy input, from after any reset, `[N, ...]`; the same object as `next_obs` if
        no episode ended.
      next_action_mask: of `next_obs`, bool `[N, num_actions]`; None without masks.
      action_mask: of `obs`, likewise.
    """

    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: Arrays
    obs: Arrays
    next_action_mask: np.ndarray | None = None
    action_mask: np.ndarray | None = None

    @classmethod
    def of(
        cls, reward: npt.ArrayLike, terminated: np.ndarray, truncated: np.ndarray, *rest: Arrays
    ) -> "HostStep":
        """Make it of what a vector environment returns, where both flags may be True.

        Args:
          reward, terminated, truncated: `[N]`.
          rest: the observations, and the masks if there are any, in the order of the fields.

        Raises:
          TriglotError: if a reward is too large for float32.
        """
        reward = to_dtype(reward, np.float32, "a reward")
        return cls(reward, terminated, truncated & ~terminated, *rest)


class Transition(NamedTuple):
    """One step of one environment.

    Attributes:
      obs, next_obs: before and after it; `next_obs` from before any reset.
      reward: float32 `[]`.
      terminated, truncated: at most one of them True.
      next_action_mask: of `next_obs`, or None.
    """

    obs: Arrays
    reward: np.float32
    terminated: bool
    truncated: bool
    next_obs: Arrays
    next_action_mask: np.ndarray | None


def row(batch: Arrays, index: SupportsIndex) -> Arrays:
    """Copy what belongs to one environment of a batch, `[N, ...]`."""
    return jax.tree.map(lambda leaf: np.array(leaf[index]), batch)


Choose: TypeAlias = Callable[[int, int, np.ndarray | None], np.ndarray]
"""Choose an action for an environment's number, its number of transitions, and its action mask."""


class HostVector(Protocol):
    """`N` open, stateful environments. Returned arrays must not be modified later."""

    def reset(self, seed: int) -> Arrays | HostStart:
        """Reset all environments and return the observations, `[N, ...]`.

        With action masks, return a `HostStart`.
        """
        ...

    def step(self, action: np.ndarray) -> HostStep:
        """Take one action `[N, ...]` in each environment."""
        ...

    def close(self) -> None:
        """Close processes, windows and files."""


@runtime_checkable
class HostEnvironment(Specified, Protocol):
    """A factory of environments; implement it as a frozen dataclass, so that it is hashable.

    One whose vectors give action masks is a `HostMasked` too.
    """

    def open(self, num_envs: int) -> HostVector:
        """Open `num_envs` environments."""
        ...


AnyEnvironment: TypeAlias = Environment | HostEnvironment
"""An environment in JAX, or one that is stepped in Python."""


@runtime_checkable
class HostMasked(HostEnvironment, Protocol):
    """An environment that says whether its vectors give action masks; this is optional."""

    @property
    def has_action_mask(self) -> bool:
        """Whether they do, which must be known before programs are compiled."""
        ...


@runtime_checkable
class HostInspectable(HostEnvironment, Protocol):
    """A host environment that `check_environment` can step alone (optional)."""

    @property
    def autoreset_modes(self) -> tuple[str, ...]:
        """When several environments may begin their next episodes, by name."""
        ...

    def open_single(self) -> Any:
        """Open one environment with Gymnasium's interface, as its author wrote it."""
        ...

    def transitions(
        self, mode: str, num_envs: int, seed: int, choose: Choose, num: int
    ) -> list[list[Transition]]:
        """Take `num` transitions in each of `num_envs` environments.

        Args:
          mode: one of `autoreset_modes`; "" for environments that are stepped alone.
          num_envs: `N`.
          seed: of the first environment; that of number i is higher by i.
          choose: `choose(i, number, action_mask)` returns the action for a transition.
          num: number of transitions.
        """
        ...


class RenderableVector(HostVector, Protocol):
    """One open environment that renders frames; it is not reset at the end of an episode."""

    def frame(self) -> np.ndarray:
        """Render the current state, uint8 `[height, width, 3]`."""
        ...


@runtime_checkable
class HostRenderable(HostEnvironment, Protocol):
    """A host environment that can render frames (optional)."""

    @property
    def milliseconds(self) -> int:
        """Display time of one frame, in milliseconds."""
        ...

    def open_filmed(self) -> RenderableVector:
        """Open one environment that renders frames."""
        ...


def host_mask_size(env: HostEnvironment) -> int | None:
    """Return the number of entries of an environment's action masks; None without masks.

    Raises:
      TriglotError: if its actions can have no mask.
    """
    if not (isinstance(env, HostMasked) and env.has_action_mask):
        return None
    if (size := mask_size(env.action_spec)) is None:
        raise TriglotError(
            f"{env.name} has action masks, which are for Discrete and MultiDiscrete actions; its "
            f"actions are {env.action_spec}."
        )
    return size


def check_shapes(spec: Spec, obs: Arrays, num_envs: int) -> None:
    """Check that observations `[N, ...]` have the structure, shapes and dtypes of `spec`.

    Raises:
      TriglotError: with the first mismatch.
    """
    if isinstance(spec, Dict):
        if not isinstance(obs, dict) or sorted(obs) != [name for name, _ in spec.items]:
            names = [name for name, _ in spec.items]
            raise TriglotError(f"an observation must be a dictionary with {names}, got {obs!r}")
        for name, child in spec.items:
            check_shapes(child, obs[name], num_envs)
    elif obs.shape != (num_envs, *spec.shape) or obs.dtype != spec.dtype:
        raise TriglotError(
            f"{num_envs} observations must have the shape {(num_envs, *spec.shape)} and the dtype "
            f"{spec.dtype}, as obs_spec declares; got {obs.shape} and {obs.dtype}"
        )


def require_jittable(env: object) -> None:
    """Reject a host environment where a compiled program is needed.

    Raises:
      TriglotError: if `env` is a `HostEnvironment`.
    """
    if isinstance(env, HostEnvironment):
        raise TriglotError(
            f"{env.name} is stepped in Python and cannot be part of a compiled program: use "
            "`triglot train` or triglot.train with it, or choose a JAX environment."
        )
