"""Utilities of the adapters of environment libraries."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from ...core.environment import TimeStep, first_step
from ...core.errors import TriglotError
from ...core.records import Values
from ...core.specs import Box, Spec
from ...core.types import EnvState, Obs, PyTree
from ..gif import write_gif
from .importing import unused
from .options import Options, changed, check_name, check_options, check_values, hashable_options
from .trees import as_numpy, strong, unstacked

__all__ = [
    "AGENT",
    "NEVER",
    "STEPS",
    "Adapted",
    "Adapter",
    "Players",
    "adapted",
    "brax_functions",
    "changed",
    "check_name",
    "check_options",
    "check_values",
    "construction",
    "gif",
    "gymnax_functions",
    "library_promotion",
    "planes",
    "planes_spec",
    "strong",
    "unused",
]

AGENT = 0  # the number of the agent's player in a game of several
NEVER = 2**31 - 1  # steps, of a library's time limit that is not to be reached


@contextmanager
def library_promotion() -> Iterator[None]:
    """Allow a library's code to promote dtypes and ranks.

    JAX reads these settings while tracing, so the user's strict settings hold everywhere else.
    """
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@contextmanager
def construction() -> Iterator[None]:
    """Construct a library's environment, perhaps in the first call of a function that is traced.

    Its constants must not become tracers.
    """
    with jax.ensure_compile_time_eval(), library_promotion():
        yield


class Players(NamedTuple):
    """The players of a game in which the caller moves for every player; see `games.against`.

    Rewards are those of the player number `AGENT`, observations of the player who moves.

    Attributes:
      number: of players.
      moving: gives the number of the player who moves in a state.
      observe: observes a state as the player with a number.
      alternates: whether two players always move in turn.
    """

    number: int
    moving: Callable[[EnvState], jax.Array]
    observe: Callable[[EnvState, int], jax.Array]
    alternates: bool = False


class Adapter(NamedTuple):
    """An environment of a library as pure functions; see `Adapted`.

    Attributes:
      reset: starts an episode from a key.
      step: takes one action, from a state, an action and a key; `Adapted` puts the dtypes right.
      obs_spec: describes what both return.
      action_spec: describes an action.
      draw: writes a list of states to a file; None if the library cannot render.
      draw_suffix: of that file.
      costly_reset: whether a reset costs more than a step; starts are then computed ahead, one per
        episode instead of one per step.
      players: of a game of several players.
    """

    reset: Callable[[jax.Array], TimeStep]
    step: Callable[[EnvState, jax.Array, jax.Array], TimeStep]
    obs_spec: Spec
    action_spec: Spec
    draw: Callable[[list[EnvState], str], None] | None = None
    draw_suffix: str = ".gif"
    costly_reset: bool = False
    players: Players | None = None


def gymnax_functions(
    env: Any, params: PyTree, is_truncated: Callable[[EnvState], jax.Array]
) -> tuple[Callable[[jax.Array], TimeStep], Callable[[EnvState, jax.Array, jax.Array], TimeStep]]:
    """Make `reset` and `step` of an environment with gymnax's interface, without its own reset.

    Args:
      env: with `reset_env` and `step_env`, whose `done` is the task's end.
      params: of both.
      is_truncated: whether a state is at the time limit.
    """

    def reset(key: jax.Array) -> TimeStep:
        obs, state = env.reset_env(key, params)
        return first_step(state, obs)

    def step(state: EnvState, action: jax.Array, key: jax.Array) -> TimeStep:
        obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
        truncated = is_truncated(state)
        return TimeStep(
            state=state, obs=obs, reward=reward, terminated=terminated, truncated=truncated
        )

    return reset, step


STEPS = "triglot_steps"  # key of the step count in `State.info`


def brax_functions(
    env: Any, limit: int, observe: Callable[[EnvState], Obs] = lambda state: state.obs
) -> tuple[Callable[[jax.Array], TimeStep], Callable[[EnvState, jax.Array, jax.Array], TimeStep]]:
    """Make `reset` and `step` of an environment with brax's `State`, truncated at a limit.

    Steps are counted in `info`. If it has a key, `rng`, `step` replaces it by its own.

    Args:
      env: whose `done` is the task's end.
      limit: steps after which an episode is truncated.
      observe: takes the observation out of a state.
    """

    def counted(state: EnvState, steps: jax.Array) -> EnvState:
        # Some numbers are Python's or float64, with another dtype after `step` than after `reset`.
        state = strong(state)
        reward, done = state.reward.astype(jnp.float32), state.done.astype(jnp.float32)
        return state.replace(reward=reward, done=done, info={**state.info, STEPS: steps})

    def reset(key: jax.Array) -> TimeStep:
        state = counted(env.reset(key), jnp.zeros((), jnp.int32))
        return first_step(state, observe(state))

    def step(state: EnvState, action: jax.Array, key: jax.Array) -> TimeStep:
        steps = state.info[STEPS] + 1
        state = jax.tree.map(lambda leaf: leaf, state)  # its dictionaries are mutated
        if "rng" in state.info:
            state.info["rng"] = key
        state = counted(env.step(state, action), steps)
        return TimeStep(
            state=state,
            obs=observe(state),
            reward=state.reward,
            terminated=state.done > 0.5,
            truncated=steps >= limit,
        )

    return reset, step


Build: TypeAlias = Callable[[str, dict[str, Any]], Adapter]
"""A suite's function that makes an environment from its name and options."""


