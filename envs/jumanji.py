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

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from operator import attrgetter
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core.environment import TimeStep
from ..core.errors import check_known, require, user_error_context
from ..core.specs import Box, Dict, Discrete, Leaf, Spec
from ..core.types import EnvState, Obs, PyTree, abstract_key
from ..core.wrappers.observations import flat, flat_spec
from . import adapting
from .adapting import NEVER, Adapted, Adapter, check_values
from .adapting.importing import outside_notebook
from .adapting.mazes import divide
from .adapting.options import arguments, building, checked_options, kept_arguments
from .adapting.parts import actions_of
from .adapting.spaces import as_returned, map_leaves, spec_from_space

_DOWNLOADS = {"Sokoban-v0": "it downloads its levels in its constructor"}
_KEEPS_ITS_LIMIT = "SearchAndRescue"  # it is part of its task
# Their reset generates a puzzle, which costs as much as 10 (Maze) to 120 (RubiksCube) steps.
_COSTLY_RESETS = {"Cleaner", "Maze", "Minesweeper", "RubiksCube", "SlidingTilePuzzle"}
# Options of the adapter, with examples.
_OWN = {"observation": None, "use_action_mask": True, "joint_actions": True}
# Fields excluded from vectors: the mask is a field of TimeStep, and the step count is irrelevant to
# a task whose time limit truncates.
_NOT_IN_VECTOR = ("action_mask", "step_count")


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


class MazeGenerator(NamedTuple):
    """Generate a maze with agent and target, like `RandomGenerator` of jumanji's Maze.

    It takes about a fifth of the time.
    """

    num_rows: int = 10
    num_cols: int = 10

    def __call__(self, key: jax.Array) -> EnvState:
        types = require("jumanji.environments.routing.maze.types", "jumanji")
        state_key, walls_key, places_key = jax.random.split(key, 3)
        walls = divide(walls_key, self.num_rows, self.num_cols)
        free = (~walls).ravel().astype(jnp.float32)
        places = jax.random.choice(places_key, walls.size, (2,), replace=False, p=free)
        agent, target = (types.Position(*jnp.divmod(place, self.num_cols)) for place in places)
        return types.State(
            agent_position=agent,
            target_position=target,
            walls=walls,
            action_mask=None,  # Maze fills it in
            key=state_key,
            step_count=jnp.zeros((), jnp.int32),
        )


_GENERATORS = {"Maze": MazeGenerator}  # instead of jumanji's


def _library_env(name: str, env_id: str, options: dict[str, Any]) -> Any:
    """Make jumanji's environment from options of its constructor and of its generator."""
    make_library = _jumanji().make
    env = make_library(env_id)
    generator = getattr(env, "generator", getattr(env, "_generator", None))
    make_generator = _GENERATORS.get(type(env).__name__, type(generator))
    of_env = arguments(type(env)) | kept_arguments(type(env), env)
    of_env.pop("viewer", None)
    given_whole = generator is None or "generator" in options
    of_generator = {} if given_whole else arguments(make_generator)
    kept = {} if given_whole else kept_arguments(make_generator, generator)
    checked_options(name, options, _OWN | of_env | of_generator | kept)
    with building(name, options):
        generator_options = {n: options.pop(n) for n in of_generator if n in options}
        if generator_options or (of_generator and make_generator is not type(generator)):
            options["generator"] = make_generator(**{**kept, **generator_options})
        return make_library(env_id, **options) if options else env


def spec_of(spec: Any) -> Spec:
    """Convert jumanji's spec of an observation or of an action."""
    return spec_from_space(_jumanji().specs.jumanji_specs_to_gym_spaces(spec))


def _fields(spec: Any, above: str = "") -> Iterator[str]:
    """Name the arrays of an observation in jumanji's order, such as `agent_position.row`."""
    for name, child in spec._specs.items():
        yield from _fields(child, f"{above}{name}.") if child._specs else [above + name]


def _as_dict(spec: Any, returned: PyTree) -> tuple[Spec, Callable[[Obs], Obs]]:
    """Describe observations as nested dictionaries, and make the function that converts them."""
    parts = spec_of(spec)

    def described(leaf: Leaf) -> Leaf:
        # Values include -1 (no position yet) and `num_values` (after the last step).
        return Box((), low=-1, high=leaf.num_values) if isinstance(leaf, Discrete) else leaf

    declared = map_leaves(described, parts, into=Dict)
    return as_returned(declared, returned), lambda obs: map_leaves(lambda _, v: v, parts, obs)


