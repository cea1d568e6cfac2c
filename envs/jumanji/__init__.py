"""jumanji's environments, with truncation at time limits and termination at the task's end.

Source: Bonnet et al. (2024), "Jumanji: a Diverse Suite of Scalable Reinforcement Learning
Environments in JAX", https://github.com/instadeepai/jumanji, version 1.1.

jumanji ends most episodes with discount 0, also at a time limit. This adapter distinguishes:

| environment | terminated | truncated, at `time_limit` |
|---|---|---|
| Maze | target reached, or no legal move | yes |
| Snake | illegal move, or the board is full | yes |
| SlidingTilePuzzle, RubiksCube | solved | yes |
| Tetris | illegal or no move | yes |
| PacMan | caught, or all pellets eaten | yes |
| Cleaner | illegal move, or all tiles clean | yes |
| RobotWarehouse | robots collide | yes |
| Connector | each agent is connected or blocked | yes |
| LevelBasedForaging | all food is eaten | yes |
| MMST | every agent's nodes are connected | yes |
| SearchAndRescue | all found, or at the limit, where rewards have decayed to 0 | never |
| MultiCVRP | all served, or out of steps, with the worst-case penalty | never |
| others | at the task's end; they have no time limit | never |

If the task ends in the step of the limit, the episode is terminated.
"""

import builtins
import functools
import inspect
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...core.environment import TimeStep, first_step
from ...core.errors import require, unknown, user_error_context
from ...core.specs import Box, Spec
from ...core.types import PyTree
from .. import adapting
from ..adapting import Options, check_options, check_values
from .maze import MazeGenerator
from .spaces import Actions, actions_of, dict_spec, to_dict, to_vector, vector_spec

_DOWNLOADS = {"Sokoban-v0": "it downloads its levels in its constructor"}
# Its time limit is part of its task.
_KEEPS_ITS_LIMIT = "SearchAndRescue"
# Their reset generates a puzzle, which costs as much as 10 (Maze) to 120 (RubiksCube) steps.
_COSTLY_RESETS = {"Cleaner", "Maze", "Minesweeper", "RubiksCube", "SlidingTilePuzzle"}
_NEVER = 2**31 - 1  # steps
_OWN = ("observation", "use_action_mask", "joint_actions")  # options of the adapter


def names() -> list[str]:
    """List the ids that `make` takes without options, including those registered by the user."""
    return sorted(_registered())


def make(env_id: str, **options: Hashable) -> "Jumanji":
    """Make one of jumanji's environments.

    Args:
      env_id: jumanji's id, such as `"Maze-v0"`.
      options: `observation`, `use_action_mask` and `joint_actions`, as in `Jumanji`; arguments of
        the environment's constructor, such as `time_limit`, and of its generator, such as
        `num_rows` of Maze.

    Raises:
      MissingExtra: if jumanji is not installed.
      TriglotError: if the id, an option or its value is unknown, a value cannot be hashed, or the
        environment has too many joint actions.
    """
    adapting.check_name("jumanji", env_id, _registered(), _DOWNLOADS)
    name = f"jumanji:{env_id}"
    examples = {"time_limit": 1, "use_action_mask": True, "joint_actions": True}
    check_values(name, options, examples)
    own = {n: options.pop(n) for n in _OWN if n in options}
    env = Jumanji(env_id, adapting.hashable_options(name, options), **own)  # pyright: ignore[reportArgumentType]
    observations = env.library.observations  # fails here on a wrong option
    if env.observation not in ("default", *observations):
        raise unknown(f"observation of {name}", str(env.observation), observations)
    return env