@dataclass(frozen=True)
class Adapted:
    """An environment of a JAX library; build it with a suite's `make`.

    Its library is traced with JAX's usual promotion, an episode that ended is never both terminated
    and truncated, and all that decides what it does is hashable: equal names and options give equal
    environments.

    Attributes:
      suite: the suite's name.
      env_id: the environment's name in the suite.
      options: of `make`, as sorted pairs.
      build: a suite's function that makes the `Adapter` from `env_id` and the options.
    """

    suite: str
    env_id: str
    options: Options
    build: Build = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.suite}:{self.env_id}"

    @property
    def adapter(self) -> Adapter:
        """What the suite made of its library's environment."""
        types = tuple(type(value) for _, value in self.options)
        return _adapter(self.build, self.env_id, self.options, types)

    @property
    def obs_spec(self) -> Spec:
        return self.adapter.obs_spec

    @property
    def action_spec(self) -> Spec:
        return self.adapter.action_spec

    @property
    def costly_reset(self) -> bool:
        return self.adapter.costly_reset

    @property
    def draw_suffix(self) -> str:
        self._require_pictures()
        return self.adapter.draw_suffix

    def reset(self, key: jax.Array) -> TimeStep:
        with library_promotion():
            return _put_right(self.adapter.reset(key))

    def step(self, state: PyTree, action: jax.Array, key: jax.Array) -> TimeStep:
        with library_promotion():
            return _put_right(self.adapter.step(state, action, key))

    def draw(self, states: PyTree, path: str) -> None:
        """Render states `[T, ...]` to a file; no display is needed.

        Raises:
          TriglotError: if the library cannot render this environment.
        """
        draw = self._require_pictures()
        with library_promotion():
            draw(unstacked(as_numpy(states)), path)

    def _require_pictures(self) -> Callable[[list[EnvState], str], None]:
        if self.adapter.draw is None:
            raise TriglotError(
                f"{self.name} cannot be rendered: {self.suite} has no pictures of it."
            )
        return self.adapter.draw


@functools.cache
def _adapter(build: Build, env_id: str, options: Options, types: tuple[type, ...]) -> Adapter:
    del types  # of the options' values: 1 equals True, and may be refused where True is not
    with construction():
        return build(env_id, dict(options))


def _put_right(step: TimeStep) -> TimeStep:
    terminated = jnp.asarray(step.terminated, bool)
    return replace(
        strong(step),
        reward=jnp.asarray(step.reward, jnp.float32),
        terminated=terminated,
        truncated=jnp.asarray(step.truncated, bool) & ~terminated,
    )


def adapted(
    suite: str,
    env_id: str,
    options: Values,
    build: Build,
) -> Adapted:
    """Make an environment, and fail now on a wrong option.

    Raises:
      TriglotError: if an option is unknown, of a wrong type, or cannot be hashed.
    """
    env = Adapted(suite, env_id, hashable_options(f"{suite}:{env_id}", options), build)
    _ = env.adapter
    return env


def planes(grid: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Convert integers `[H, W, len(sizes)]` to float32 planes of 0 and 1, `[H, W, sum(sizes)]`.

    An integer outside of its size has no plane.
    """
    parts = [jax.nn.one_hot(grid[..., i], size) for i, size in enumerate(sizes)]
    return jnp.concatenate(parts, axis=-1)


def planes_spec(shape: tuple[int, ...], sizes: tuple[int, ...]) -> Box:
    """Describe the `planes` of a grid with this shape, `[H, W, ...]`."""
    return Box((*shape[:2], sum(sizes)), "float32", 0.0, 1.0, whole=True)


def gif(render: Callable[[EnvState], ArrayLike]) -> Callable[[list[EnvState], str], None]:
    """Make an `Adapter.draw` of a function from a state to uint8 `[height, width, 3]`."""

    def draw(states: list[EnvState], path: str) -> None:
        frames = (np.asarray(render(state), np.uint8) for state in states)
        write_gif(path, frames, num_frames=len(states), milliseconds=100)

    return draw
