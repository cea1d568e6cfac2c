"""The lowest and highest possible return of built-in environments, where their rules state it.

Intervals of returns are cut at these bounds. A custom environment may have an attribute
`return_bounds`, a pair of numbers.
"""

import math
from typing import TypeAlias

from ...core.environment import Bounded
from ...core.errors import TriglotError, shown
from ...core.wrappers.base import without_wrappers
from ...core.wrappers.ends import TimeLimit

Bounds: TypeAlias = tuple[float, float]

UNBOUNDED: Bounds = (-math.inf, math.inf)

# By the name of the environment without options, which may change its rules. A reward of 1 per step
# until a time limit, -1 per step until the goal, points that are never taken away, or one reward at
# the end.
BOUNDS: dict[str, Bounds] = {
    "gymnax:CartPole-v1": (0, 500),
    "gymnax:Acrobot-v1": (-500, 0),
    "gymnax:MountainCar-v0": (-200, 0),
    "gymnax:Pendulum-v1": (-math.inf, 0),
    "gymnax:Breakout-MinAtar": (0, math.inf),
    "gymnax:Asterix-MinAtar": (0, math.inf),
    "gymnax:Freeway-MinAtar": (0, math.inf),
    "gymnax:SpaceInvaders-MinAtar": (0, math.inf),
    "gymnax:Catch-bsuite": (-1, 1),
    "gymnax:MemoryChain-bsuite": (-1, 1),
    "gymnasium:CartPole-v1": (0, 500),
    "gymnasium:Acrobot-v1": (-500, 0),
    "gymnasium:MountainCar-v0": (-200, 0),
    "gymnasium:Pendulum-v1": (-math.inf, 0),
    "envpool:CartPole-v1": (0, 500),
    "envpool:Pong-v5": (-21, 21),
    "jumanji:Maze-v0": (0, 1),
    "brax:inverted_pendulum": (0, 1000),
}


def return_bounds(env: object, name: str) -> Bounds:
    """Give the bounds of an environment's return; infinite where they are unknown.

    Args:
      env: the environment.
      name: as on the command line.

    Raises:
      TriglotError: if a custom environment's `return_bounds` is not a pair of increasing numbers.
    """
    env, _ = without_wrappers(env, kind=TimeLimit)  # others change what is returned
    bounds = env.return_bounds if isinstance(env, Bounded) else None
    if bounds is None:
        return BOUNDS.get(name, UNBOUNDED)
    try:
        low, high = map(float, bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not low < high:
        raise TriglotError(
            f"return_bounds of environment {name!r} must be (lowest, highest) return, got "
            f"{shown(bounds)}."
        )
    return low, high