def _as_vector(spec: Any) -> tuple[Spec, Callable[[Obs], jax.Array]]:
    """Describe observations as one float32 vector, and make the function that converts them.

    The arrays are in jumanji's order. A `DiscreteArray` becomes one-hot, with zeros for -1.
    """
    fields = [name for name in _fields(spec) if name.rpartition(".")[2] not in _NOT_IN_VECTOR]
    leaves = [spec_of(attrgetter(name)(spec)) for name in fields]
    # As floats, integers without bounds stay so.
    leaves = [replace(leaf, dtype="float32") if isinstance(leaf, Box) else leaf for leaf in leaves]

    def convert(obs: Obs) -> jax.Array:
        arrays = [attrgetter(name)(obs) for name in fields]
        return jnp.concatenate(
            [flat(*leaf_and_array) for leaf_and_array in zip(leaves, arrays, strict=True)]
        )

    # Numbers keep the order, where names are sorted.
    return flat_spec(Dict({f"{i:03}": leaf for i, leaf in enumerate(leaves)})), convert


def _maze_image(obs: Obs) -> jax.Array:
    walls = obs.walls.astype(jnp.float32)
    places = obs.agent_position, obs.target_position
    marks = [jnp.zeros_like(walls).at[place.row, place.col].set(1.0) for place in places]
    return jnp.stack([walls, *marks], axis=-1)


_IMAGES = {"Maze": _maze_image, "Snake": lambda obs: obs.grid.astype(jnp.float32)}


def _build(env_id: str, options: dict[str, Any]) -> Adapter:
    name = f"jumanji:{env_id}"
    adapter_options = {option: options.pop(option) for option in _OWN if option in options}
    check_values(name, adapter_options, _OWN)
    env = _library_env(name, env_id, options)
    kind, spec = type(env).__name__, env.observation_spec
    with user_error_context(f"{name} failed when it was reset"):
        returned = jax.eval_shape(env.reset, abstract_key())[1].observation
    mask_shape = getattr(getattr(returned, "action_mask", None), "shape", None)
    actions = actions_of(
        name, spec_of(env.action_spec), mask_shape, adapter_options.get("joint_actions")
    )
    # Specs and conversions by name, the default first.
    observations = {"vector": _as_vector(spec), "dict": _as_dict(spec, returned)}
    if (image := _IMAGES.get(kind)) is not None:
        shape = jax.eval_shape(image, returned).shape
        whole = kind == "Maze"  # the body of a Snake has fractions
        observations = {"image": (Box(shape, "float32", 0.0, 1.0, whole), image), **observations}
    if (observation := adapter_options.get("observation", "default")) != "default":
        check_known(f"observation of {name}", str(observation), observations)
    obs_spec, convert = observations.get(observation, next(iter(observations.values())))
    # Without its limit, jumanji's LAST marks the task's end only.
    time_limit = None if kind == _KEEPS_ITS_LIMIT else getattr(env, "time_limit", None)
    if time_limit is not None:
        env.time_limit = NEVER
    masked = mask_shape is not None and adapter_options.get("use_action_mask", True)

    def observed(returned: tuple[EnvState, PyTree]) -> TimeStep:
        state, step = adapting.strong(returned)  # some numbers are Python's
        return TimeStep(
            state=state,
            obs=convert(step.observation),
            reward=step.reward.astype(jnp.float32).sum(),
            terminated=step.last(),
            truncated=jnp.array(time_limit is not None and state.step_count >= time_limit),
            action_mask=actions.mask(step.observation.action_mask) if masked else None,
        )

    def reset(key: jax.Array) -> TimeStep:
        return observed(env.reset(key))

    def step(state: EnvState, action: jax.Array, key: jax.Array) -> TimeStep:
        return observed(env.step(replace(state, key=key), actions.to_library(action)))

    def draw(states: list[EnvState], path: str) -> None:
        import matplotlib

        # By default matplotlib writes with ffmpeg, or with Pillow and a warning.
        with matplotlib.rc_context({"animation.writer": "pillow"}):
            env.animate([jax.tree.map(jnp.asarray, state) for state in states], 200, path)  # ms

    return Adapter(reset, step, obs_spec, actions.spec, draw, costly_reset=kind in _COSTLY_RESETS)
