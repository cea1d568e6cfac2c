"""jumanji: its environments, with time limits told apart from ends of the task.

Source: Bonnet et al. (2024), "Jumanji: a Diverse Suite of Scalable Reinforcement Learning
Environments in JAX", https://github.com/instadeepai/jumanji, version 1.1.

jumanji says of most episodes only that they ended (discount 0), be it by their time limit. Here:

| environment | terminated | truncated, at `time_limit` |
|---|---|---|
| Maze | target reached, or no way to go | yes |
| Snake | illegal move, or the board is full | yes |
| SlidingTilePuzzle, RubiksCube | solved | yes |
| Tetris | illegal or no move | yes |
| PacMan | caught, or no pellet left | yes |
| Cleaner | illegal move, or all is clean | yes |
| RobotWarehouse | robots collide | yes |
| Connector | each agent is connected or blocked | yes |
| LevelBasedForaging | all food is eaten | yes |
| MMST | every agent's nodes are connected | yes |
| SearchAndRescue | all found; or at the limit, towards which each reward falls to 0 | never |
| MultiCVRP | all served; or out of steps, which costs the worst that could follow | never |
| the others | at the task's end; they have no limit | never |

Where the task ends at the limit itself, it is terminated.
"""

import builtins
import functools
import inspect
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from ..core.environment import TimeStep, first_step
from ..core.errors import TriglotError, require, unknown, user_error_context
from ..core.specs import Box, Spec
from . import check_options
from .foreign import Options, hashable, library_promotion, strong
from .jumanji_maze import MazeGenerator
from .jumanji_spaces import Actions, actions_of, dict_spec, to_dict, to_vector, vector_spec

PyTree: TypeAlias = Any

_DOWNLOADS = {"Sokoban-v0": "it downloads its levels when it is made"}
# Left out of `names` too: their joint actions are too many unless options make them smaller.
_TOO_LARGE = {"Connector-v3", "JobShop-v0", "MMST-v0"}
# Its time limit is a part of its task.
_KEEPS_ITS_LIMIT = "SearchAndRescue"
# They draw a maze, lay mines or scramble: some 10 (Maze) to 120 steps' time (RubiksCube).
_COSTLY_RESETS = {"Cleaner", "Maze", "Minesweeper", "RubiksCube", "SlidingTilePuzzle"}
_NEVER = 2**31 - 1  # steps
_OWN = ("observation", "use_action_mask")  # options that are not jumanji's


def names() -> list[str]:
    """List the ids that `make` takes without options, those registered by the user included."""
    return sorted(_registered() - _TOO_LARGE)


def make(env_id: str, **options: Hashable) -> "Jumanji":
    """Make one of jumanji's environments.

    Args:
      env_id: the id that jumanji knows it by, e.g. `"Maze-v0"`.
      options: `observation` and `use_action_mask`, as in `Jumanji`; and what departs from the
        environment's defaults: arguments of its constructor, such as `time_limit`, and of its
        generator, such as `num_rows` of Maze.

    Raises:
      MissingExtra: if jumanji is not installed.
      TriglotError: if the id, an option or its value is unknown, a value cannot be hashed, or the
        environment has too many joint actions.
    """
    if env_id in _DOWNLOADS:
        raise TriglotError(f"jumanji's {env_id} is not offered: {_DOWNLOADS[env_id]}.")
    if env_id not in (known := _registered()):
        raise unknown("jumanji environment", env_id, known)
    name = f"jumanji:{env_id}"
    limit, use_mask = options.get("time_limit", 1), options.get("use_action_mask", True)
    if not isinstance(limit, int) or limit < 1:
        raise TriglotError(f"time_limit of {name} must be a whole number from 1, got {limit!r}.")
    if not isinstance(use_mask, bool):
        raise TriglotError(f"use_action_mask of {name} must be True or False, got {use_mask!r}.")
    own = {n: options.pop(n) for n in _OWN if n in options}
    env = Jumanji(env_id, hashable(name, options), **own)  # pyright: ignore[reportArgumentType]
    library = _library(env.env_id, env.options)  # so that a wrong option fails here
    if env.observation not in ("default", *library.observations):
        raise unknown(f"observation of {name}", str(env.observation), library.observations)
    return env


