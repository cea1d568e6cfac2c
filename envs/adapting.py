"""Utilities of the adapters of environment libraries."""

import functools
import math
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..core.environment import TimeStep, first_step
from ..core.errors import TriglotError, UnknownOption, shown, unknown
from ..core.hyper import MAX_COUNT, MAX_FLOAT, check_count, is_integer, is_number
from ..core.specs import Box, Spec
from ..core.types import PyTree, is_key
from .gif import write_gif

Options: TypeAlias = tuple[tuple[str, Hashable], ...]

# Integers with these names count something that must be there: durations, and sizes. Libraries
# allocate arrays of a size, or its square, when they make an environment.
_DURATIONS = re.compile("(.*_)?(length|limit|steps?|steps_in_episode)")
_SIZES = re.compile(
    "(.*_)?(rows|cols|columns|blocks|size|height|width|agents|nodes|cities|items|jobs|machines|ems"
    "|customers|vehicles|searchers|targets|food|joints|actions|bits|urchins|distractor)"
)
MAX_SIZE = 4096


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


def check_name(suite: str, name: str, known: Iterable[str], excluded: Mapping[str, str]) -> None:
    """Reject names that a suite does not have, or that triglot does not support.

    Args:
      suite: the library's name.
      name: of an environment.
      known: the supported names.
      excluded: reasons by unsupported names.

    Raises:
      TriglotError: with the reason, or the nearest names.
    """
    if name in excluded:
        raise TriglotError(f"{suite}'s {name} is not supported: {excluded[name]}.")
    if name not in (names := list(known)):
        raise unknown(f"{suite} environment", name, names)


def check_options(environment: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Reject options that an environment does not have.

    Raises:
      UnknownOption: naming the first unknown option and the nearest known one.

    >>> check_options("gridworld:8x8", ["observations"], ["observation"])
    Traceback (most recent call last):
    triglot.core.errors.UnknownOption: unknown option of gridworld:8x8 'observations'; ...
    """
    known = list(known)
    for name in given:
        if name not in known:
            raise UnknownOption(environment, name, known)


def check_values(environment: str, given: Mapping[str, Any], examples: Mapping[str, Any]) -> None:
    """Reject values of another type than an example, numbers out of range, and counts below 1.

    Args:
      environment: the environment's name, for the message.
      given: values by option.
      examples: a valid value of each option, such as its default; options without one, or whose
        example is neither a truth value, a number nor a string, may have any finite value.

    Raises:
      TriglotError: naming the option and what it takes.

    >>> check_values("gymnax:CartPole-v1", {"gravity": "low"}, {"gravity": 9.8})
    Traceback (most recent call last):
    triglot.core.errors.TriglotError: gravity of gymnax:CartPole-v1 must be a number, got 'low'.
    """
    for name, value in given.items():
        example, what = examples.get(name), f"{name} of {environment}"
        if isinstance(example, bool | str):
            if not isinstance(value, type(example)):
                wanted = "True or False" if isinstance(example, bool) else "a name"
                raise TriglotError(f"{what} must be {wanted}, got {shown(value)}.")
        elif is_integer(example):
            is_size, low = _SIZES.fullmatch(name), 0 if example >= 0 else -MAX_COUNT
            is_count = example > 0 and (is_size or _DURATIONS.fullmatch(name))
            check_count(what, value, 1 if is_count else low, MAX_SIZE if is_size else MAX_COUNT)
        elif is_number(example) and (isinstance(value, bool) or not is_number(value)):
            raise TriglotError(f"{what} must be a number, got {shown(value)}.")
        limit = (
            MAX_FLOAT if all(abs(number) < math.inf for number in _numbers(example)) else math.inf
        )
        if not all(abs(number) <= limit for number in _numbers(value)):
            raise TriglotError(f"{what} must be finite, got {shown(value)}.")


def _numbers(value: Any) -> list[float]:
    """List the numbers of an option: itself, or those in a tuple."""
    return [one for one in (value if isinstance(value, tuple) else (value,)) if is_number(one)]


def unstacked(states: PyTree) -> list[PyTree]:
    """Split states `[T, ...]` into a list of `T`."""
    length = jax.tree.leaves(states)[0].shape[0]
    return [jax.tree.map(lambda leaf, t=t: leaf[t], states) for t in range(length)]


def as_numpy(states: PyTree) -> PyTree:
    """Convert all arrays but keys to NumPy's, which are split faster."""
    return jax.tree.map(lambda leaf: leaf if is_key(leaf) else np.asarray(leaf), states)


def strong(tree: PyTree) -> PyTree:
    """Convert Python numbers to arrays and weak types to strong ones, as a scan's carry needs."""

    def convert(leaf: Any) -> jax.Array:
        if isinstance(leaf, jax.Array) and is_key(leaf):
            return leaf
        return jnp.asarray(leaf, jnp.result_type(leaf))

    return jax.tree.map(convert, tree)


def hashable_options(environment: str, options: Mapping[str, Any]) -> Options:
    """Convert options to sorted pairs, so that equal options give equal environments.

    Args:
      environment: the environment's name, for the message.
      options: values by name.

    Returns:
      `(name, value)` pairs, sorted by name.

    Raises:
      TriglotError: if a value cannot be hashed.
    """
    for name, value in options.items():
        try:
            hash(value)
        except TypeError:
            raise TriglotError(
                f"option {name!r} of {environment} must be a number, a string or a tuple, so that "
                f"the environment can be hashed; got a {type(value).__name__}."
            ) from None
    return tuple(sorted(options.items()))


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
    """

    reset: Callable[[jax.Array], TimeStep]
    step: Callable[[Any, jax.Array, jax.Array], TimeStep]
    obs_spec: Spec
    action_spec: Spec
    draw: Callable[[list[Any], str], None] | None = None
    draw_suffix: str = ".gif"
    costly_reset: bool = False


def gymnax_functions(
    env: Any, params: Any, is_truncated: Callable[[Any], Any]
) -> tuple[Callable[[jax.Array], TimeStep], Callable[[Any, jax.Array, jax.Array], TimeStep]]:
    """Make `reset` and `step` of an environment with gymnax's interface, without its own reset.

    Args:
      env: with `reset_env` and `step_env`, whose `done` is the task's end.
      params: of both.
      is_truncated: whether a state is at the time limit.
    """

    def reset(key: jax.Array) -> TimeStep:
        obs, state = env.reset_env(key, params)
        return first_step(state, obs)

    def step(state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
        truncated = is_truncated(state)
        return TimeStep(
            state=state, obs=obs, reward=reward, terminated=terminated, truncated=truncated
        )

    return reset, step


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
    build: Callable[[str, dict[str, Any]], Adapter] = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.suite}:{self.env_id}"

    @property
    def adapter(self) -> Adapter:
        """What the suite made of its library's environment."""
        return _adapter(self.build, self.env_id, self.options)

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
        if self.adapter.draw is None:
            raise TriglotError(f"{self.suite} cannot render {self.env_id}.")
        with library_promotion():
            self.adapter.draw(unstacked(as_numpy(states)), path)


@functools.cache
def _adapter(
    build: Callable[[str, dict[str, Any]], Adapter], env_id: str, options: Options
) -> Adapter:
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
    options: Mapping[str, Any],
    build: Callable[[str, dict[str, Any]], Adapter],
) -> Adapted:
    """Make an environment, and fail now on a wrong option.

    Raises:
      TriglotError: if an option is unknown, of a wrong type, or cannot be hashed.
    """
    env = Adapted(suite, env_id, hashable_options(f"{suite}:{env_id}", options), build)
    _ = env.adapter
    return env


