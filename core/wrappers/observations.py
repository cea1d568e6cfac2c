"""Wrappers of observations: stacked over time, flattened to one vector, and entries left out."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from ..environment import Environment, TimeStep
from ..errors import TriglotError, shown
from ..hyper import is_integer
from ..specs import Box, Dict, Discrete, MultiDiscrete, Spec, bound_of
from ..types import Obs, PyTree, pytree_dataclass
from .base import Stateless, Wrapper

MAX_STACKED = 10**8  # numbers of an observation; the arrays of its bounds have as many


@pytree_dataclass
class StackedState:
    """The state of `FrameStack`.

    Attributes:
      state: the inner state.
      frames: the stacked observation.
    """

    state: PyTree
    frames: jax.Array


@dataclass(frozen=True)
class FrameStack(Wrapper):
    """Observe the last few observations at once, the oldest first.

    Images `[H, W, C]` are stacked to `[H, W, n C]` and vectors `[k]` to `[n k]`; planes `[H, W]`
    become channels, `[H, W, n]`. At the start of an episode its first observation is repeated.

    Source: Mnih et al. (2015), "Human-level control through deep reinforcement learning",
    https://doi.org/10.1038/nature14236.

    Attributes:
      env: the inner environment, whose observation is a `Box`.
      num_frames: how many observations are stacked, 4 in the paper.

    Raises:
      TriglotError: if the observation is no `Box`.
    """

    num_frames: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.env.obs_spec, Box):
            raise TriglotError(
                f"FrameStack needs observations that are one array, a Box; {self.name} has a "
                f"{type(self.env.obs_spec).__name__}: wrap it in FlattenObservation first "
                "(flatten_observation=True)."
            )
        size = math.prod(self.env.obs_spec.shape)
        if is_integer(self.num_frames) and size * self.num_frames > MAX_STACKED:
            raise TriglotError(
                f"{self.num_frames:,} observations of {size:,} numbers each are "
                f"{size * self.num_frames:,} numbers, and a stack has at most {MAX_STACKED:,}: "
                "give fewer frames, such as 4."
            )

    @property
    def obs_spec(self) -> Spec:
        spec = self.env.obs_spec
        assert isinstance(spec, Box)  # checked when it was made
        low, high = (
            np.concatenate([self._channels(bound)] * self.num_frames, axis=-1)
            for bound in spec.bounds()
        )
        return replace(spec, shape=low.shape, low=bound_of(low), high=bound_of(high))

    def begin(self, start: TimeStep) -> TimeStep:
        frames = jnp.concatenate([self._channels(start.obs)] * self.num_frames, axis=-1)
        state = StackedState(state=start.state, frames=frames)
        return replace(start, state=state, obs=frames)

    def step(self, state: StackedState, action: PyTree, key: jax.Array) -> TimeStep:
        step = self.env.step(state.state, action, key)
        newest = self._channels(step.obs)
        kept = state.frames[..., newest.shape[-1] :]
        frames = jnp.concatenate([kept, newest], axis=-1)
        return replace(step, state=StackedState(state=step.state, frames=frames), obs=frames)

    def _channels(self, obs: Obs) -> Obs:
        return obs[..., None] if obs.ndim in (0, 2) else obs


@dataclass(frozen=True)
class SelectEntries(Stateless):
    """Observe only some entries of a vector, such as positions without velocities.

    What is left out has to be remembered or inferred: the usual way to make a task that needs a
    recurrent policy.

    Source: Wierstra et al. (2007), "Solving Deep Memory POMDPs with Recurrent Policy Gradients",
    https://doi.org/10.1007/978-3-540-74690-4_71, which balances poles without their velocities.

    Attributes:
      env: the inner environment, whose observation is a `Box` with one axis.
      entries: the numbers of the entries, from 0 on, in the order in which they are observed.

    Raises:
      TriglotError: if the observation is no vector, or it has no such entry.
    """

    entries: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        spec = self.env.obs_spec
        if not (isinstance(spec, Box) and len(spec.shape) == 1):
            raise TriglotError(
                f"SelectEntries needs observations that are one vector; {self.name} has {spec}: "
                "wrap it in FlattenObservation first (flatten_observation=True)."
            )
        (size,) = spec.shape
        wrong = [entry for entry in self.entries if not (is_integer(entry) and 0 <= entry < size)]
        if wrong or not self.entries or len(set(self.entries)) < len(self.entries):
            raise TriglotError(
                f"the entries must be different integers from 0 to {size - 1}, got "
                f"{shown(wrong[0] if wrong else self.entries)}."
            )

    @property
    def obs_spec(self) -> Spec:
        spec = self.env.obs_spec
        assert isinstance(spec, Box)  # checked when it was made
        low, high = (bound[np.array(self.entries)] for bound in spec.bounds())
        return replace(spec, shape=low.shape, low=bound_of(low), high=bound_of(high))

    def begin(self, start: TimeStep) -> TimeStep:
        return replace(start, obs=start.obs[np.array(self.entries)])

    def step(self, state: PyTree, action: PyTree, key: jax.Array) -> TimeStep:
        return self.begin(self.env.step(state, action, key))


def only_entries(env: Environment, entries: int | str | tuple[int, ...]) -> SelectEntries:
    """Wrap an environment in `SelectEntries`.

    Args:
      env: the environment.
      entries: one number, several in a tuple, or a text such as `0+2`.

    Raises:
      TriglotError: if the text is not of this kind, or `SelectEntries` refuses it.
    """
    if isinstance(entries, str):
        parts = entries.split("+")
        if not all(part.isdecimal() for part in parts):
            raise TriglotError(f"entries are numbers joined by +, such as 0+2; got {entries!r}.")
        entries = tuple(map(int, parts))
    return SelectEntries(env, entries if isinstance(entries, tuple) else (entries,))


@dataclass(frozen=True)
class FlattenObservation(Stateless):
    """Observe one float32 vector: all arrays of the observation, one after the other.

    A `Discrete` and each integer of a `MultiDiscrete` are one-hot. The entries of a `Dict` are in
    the order of their names. Numbers stay as they are; bytes are not divided by 255.

    Attributes:
      env: the inner environment.
    """

    @property
    def obs_spec(self) -> Spec:
        return flat_spec(self.env.obs_spec)

    def begin(self, start: TimeStep) -> TimeStep:
        return replace(start, obs=flat(self.env.obs_spec, start.obs))

    def step(self, state: PyTree, action: PyTree, key: jax.Array) -> TimeStep:
        step = self.env.step(state, action, key)
        return replace(step, obs=flat(self.env.obs_spec, step.obs))


def flatten_if(env: Environment, wanted: object) -> Environment:
    """Wrap an environment in `FlattenObservation` if it is wanted.

    Raises:
      TriglotError: unless `wanted` is True or False.
    """
    if not isinstance(wanted, bool):
        raise TriglotError(f"it must be True or False, got {shown(wanted)}.")
    return FlattenObservation(env) if wanted else env


def flat_spec(spec: Spec) -> Box:
    """Describe what `flat` makes of a value."""
    leaves = list(_leaves(spec))
    whole = all(not isinstance(leaf, Box) or _is_whole(leaf) for leaf in leaves)
    low, high = (np.concatenate(sides) for sides in zip(*map(_bounds, leaves), strict=True))
    return Box(low.shape, "float32", bound_of(low), bound_of(high), whole)


def flat(spec: Spec, value: PyTree) -> jax.Array:
    """Convert a value to one float32 vector, as `FlattenObservation` does."""
    if isinstance(spec, Dict):
        return jnp.concatenate([flat(child, value[name]) for name, child in spec.items])
    if isinstance(spec, Box):
        return value.astype(jnp.float32).ravel()
    counts = (spec.num_values,) if isinstance(spec, Discrete) else spec.num_values
    integers = jnp.atleast_1d(value)
    one_hot = [jax.nn.one_hot(integers[i], n, dtype=jnp.float32) for i, n in enumerate(counts)]
    return jnp.concatenate(one_hot)


def _leaves(spec: Spec) -> Iterator[Box | Discrete | MultiDiscrete]:
    if isinstance(spec, Dict):
        for _, child in spec.items:
            yield from _leaves(child)
    else:
        yield spec


def _is_whole(spec: Box) -> bool:
    return spec.whole or not np.issubdtype(spec.dtype, np.floating)


def _bounds(spec: Box | Discrete | MultiDiscrete) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of one flat array, float32 `[n]` each."""
    if isinstance(spec, Box):
        low, high = spec.bounds()
        return low.astype(np.float32).ravel(), high.astype(np.float32).ravel()
    size = int(np.sum(spec.num_values))
    return np.zeros(size, np.float32), np.ones(size, np.float32)
