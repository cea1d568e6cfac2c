"""A generator for jumanji's Maze that takes about a fifth of the time of jumanji's own."""

from typing import Any

import jax
import jax.numpy as jnp

from ...core.errors import require
from ...core.hyper import check_count
from ..adapting.mazes import divide


class MazeGenerator:
    """Generate a maze with agent and target, like `RandomGenerator` of jumanji's Maze.

    Raises:
      TriglotError: if a side is shorter than 2.
    """

    def __init__(self, num_rows: int = 10, num_cols: int = 10) -> None:
        for name, size in (("num_rows", num_rows), ("num_cols", num_cols)):
            check_count(f"{name} of a maze", size, 2)
        self.num_rows, self.num_cols = num_rows, num_cols

    def __call__(self, key: jax.Array) -> Any:
        types = require("jumanji.environments.routing.maze.types", "jumanji")
        state_key, walls_key, places_key = jax.random.split(key, 3)
        walls = divide(walls_key, self.num_rows, self.num_cols)
        free = (~walls).ravel().astype(jnp.float32)
        places = jax.random.choice(places_key, walls.size, (2,), replace=False, p=free)
        (agent_row, target_row), (agent_col, target_col) = jnp.divmod(places, self.num_cols)
        return types.State(
            agent_position=types.Position(row=agent_row, col=agent_col),
            target_position=types.Position(row=target_row, col=target_col),
            walls=walls,
            action_mask=None,  # Maze fills it in
            key=state_key,
            step_count=jnp.zeros((), jnp.int32),
        )