@dataclass(frozen=True)
class Jumanji:
    """An environment of jumanji; build it with `make`.

    An action of several parts (row and column, or one part per agent) is one `Discrete` over all
    combinations, in row-major order, or a `MultiDiscrete`. Rewards of several agents are summed.
    All randomness of a step comes from its key.

    Attributes:
      env_id: jumanji's id.
      options: options of `make`, as sorted pairs.
      observation: `image`, float32 `[H, W, C]`: walls, agent and target of a Maze, the grid of
        Snake; the default of these two. `vector`, float32 `[n]`: the numbers of jumanji's
        observation, without `action_mask` and `step_count`; the default of the others. `dict`:
        jumanji's observation as nested dictionaries.
      use_action_mask: whether time steps carry jumanji's mask of allowed actions, if there is one.
      joint_actions: False: an action of several parts is a `MultiDiscrete`, where jumanji's mask is
        of each part, as with several agents. True: it is a `Discrete`. None: it is a `Discrete` of
        up to 10,000 combinations.
    """

    env_id: str
    options: Options = ()
    observation: str = "default"
    use_action_mask: bool = True
    joint_actions: bool | None = None
    draw_suffix = ".gif"

    @property
    def name(self) -> str:
        return f"jumanji:{self.env_id}"

    @property
    def library(self) -> "_Library":
        """jumanji's own environment, and the conversion of its specs."""
        return _library(self.env_id, self.options, self.joint_actions)

    @property
    def obs_spec(self) -> Spec:
        return self._observation.spec

    @property
    def action_spec(self) -> Spec:
        return self.library.actions.spec

    @property
    def costly_reset(self) -> bool:
        """Whether a reset costs about 10 steps or more, so that a pool of starts pays off."""
        return type(self.library.env).__name__ in _COSTLY_RESETS

    def reset(self, key: jax.Array) -> TimeStep:
        library = self.library
        with adapting.library_promotion():
            state, step = library.env.reset(key)
        step = adapting.strong(step)
        return first_step(adapting.strong(state), self._observe(step), self._mask(step))

    def step(self, state: PyTree, action: jax.Array, key: jax.Array) -> TimeStep:
        library = self.library
        with adapting.library_promotion():
            action = library.actions.to_library(action)
            state, step = library.env.step(replace(state, key=key), action)
        state, step = adapting.strong(state), adapting.strong(step)
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
        """Write states `[T, ...]` as an animated GIF; no display is needed."""
        import matplotlib

        env, singles = self.library.env, adapting.unstacked(states)
        # By default matplotlib writes with ffmpeg, or with Pillow and a warning.
        with adapting.library_promotion(), matplotlib.rc_context({"animation.writer": "pillow"}):
            env.animate(singles, 200, path)  # milliseconds of a frame

    @property
    def _observation(self) -> "_Observation":
        observations = self.library.observations
        return observations.get(self.observation, next(iter(observations.values())))

    def _observe(self, step: Any) -> PyTree:
        return self._observation.convert(step.observation)

    def _mask(self, step: Any) -> jax.Array | None:
        if not self.use_action_mask or not hasattr(step.observation, "action_mask"):
            return None
        return self.library.actions.mask(step.observation.action_mask)


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
    """Import jumanji without its change of matplotlib's backend in notebooks."""
    in_ipython = builtins.__dict__.pop("__IPYTHON__", None)
    try:
        with warnings.catch_warnings():
            # tqdm warns about a missing progress bar widget in notebooks.
            warnings.filterwarnings("ignore", message="IProgress not found")
            return require("jumanji", "jumanji")
    finally:
        if in_ipython is not None:
            builtins.__dict__["__IPYTHON__"] = in_ipython


@functools.cache
def _library(env_id: str, options: Options, joint_actions: bool | None = None) -> _Library:
    name = f"jumanji:{env_id}"
    with adapting.construction():
        env = _build(env_id, dict(options))
        spec = env.observation_spec
        with user_error_context(f"{name} failed when it was reset"):
            _, step = jax.eval_shape(env.reset, jax.random.key(0))
        returned = step.observation
        mask = getattr(returned, "action_mask", None)
        mask_shape = None if mask is None else mask.shape
        actions = actions_of(name, env.action_spec, mask_shape, joint_actions)
    observations = {}
    if (image := _IMAGES.get(type(env).__name__)) is not None:
        shape = jax.eval_shape(image, returned).shape
        whole = type(env).__name__ == "Maze"  # the body of a Snake has fractions
        observations["image"] = _Observation(Box(shape, "float32", 0.0, 1.0, whole), image)
    vector, nested = functools.partial(to_vector, spec), functools.partial(to_dict, spec)
    observations["vector"] = _Observation(vector_spec(spec, returned), vector)
    observations["dict"] = _Observation(dict_spec(spec, returned), nested)
    time_limit = getattr(env, "time_limit", None)
    if type(env).__name__ == _KEEPS_ITS_LIMIT:
        time_limit = None
    if time_limit is not None:
        # With its time limit disabled, jumanji's LAST marks the task's end only.
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
    check_values(f"jumanji:{env_id}", options, _examples(env, generator, of_generator))
    shown = f"with {options}" if options else "without options"
    with user_error_context(f"jumanji:{env_id} cannot be built {shown}"):
        given = {n: options.pop(n) for n in of_generator if n in options}
        if "generator" not in options and (given or make_generator is not type(generator)):
            kept = ((n, vars(generator).get(n, vars(generator).get(f"_{n}"))) for n in of_generator)
            given = {**{n: value for n, value in kept if value is not None}, **given}
            options["generator"] = make_generator(**given)
        return make_library(env_id, **options) if options else env


def _examples(env: Any, generator: Any, of_generator: Mapping[str, Any]) -> dict[str, Any]:
    """Collect a value of each option: of the default environment, or by its annotation."""
    examples = {}
    parameters = {**inspect.signature(type(env)).parameters, **of_generator}
    for name, parameter in parameters.items():
        owner = vars(generator if name in of_generator else env)
        kept = owner.get(name, owner.get(f"_{name}"))
        by_type = 1 if parameter.annotation in (int, jnp.int32) else None
        examples[name] = by_type if kept is None else kept
    return examples


def _maze_image(obs: Any) -> jax.Array:
    walls = obs.walls.astype(jnp.float32)

    def at(position: Any) -> jax.Array:
        return jnp.zeros_like(walls).at[position.row, position.col].set(1.0)

    return jnp.stack([walls, at(obs.agent_position), at(obs.target_position)], axis=-1)


def _snake_image(obs: Any) -> jax.Array:
    return obs.grid.astype(jnp.float32)


_IMAGES = {"Maze": _maze_image, "Snake": _snake_image}
_GENERATORS = {"Maze": MazeGenerator}  # instead of jumanji's