def changed(environment: str, given: Mapping[str, Any], *defaults: Any) -> list[Any]:
    """Put options into the dataclasses that have fields of these names.

    Args:
      environment: the environment's name, for messages.
      given: values by option.
      defaults: dataclasses, such as a library's parameters of an environment.

    Returns:
      The dataclasses with the values, in the same order.

    Raises:
      TriglotError: if none has such a field, or its value is of another type.
    """
    examples = {f.name: getattr(one, f.name) for one in reversed(defaults) for f in fields(one)}
    check_options(environment, given, examples)
    check_values(environment, given, examples)
    return [
        replace(one, **{f.name: given[f.name] for f in fields(one) if f.name in given})
        for one in defaults
    ]


def planes(grid: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Convert integers `[H, W, len(sizes)]` to float32 planes of 0 and 1, `[H, W, sum(sizes)]`.

    An integer outside of its size has no plane.
    """
    parts = [jax.nn.one_hot(grid[..., i], size) for i, size in enumerate(sizes)]
    return jnp.concatenate(parts, axis=-1)


def planes_spec(shape: tuple[int, ...], sizes: tuple[int, ...]) -> Box:
    """Describe the `planes` of a grid with this shape, `[H, W, ...]`."""
    return Box((*shape[:2], sum(sizes)), "float32", 0.0, 1.0, whole=True)


def without_empty(state: PyTree) -> PyTree:
    """Put None for arrays of size 0, which a checkpoint cannot hold."""
    return jax.tree.map(lambda leaf: leaf if leaf.size else None, state)


def with_empty(shapes: PyTree, state: PyTree) -> PyTree:
    """Undo `without_empty`; `shapes` describes the state as the library has it."""
    return jax.tree.map(
        lambda shape, leaf: jnp.zeros(shape.shape, shape.dtype) if leaf is None else leaf,
        shapes,
        state,
    )


def gif(render: Callable[[Any], Any]) -> Callable[[list[Any], str], None]:
    """Make an `Adapter.draw` of a function from a state to uint8 `[height, width, 3]`."""

    def draw(states: list[Any], path: str) -> None:
        frames = (np.asarray(render(state), np.uint8) for state in states)
        write_gif(path, frames, num_frames=len(states), milliseconds=100)

    return draw


@contextmanager
def unused(*modules: str) -> Iterator[None]:
    """Let a library import modules that it does not need here; they are neither found nor loaded.

    Modules that are imported already stay.
    """
    absent = {name: ModuleType(name) for name in modules if name not in sys.modules}
    for name, module in absent.items():
        sys.modules[name] = module
        above, _, last = name.rpartition(".")
        if above in absent:
            setattr(absent[above], last, module)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
