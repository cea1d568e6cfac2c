"""Probe environments: tiny, with known values, each sensitive to one kind of defect.

Source: Jones (2021), "Debugging RL, Without the Agonizing Pain",
https://andyljones.com/posts/rl-debugging.html (probe environments); `Truncating`, `Reach` and
`TwoDials` are original.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from ..core.environment import Environment, TimeStep, first_step
from ..core.errors import unknown
from ..core.hyper import check_count
from ..core.specs import Box, Discrete, MultiDiscrete
from .adapting import check_options


def names(actions: Literal["discrete", "multi", "continuous", "any"] = "any") -> list[str]:
    """List the probes with one kind of actions, or all; `multi` is `MultiDiscrete`."""
    kinds = {
        "discrete": [*_ONE_STEP, "two-step", "truncating"],
        "multi": ["two-dials"],
        "continuous": ["reach"],
    }
    return [*itertools.chain(*kinds.values())] if actions == "any" else kinds[actions]


def make(name: str, **options: int) -> "Probe":
    """Make a probe environment.

    Args:
      name: one of `names()`.
      options: `max_steps` of `truncating`.

    Raises:
      TriglotError: if the name or an option is unknown.
    """
    if name not in names():
        raise unknown("probe environment", name, names())
    check_options(f"probe:{name}", options, ["max_steps"] if name == "truncating" else [])
    if name in _OTHERS:
        return _OTHERS[name]()
    return Truncating(**options) if name == "truncating" else OneStep(name, *_ONE_STEP[name])


class Expected(NamedTuple):
    """The optimal solution for one observation.

    Attributes:
      obs: the observation, of shape `(1,)`.
      value: its discounted value under an optimal policy.
      action: the optimal action, or None if all actions are optimal.
    """

    obs: tuple[float]
    value: float
    action: float | tuple[int, ...] | None


class Probe(Environment, Protocol):
    """An environment with observations of shape `(1,)` and known values."""

    def expected(self, discount: float) -> tuple[Expected, ...]:
        """Return the optimal solution for each observation."""
        ...


class _Specs:
    """The specs of all probes; `Reach` and `TwoDials` have other actions."""

    obs_spec = Box((1,), "float32", -1.0, 1.0)
    action_spec: Discrete | MultiDiscrete | Box = Discrete(2)


# The possible observations, and for each of them the rewards of the two actions.
_ONE_STEP = {
    # Does the critic learn a constant?
    "constant-reward": ((0.0,), ((1.0, 1.0),)),
    # Does the value depend on the observation?
    "obs-reward": ((-1.0, 1.0), ((-1.0, -1.0), (1.0, 1.0))),
    # Does the policy depend on the advantage?
    "action-reward": ((0.0,), ((-1.0, 1.0),)),
    # Does the policy depend on the observation?
    "obs-action-reward": ((-1.0, 1.0), ((1.0, -1.0), (-1.0, 1.0))),
}


@dataclass(frozen=True)
class OneStep(_Specs):
    """One step: a random observation, a reward for the action, then termination.

    Attributes:
      probe: the probe's name.
      observations: the possible observations, equally likely; `K` numbers within [-1, 1].
      rewards: `[K][2]`, the reward of each action at each observation.
    """

    probe: str
    observations: tuple[float, ...]
    rewards: tuple[tuple[float, float], ...]

    @property
    def name(self) -> str:
        return f"probe:{self.probe}"

    def reset(self, key: jax.Array) -> TimeStep:
        shown = jax.random.randint(key, (), 0, len(self.observations))
        return first_step(shown, self._observe(shown))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        return TimeStep(
            state=state,
            obs=self._observe(state),
            reward=jnp.asarray(self.rewards, jnp.float32)[state, action],
            terminated=jnp.ones((), bool),
            truncated=jnp.zeros((), bool),
        )

    def expected(self, discount: float) -> tuple[Expected, ...]:
        """Return the known values, which do not depend on the discount in one step."""
        return tuple(
            Expected((obs,), max(pays), None if pays[0] == pays[1] else pays.index(max(pays)))
            for obs, pays in zip(self.observations, self.rewards, strict=True)
        )

    def _observe(self, state: jax.Array) -> jax.Array:
        return jnp.asarray(self.observations, jnp.float32)[state][None]


@dataclass(frozen=True)
class TwoStep(_Specs):
    """Two steps: observations 0 and 1, reward 1 for the second; the value of 0 is the discount."""

    name = "probe:two-step"

    def reset(self, key: jax.Array) -> TimeStep:
        return first_step(jnp.zeros((), jnp.int32), jnp.zeros((1,), jnp.float32))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        last = state == 1
        return TimeStep(
            state=jnp.ones((), jnp.int32),
            obs=jnp.ones((1,), jnp.float32),
            reward=last.astype(jnp.float32),
            terminated=last,
            truncated=jnp.zeros((), bool),
        )

    def expected(self, discount: float) -> tuple[Expected, ...]:
        """Return the known values."""
        return Expected((0.0,), discount, None), Expected((1.0,), 1.0, None)


@dataclass(frozen=True)
class Truncating(_Specs):
    """Reward 1 at every step; truncated after `max_steps` steps, never terminated.

    The observation is always 0. The value is `1 / (1 - discount)`, which requires a bootstrap on
    the successor of the last step.
    """

    max_steps: int = 4

    name = "probe:truncating"

    def __post_init__(self) -> None:
        check_count("max_steps", self.max_steps)

    def reset(self, key: jax.Array) -> TimeStep:
        return first_step(jnp.zeros((), jnp.int32), jnp.zeros((1,), jnp.float32))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        time = state + 1
        return TimeStep(
            state=time,
            obs=jnp.zeros((1,), jnp.float32),
            reward=jnp.ones((), jnp.float32),
            terminated=jnp.zeros((), bool),
            truncated=time >= self.max_steps,
        )

    def expected(self, discount: float) -> tuple[Expected, ...]:
        """Return the known value, for a discount below 1."""
        return (Expected((0.0,), 1.0 / (1.0 - discount), None),)


@dataclass(frozen=True)
class Reach(_Specs):
    """One step: observation -1 or 1, reward `1 - (action - observation)^2`, then termination.

    Actions are within [0, 4], so the best action for -1 is the bound 0, with reward 0.
    """

    name = "probe:reach"
    action_spec = Box((1,), "float32", 0.0, 4.0)

    def reset(self, key: jax.Array) -> TimeStep:
        shown = jax.random.rademacher(key, (1,), jnp.float32)
        return first_step(shown, shown)

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        return TimeStep(
            state=state,
            obs=state,
            reward=1.0 - jnp.square(action - state)[0],
            terminated=jnp.ones((), bool),
            truncated=jnp.zeros((), bool),
        )

    def expected(self, discount: float) -> tuple[Expected, ...]:
        """Return the known values, which do not depend on the discount in one step."""
        return Expected((-1.0,), 0.0, 0.0), Expected((1.0,), 1.0, 1.0)


# The right positions of both dials at observation -1, and at 1.
_DIALS = ((0, 2), (1, 0))


@dataclass(frozen=True)
class TwoDials(_Specs):
    """One step: observation -1 or 1, half a point for each dial set right, then termination.

    The dials have 2 and 3 positions, and the right ones depend on the observation.
    """

    name = "probe:two-dials"
    action_spec = MultiDiscrete((2, 3))

    def reset(self, key: jax.Array) -> TimeStep:
        shown = jax.random.randint(key, (), 0, len(_DIALS))
        return first_step(shown, self._observe(shown))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        right = action == jnp.asarray(_DIALS, jnp.int32)[state]
        return TimeStep(
            state=state,
            obs=self._observe(state),
            reward=jnp.mean(right.astype(jnp.float32)),
            terminated=jnp.ones((), bool),
            truncated=jnp.zeros((), bool),
        )

    def expected(self, discount: float) -> tuple[Expected, ...]:
        """Return the known values, which do not depend on the discount in one step."""
        return Expected((-1.0,), 1.0, _DIALS[0]), Expected((1.0,), 1.0, _DIALS[1])

    def _observe(self, state: jax.Array) -> jax.Array:
        return (2 * state - 1).astype(jnp.float32)[None]


_OTHERS: dict[str, Callable[[], Probe]] = {
    "two-step": TwoStep,
    "reach": Reach,
    "two-dials": TwoDials,
}
