"""The base of all wrappers, and how to take an environment out of them."""

from dataclasses import dataclass
from typing import TypeVar

import jax

from ..environment import (
    Environment,
    Renderable,
    TimeStep,
    curriculum,
    has_costly_reset,
    initial_progress,
)
from ..errors import TriglotError, shown
from ..hyper import check_config
from ..specs import Spec
from ..types import PyTree

EnvT = TypeVar("EnvT")


@dataclass(frozen=True)
class Wrapper:
    """An environment made of another one: the base of all wrappers.

    A wrapper overrides what it changes: `begin` for starts, `step` and the specs. If it remembers
    something, its states have a field `state`, the inner states; if not, it overrides `inner`. Its
    options are fields, which are checked as those of a `Config`.

    Attributes:
      env: the inner environment.
    """

    env: Environment

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if not isinstance(self.env, Environment):
            name = getattr(self.env, "name", shown(self.env))
            raise TriglotError(
                f"{kind} wraps an environment in JAX, with reset and step; got {name}. One that is "
                "stepped in Python takes the wrappers of its own library, such as Gymnasium's."
            )
        check_config(kind, self)

    @property
    def name(self) -> str:
        return self.env.name

    @property
    def obs_spec(self) -> Spec:
        return self.env.obs_spec

    @property
    def action_spec(self) -> Spec:
        return self.env.action_spec

    @property
    def costly_reset(self) -> bool:
        return has_costly_reset(self.env)

    @property
    def draw_suffix(self) -> str:
        return self._rendered.draw_suffix

    def draw(self, states: PyTree, path: str) -> None:
        """Render states `[T, ...]` to a file, as the inner environment does."""
        self._rendered.draw(self.inner(states), path)

    @property
    def _rendered(self) -> Renderable:
        if not isinstance(self.env, Renderable):
            raise AttributeError(f"{self.name} cannot be rendered")
        return self.env

    def inner(self, states: PyTree) -> PyTree:
        """Take the inner environment's states out of this one's."""
        return states.state

    def begin(self, start: TimeStep) -> TimeStep:
        """Make the first step of an episode out of the inner environment's."""
        return start

    def reset(self, key: jax.Array) -> TimeStep:
        return self.begin(self.env.reset(key))

    def step(self, state: PyTree, action: jax.Array, key: jax.Array) -> TimeStep:
        return self.env.step(state, action, key)

    def initial_progress(self) -> PyTree:
        """See `Curriculum`; None if no environment inside is one."""
        return initial_progress(self.env)

    def update_progress(
        self, progress: PyTree, states: PyTree, returns: jax.Array, done: jax.Array
    ) -> PyTree:
        """See `Curriculum`."""
        return curriculum(self.env).update_progress(progress, self.inner(states), returns, done)

    def reset_by(self, progress: PyTree, key: jax.Array) -> TimeStep:
        """See `Curriculum`."""
        return self.begin(curriculum(self.env).reset_by(progress, key))


@dataclass(frozen=True)
class Stateless(Wrapper):
    """A wrapper that remembers nothing: its states are the inner environment's."""

    def inner(self, states: PyTree) -> PyTree:
        return states


def without_wrappers(
    env: EnvT, states: PyTree = None, kind: type[Wrapper] = Wrapper
) -> tuple[EnvT | Environment, PyTree]:
    """Take an environment and its states out of its wrappers.

    Args:
      env: any environment.
      states: of `env`, with any leading axes; or None.
      kind: stop at the first wrapper that is not of this class.
    """
    inside: EnvT | Environment = env
    while isinstance(inside, kind):
        inside, states = inside.env, None if states is None else inside.inner(states)
    return inside, states