@dataclass(frozen=True)
class Jumanji:
    """An environment of jumanji; build it with `make`.

    An action of several parts (row and column, or one part per agent) is one `Discrete` over all
    combinations, in row-major order. Where agents have a reward each, theirs are added up.
    All randomness of a step comes from its key.

    Attributes:
      env_id, options: as given to `make`.
      observation: `image`, float32 `[H, W, C]`: walls, agent and target of a Maze, the grid of
        Snake; the default of these two. `vector`, float32 `[n]`: the numbers of jumanji's
        observation, without `action_mask` and `step_count`; the default of the others. `dict`:
        jumanji's observation as nested dictionaries.
      use_action_mask: whether steps carry the mask of allowed actions, where jumanji gives one.
    """

    env_id: str
    options: Options = ()
    observation: str = "default"
    use_action_mask: bool = True
    draw_suffix = ".gif"

    @property
    def name(self) -> str:
        return f"jumanji:{self.env_id}"

    @property
    def obs_spec(self) -> Spec:
        return self._observation.spec

    @property
    def action_spec(self) -> Spec:
        return _library(self.env_id, self.options).actions.spec

    @property
    def costly_reset(self) -> bool:
        """Tell whether a start costs some 10 steps or more: deal starts from a pool then."""
        return type(_library(self.env_id, self.options).env).__name__ in _COSTLY_RESETS

    def reset(self, key: jax.Array) -> TimeStep:
        library = _library(self.env_id, self.options)
        with library_promotion():
            state, step = library.env.reset(key)
        step = strong(step)
        return first_step(strong(state), self._observe(step), self._mask(step))

    def step(self, state: PyTree, action: jax.Array, key: jax.Array) -> TimeStep:
        library = _library(self.env_id, self.options)
        with library_promotion():
            action = library.actions.to_library(action)
            state, step = library.env.step(replace(state, key=key), action)
        state, step = strong(state), strong(step)
        terminated = step.last()
        truncated = jnp.zeros((), bool)
        if library.time_limit is not None:
            truncated = (state.step_count >= library.time_limit) & ~terminated
        return TimeStep(
            state=state,
            obs=self._observe(step),
            reward=step.reward.astype(jnp.float32).sum(),
            terminated=terminated,
            truncated=truncated,
            action_mask=self._mask(step),
        )

    def draw(self, states: PyTree, path: str) -> None:
        """Write states `[T, ...]` as an animated GIF; see `animate`."""
        animate(self, states, path)

    @property
    def _observation(self) -> "_Observation":
        observations = _library(self.env_id, self.options).observations
        return observations.get(self.observation, next(iter(observations.values())))

    def _observe(self, step: Any) -> PyTree:
        return self._observation.convert(step.observation)

    def _mask(self, step: Any) -> jax.Array | None:
        if not self.use_action_mask or not hasattr(step.observation, "action_mask"):
            return None
        return _library(self.env_id, self.options).actions.joint_mask(step.observation.action_mask)


def animate(env: Jumanji, states: PyTree, path: str, *, interval: int = 200) -> None:
    """Draw an episode as an animated GIF; no display is needed.

    Args:
      env: whose states they are.
      states: `TimeStep.state` at each time, `[T, ...]`.
      path: the file to write.
      interval: milliseconds between two frames.
    """
    import matplotlib

    length = jax.tree.leaves(states)[0].shape[0]
    frames = [jax.tree.map(lambda leaf, t=t: leaf[t], states) for t in range(length)]
    # Jumanji lets matplotlib choose who writes the file: ffmpeg, and else Pillow, with a warning.
    with library_promotion(), matplotlib.rc_context({"animation.writer": "pillow"}):
        _library(env.env_id, env.options).env.animate(frames, interval, str(path))


