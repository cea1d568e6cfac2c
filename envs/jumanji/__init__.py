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

import functools
from collections.abc import Hashable
from dataclasses import replace
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from ...core.environment import TimeStep, first_step
from ...core.errors import check_known, require, user_error_context
from ...core.specs import Box
from .. import adapting
from ..adapting import Adapted, Adapter, check_options, check_values
from ..adapting.importing import outside_notebook
from ..adapting.options import arguments, kept_arguments
from ..adapting.parts import actions_of
from .maze import MazeGenerator
from .observations import dict_spec, spec_of, to_dict, to_vector, vector_spec

_DOWNLOADS = {"Sokoban-v0": "it downloads its levels in its constructor"}
_KEEPS_ITS_LIMIT = "SearchAndRescue"  # it is part of its task
_NEVER = 2**31 - 1  # steps
_GENERATORS = {"Maze": MazeGenerator}  # instead of jumanji's
# Their reset generates a puzzle, which costs as much as 10 (Maze) to 120 (RubiksCube) steps.
_COSTLY_RESETS = {"Cleaner", "Maze", "Minesweeper", "RubiksCube", "SlidingTilePuzzle"}
# Options of the adapter, with examples.
_OWN = {"observation": None, "use_action_mask": True, "joint_actions": True}


def names() -> list[str]:
    """List the ids that `make` takes without options, including those registered by the user."""
    return sorted(_jumanji().registered_environments() - _DOWNLOADS.keys())


def _jumanji() -> ModuleType:
    with outside_notebook():  # in one, it changes how matplotlib shows figures
        return require("jumanji", "jumanji")


def make(env_id: str, **options: Hashable) -> Adapted:
    """Make one of jumanji's environments.

    An action of several parts (row and column, or one part per agent) is one `Discrete` over all
    combinations, in row-major order, or a `MultiDiscrete`. Rewards of several agents are summed.
    All randomness of a step comes from its key.

    Args:
      env_id: jumanji's id, such as `"Maze-v0"`.
      options: arguments of the environment's constructor, such as `time_limit`, and of its
        generator, such as `num_rows` of Maze; and
        `observation`: `image`, float32 `[H, W, C]`: walls, agent and target of a Maze, the grid of
        Snake; the default of these two. `vector`, float32 `[n]`: the numbers of jumanji's
        observation, without `action_mask` and `step_count`; the default of the others. `dict`:
        jumanji's observation as nested dictionaries.
        `use_action_mask`: whether time steps carry jumanji's mask of allowed actions, if there is
        one; True by default.
        `joint_actions`: False: an action of several parts is a `MultiDiscrete`, where jumanji's
        mask is of each part, as with several agents. True: it is a `Discrete`. None, the default:
        it is a `Discrete` of up to 10,000 combinations.

    Raises:
      MissingExtra: if jumanji is not installed.
      TriglotError: if the id, an option or its value is unknown, a value cannot be hashed, or the
        environment has too many joint actions.
    """
    adapting.check_name("jumanji", env_id, names(), _DOWNLOADS)
    return adapting.adapted("jumanji", env_id, options, _build)


def _library_env(name: str, env_id: str, options: dict[str, Any]) -> Any:
    """Make jumanji's environment from options of its constructor and of its generator."""
    make_library = _jumanji().make
    env = make_library(env_id)
    generator = getattr(env, "generator", getattr(env, "_generator", None))
    make_generator = _GENERATORS.get(type(env).__name__, type(generator))
    of_env = arguments(type(env)) | kept_arguments(type(env), env)
    of_env.pop("viewer", None)
    of_generator, kept = {}, {}
    if generator is not None and "generator" not in options:
        of_generator = arguments(make_generator)
        kept = kept_arguments(make_generator, generator)
    check_options(name, options, [*_OWN, *of_env, *of_generator])
    check_values(name, options, of_env | of_generator | kept)
    shown = f"with {options}" if options else "without options"
    with user_error_context(f"{name} cannot be built {shown}"):
        given = {n: options.pop(n) for n in of_generator if n in options}
        if given or (of_generator and make_generator is not type(generator)):
            options["generator"] = make_generator(**{**kept, **given})
        return make_library(env_id, **options) if options else env


def _build(env_id: str, options: dict[str, Any]) -> Adapter:
    name = f"jumanji:{env_id}"
    check_values(name, options, _OWN)
    observation = options.pop("observation", "default")
    use_action_mask = options.pop("use_action_mask", True)
    joint_actions = options.pop("joint_actions", None)
    env = _library_env(name, env_id, options)
    kind, spec = type(env).__name__, env.observation_spec
    with user_error_context(f"{name} failed when it was reset"):
        returned = jax.eval_shape(env.reset, jax.random.key(0))[1].observation
    mask = getattr(returned, "action_mask", None)
    shapes = env.action_spec.shape, None if mask is None else mask.shape
    actions = actions_of(name, spec_of(env.action_spec), *shapes, joint_actions)
    observations: dict[str, Any] = {  # specs and conversions by name, the default first
        "vector": (vector_spec(spec, returned), functools.partial(to_vector, spec)),
        "dict": (dict_spec(spec, returned), functools.partial(to_dict, spec)),
    }
    if (image := _IMAGES.get(kind)) is not None:
        shape = jax.eval_shape(image, returned).shape
        whole = kind == "Maze"  # the body of a Snake has fractions
        observations = {"image": (Box(shape, "float32", 0.0, 1.0, whole), image), **observations}
    if observation != "default":
        check_known(f"observation of {name}", str(observation), observations)
    obs_spec, convert = observations.get(observation, next(iter(observations.values())))
    # Without its limit, jumanji's LAST marks the task's end only.
    time_limit = None if kind == _KEEPS_ITS_LIMIT else getattr(env, "time_limit", None)
    if time_limit is not None:
        env.time_limit = _NEVER

    def mask_of(step: Any) -> jax.Array | None:
        return actions.mask(step.observation.action_mask) if masked else None

    def reset(key: jax.Array) -> TimeStep:
        state, step = adapting.strong(env.reset(key))
        return first_step(state, convert(step.observation), mask_of(step))

    def step(state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        after = env.step(replace(state, key=key), actions.to_library(action))
        state, step = adapting.strong(after)
        return TimeStep(
            state=state,
            obs=convert(step.observation),
            reward=step.reward.astype(jnp.float32).sum(),
            terminated=step.last(),
            truncated=jnp.array(False) if time_limit is None else state.step_count >= time_limit,
            action_mask=mask_of(step),
        )

    def draw(states: list[Any], path: str) -> None:
        import matplotlib

        # By default matplotlib writes with ffmpeg, or with Pillow and a warning.
        with matplotlib.rc_context({"animation.writer": "pillow"}):
            env.animate([jax.tree.map(jnp.asarray, state) for state in states], 200, path)  # ms

    masked = use_action_mask and mask is not None
    costly = kind in _COSTLY_RESETS
    return Adapter(reset, step, obs_spec, actions.spec, draw, costly_reset=costly)


def _maze_image(obs: Any) -> jax.Array:
    walls = obs.walls.astype(jnp.float32)

    def at(position: Any) -> jax.Array:
        return jnp.zeros_like(walls).at[position.row, position.col].set(1.0)

    return jnp.stack([walls, at(obs.agent_position), at(obs.target_position)], axis=-1)


def _snake_image(obs: Any) -> jax.Array:
    return obs.grid.astype(jnp.float32)


_IMAGES = {"Maze": _maze_image, "Snake": _snake_image}
