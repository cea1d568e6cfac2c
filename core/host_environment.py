"""Environments that are stepped in Python, many at a time, such as Gymnasium's."""

from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from .errors import TriglotError
from .specs import Dict, Spec

Arrays: TypeAlias = Any  # an array, or a dictionary of arrays where the spec is a Dict


class HostStep(NamedTuple):
    """What `N` environments said of one action; those whose episode ended have begun a new one.

    Attributes:
      reward: float32 `[N]`.
      terminated, truncated: bool `[N]`, never both.
      next_obs: the true successor, from before any reset, `[N, ...]`.
      obs: what the policy sees next, from after any reset, `[N, ...]`; `next_obs` itself where no
        episode ended.
    """

    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: Arrays
    obs: Arrays


class HostVector(Protocol):
    """`N` open environments, which remember where they stand. Arrays it gave are never changed."""

    def reset(self, seed: int) -> Arrays:
        """Begin all episodes anew, and return what the policy sees, `[N, ...]`."""
        ...

    def step(self, action: np.ndarray) -> HostStep:
        """Take one action `[N, ...]` in each environment."""
        ...

    def close(self) -> None:
        """Let go of processes, windows and files."""
        ...


@runtime_checkable
class HostEnvironment(Protocol):
    """One kind of environment; implement it as a frozen dataclass, so that it can be hashed."""

    @property
    def name(self) -> str:
        """Say how errors and reports call it."""
        ...

    @property
    def obs_spec(self) -> Spec:
        """Describe one observation."""
        ...

    @property
    def action_spec(self) -> Spec:
        """Describe one action."""
        ...

    def open(self, num_envs: int) -> HostVector:
        """Start `num_envs` of them."""
        ...


class FilmedVector(HostVector, Protocol):
    """One open environment, which stays where its episode ended until it is reset."""

    def frame(self) -> np.ndarray:
        """Draw where it stands, uint8 `[height, width, 3]`."""
        ...


@runtime_checkable
class Filmed(HostEnvironment, Protocol):
    """A host environment whose episodes can be filmed; this is optional."""

    @property
    def milliseconds(self) -> int:
        """Say how long a frame is shown."""
        ...

    def open_filmed(self) -> FilmedVector:
        """Start one of them, which draws itself."""
        ...


def check_shapes(spec: Spec, obs: Arrays, num_envs: int) -> None:
    """Refuse observations `[N, ...]` of another structure, shape or dtype than `spec` declares.

    Raises:
      TriglotError: saying which.
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
    """Refuse an environment that cannot be compiled.

    Raises:
      TriglotError: if `env` is a `HostEnvironment`.
    """
    if isinstance(env, HostEnvironment):
        raise TriglotError(
            f"{env.name} is stepped in Python, so that it cannot become part of a compiled program:"
            " train on it by `triglot train` or triglot.train, or choose an environment of JAX."
        )