class _Observation(NamedTuple):
    spec: Spec
    convert: Callable[[Any], PyTree]


class _Library(NamedTuple):
    env: Any  # jumanji's own environment
    actions: Actions
    observations: dict[str, _Observation]  # by name, the default first
    time_limit: int | None


def _registered() -> set[str]:
    return _jumanji().registered_environments() - _DOWNLOADS.keys()


def _jumanji() -> ModuleType:
    """Import jumanji; in a notebook it would change, or fail to change, matplotlib's backend."""
    in_ipython = builtins.__dict__.pop("__IPYTHON__", None)
    try:
        with warnings.catch_warnings():
            # Of a progress bar that nobody has asked for, in a notebook without widgets.
            warnings.filterwarnings("ignore", message="IProgress not found")
            return require("jumanji", "jumanji")
    finally:
        if in_ipython is not None:
            builtins.__dict__["__IPYTHON__"] = in_ipython


@functools.cache
def _library(env_id: str, options: Options) -> _Library:
    name = f"jumanji:{env_id}"
    # The first call may come while a program is traced: constants must not become tracers then.
    with jax.ensure_compile_time_eval(), library_promotion():
        env = _build(env_id, dict(options))
        spec = env.observation_spec
        with user_error_context(f"{name} failed when it was reset"):
            _, step = jax.eval_shape(env.reset, jax.random.key(0))
        returned = step.observation
        mask = getattr(returned, "action_mask", None)
        actions = actions_of(name, env.action_spec, None if mask is None else mask.shape)
    observations = {}
    if (image := _IMAGES.get(type(env).__name__)) is not None:
        shape = jax.eval_shape(image, returned).shape
        observations["image"] = _Observation(Box(shape, "float32", 0.0, 1.0), image)
    observations["vector"] = _Observation(
        vector_spec(spec, returned), functools.partial(to_vector, spec)
    )
    observations["dict"] = _Observation(dict_spec(spec, returned), functools.partial(to_dict, spec))
    time_limit = getattr(env, "time_limit", None)
    if type(env).__name__ == _KEEPS_ITS_LIMIT:
        time_limit = None
    if time_limit is not None:
        # Without a limit of its own, jumanji's LAST says that the task ended.
        env.time_limit = _NEVER
    return _Library(env, actions, observations, time_limit)


def _build(env_id: str, options: dict[str, Any]) -> Any:
    make_library = _jumanji().make
    env = make_library(env_id)
    generator = getattr(env, "generator", getattr(env, "_generator", None))
    make_generator = _GENERATORS.get(type(env).__name__, type(generator))
    of_env = inspect.signature(type(env)).parameters.keys() - {"viewer"}
    of_generator = {}
    if generator is not None and "generator" not in options:
        of_generator = inspect.signature(make_generator).parameters
    check_options(f"jumanji:{env_id}", options, {*_OWN, *of_env, *of_generator})
    asked = f"with {options}" if options else "without options"
    with user_error_context(f"jumanji:{env_id} could not be made {asked}"):
        given = {n: options.pop(n) for n in of_generator if n in options}
        if "generator" not in options and (given or make_generator is not type(generator)):
            kept = ((n, vars(generator).get(n, vars(generator).get(f"_{n}"))) for n in of_generator)
            given = {**{n: value for n, value in kept if value is not None}, **given}
            options["generator"] = make_generator(**given)
        return make_library(env_id, **options) if options else env


def _maze_image(obs: Any) -> jax.Array:
    walls = obs.walls.astype(jnp.float32)

    def at(position: Any) -> jax.Array:
        return jnp.zeros_like(walls).at[position.row, position.col].set(1.0)

    return jnp.stack([walls, at(obs.agent_position), at(obs.target_position)], axis=-1)


def _snake_image(obs: Any) -> jax.Array:
    return obs.grid.astype(jnp.float32)


_IMAGES = {"Maze": _maze_image, "Snake": _snake_image}
_GENERATORS = {"Maze": MazeGenerator}  # instead of jumanji's
