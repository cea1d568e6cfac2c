"""A grid world whose optimal values are known in closed form."""

import re
from dataclasses import dataclass
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np

from ..core.environment import TimeStep, first_step
from ..core.errors import TriglotError, shown, unknown
from ..core.hyper import check_count
from ..core.specs import Box, Discrete, Spec
from ..core.wrappers.ends import TimeLimit
from .adapting import check_options
from .gif import write_gif

UP, RIGHT, DOWN, LEFT = range(4)
CELL = 24  # pixels


def names() -> list[str]:
    """List examples of names that `make` takes: any height and width, such as `8x8`."""
    return ["4x4", "8x8", "10x10"]


@overload
def make(name: str, *, max_steps: None = None, **options: Any) -> "GridWorld": ...


@overload
def make(name: str, *, max_steps: int, **options: Any) -> TimeLimit: ...


def make(name: str, *, max_steps: int | None = None, **options: Any) -> "GridWorld | TimeLimit":
    """Make a grid world.

    Args:
      name: height and width, such as `"8x8"`.
      max_steps: of an episode, which is then truncated; None for no limit.
      options: `observation`, as in `GridWorld`.

    Raises:
      TriglotError: if the name is not a size, or an option or its value is unknown.
    """
    check_options(f"gridworld:{name}", options, ["observation", "max_steps"])
    size = re.fullmatch(r"([0-9]{1,10})x([0-9]{1,10})", name)
    if size is None:
        raise TriglotError(
            f"the name of a grid world is its height and width, such as 8x8; got {shown(name)}."
        )
    env = GridWorld(int(size[1]), int(size[2]), **options)
    if max_steps is None:
        return env
    check_count(f"max_steps of {env.name}", max_steps)
    return TimeLimit(env, max_steps)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class GridState:
    """The agent's position, int32 `[]` each, counted from the top left."""

    row: jax.Array
    column: jax.Array


@dataclass(frozen=True)
class GridWorld:
    """Walk from the bottom right cell to the top left one, for a reward of 1 on arrival.

    The actions are 0 up, 1 right, 2 down, 3 left; a move against the border has no effect. Arrival
    terminates the episode; there is no time limit (`make` adds one).

    Attributes:
      height, width: number of rows and columns.
      observation: `index`, the cell's number in row-major order (for tables); or `onehot`, the
        same as a float32 vector `[height * width]` (for multilayer perceptrons).
    """

    height: int = 8
    width: int = 8
    observation: Literal["index", "onehot"] = "index"
    action_spec = Discrete(4)
    draw_suffix = ".gif"
    return_bounds = (0.0, 1.0)

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 1 or self.num_cells < 2:
            raise TriglotError(
                f"a grid world needs at least two cells, got {self.height} x {self.width}."
            )
        check_count(f"the number of cells of {self.name}", self.num_cells)
        if self.observation not in ("index", "onehot"):
            raise unknown("observation of a grid world", str(self.observation), ["index", "onehot"])

    @property
    def name(self) -> str:
        return f"gridworld:{self.height}x{self.width}"

    @property
    def num_cells(self) -> int:
        """The number of cells."""
        return self.height * self.width

    @property
    def obs_spec(self) -> Spec:
        if self.observation == "index":
            return Discrete(self.num_cells)
        return Box((self.num_cells,), "float32", 0.0, 1.0)

    def reset(self, key: jax.Array) -> TimeStep:
        state = GridState(row=jnp.int32(self.height - 1), column=jnp.int32(self.width - 1))
        return first_step(state, self._observe(state))

    def step(self, state: GridState, action: jax.Array, key: jax.Array) -> TimeStep:
        down = (action == DOWN).astype(jnp.int32) - (action == UP).astype(jnp.int32)
        right = (action == RIGHT).astype(jnp.int32) - (action == LEFT).astype(jnp.int32)
        state = GridState(
            row=jnp.clip(state.row + down, 0, self.height - 1),
            column=jnp.clip(state.column + right, 0, self.width - 1),
        )
        arrived = (state.row == 0) & (state.column == 0)
        return TimeStep(
            state=state,
            obs=self._observe(state),
            reward=arrived.astype(jnp.float32),
            terminated=arrived,
            truncated=jnp.zeros((), bool),
        )

    def draw(self, states: GridState, path: str) -> None:
        """Write states `[T]` as an animated GIF: the goal in green, the agent in blue."""
        rows, columns = np.asarray(states.row), np.asarray(states.column)
        frames = (self._frame(*where) for where in zip(rows, columns, strict=True))
        write_gif(path, frames, num_frames=len(rows), milliseconds=200)

    def _frame(self, row: int, column: int) -> np.ndarray:
        image = np.full((self.height * CELL + 1, self.width * CELL + 1, 3), 255, np.uint8)
        image[::CELL] = image[:, ::CELL] = 200
        image[1:CELL, 1:CELL] = (120, 200, 120)
        down, right = np.ogrid[:CELL, :CELL]
        disc = (down - CELL / 2) ** 2 + (right - CELL / 2) ** 2 < (CELL / 3) ** 2
        cell = image[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]
        cell[disc] = (0, 114, 178)
        return image

    def optimal_values(self, discount: float) -> np.ndarray:
        """Compute the value of each cell under an optimal policy, exactly.

        The value at Manhattan distance `d >= 1` from the goal is `discount ** (d - 1)`; the value
        of the goal, a terminal state, is 0.

        Returns:
          float64 `[height, width]`.

        >>> GridWorld(2, 3).optimal_values(0.5).tolist()
        [[0.0, 1.0, 0.5], [1.0, 0.5, 0.25]]
        """
        row, column = np.indices((self.height, self.width))
        distance = row + column
        return np.where(distance == 0, 0.0, float(discount) ** np.maximum(distance - 1, 0))

    def observations(self) -> jax.Array:
        """Return the observation of every cell, in row-major order, `[height * width, ...]`."""
        row, column = jnp.indices((self.height, self.width), jnp.int32).reshape(2, -1)
        return jax.vmap(self._observe)(GridState(row=row, column=column))

    def _observe(self, state: GridState) -> jax.Array:
        index = state.row * self.width + state.column
        if self.observation == "index":
            return index
        return jax.nn.one_hot(index, self.num_cells, dtype=jnp.float32)
