"""Wrappers of rewards; returns in reports are of the changed rewards."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from ..environment import Environment, TimeStep
from ..errors import TriglotError, shown
from ..hyper import finite, is_number
from ..types import PyTree
from .base import Stateless


@dataclass(frozen=True)
class ScaleReward(Stateless):
    """Multiply each reward by a number.

    Attributes:
      env: the inner environment.
      scale: the factor.
    """

    scale: float = finite(1.0)

    def step(self, state: PyTree, action: PyTree, key: jax.Array) -> TimeStep:
        step = self.env.step(state, action, key)
        return replace(step, reward=step.reward * self.scale)


@dataclass(frozen=True)
class ClipReward(Stateless):
    """Clip each reward to an interval.

    Source: Mnih et al. (2015), "Human-level control through deep reinforcement learning",
    https://doi.org/10.1038/nature14236 (from -1 to 1).

    Attributes:
      env: the inner environment.
      low, high: the bounds.

    Raises:
      TriglotError: unless `low < high`.
    """

    low: float = finite(-1.0)
    high: float = finite(1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise TriglotError(f"ClipReward needs low < high, got {self.low} and {self.high}.")

    def step(self, state: PyTree, action: PyTree, key: jax.Array) -> TimeStep:
        step = self.env.step(state, action, key)
        return replace(step, reward=jnp.clip(step.reward, self.low, self.high))


def clip_within(env: Environment, limit: object) -> ClipReward:
    """Clip rewards to within `-limit` and `limit`, or to a pair of bounds.

    Raises:
      TriglotError: if it is neither a number above 0 nor a pair.
    """
    if isinstance(limit, tuple) and len(limit) == 2:
        return ClipReward(env, *limit)
    if isinstance(limit, bool) or not is_number(limit) or not limit > 0:
        raise TriglotError(f"the limit must be a number above 0, got {shown(limit)}.")
    return ClipReward(env, -limit, limit)
