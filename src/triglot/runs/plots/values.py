"""Plot learned values of the grid world; matplotlib is imported on first use."""

from pathlib import Path

import jax
import numpy as np

from ...core.agent import ActionValues, Agent
from ...core.errors import printable
from ...core.families.extension import without_extensions
from ...core.host_environment import AnyEnvironment, HostEnvironment
from ...core.types import AnyAgentState
from ...core.wrappers.base import without_wrappers
from ...core.wrappers.ends import TimeLimit
from ...envs.gridworld import GridWorld
from ...shared.pages.charts import drawing

# By action (up, right, down, left); the vertical axis of the plot points down.
ARROWS = np.array([(0.0, -1.0), (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)])


def draw_values(
    path: Path, agent: Agent, env: AnyEnvironment, agent_states: AnyAgentState, title: str
) -> None:
    """Plot the first seed's action values on the grid world.

    Nothing is written for other environments, and for agents without `action_values`.

    Args:
      path: the PNG to write.
      agent: the algorithm.
      env: the environment.
      agent_states: `[S, ...]`, one entry per seed.
      title: the first line of the title; the second compares the value of the initial state with
        the exact one.
    """
    if isinstance(env, HostEnvironment):
        return
    env, _ = without_wrappers(env, kind=TimeLimit)  # others change what is seen
    state = jax.tree.map(lambda leaf: leaf[0], agent_states)
    agent, state = without_extensions(agent, state)
    if not isinstance(agent, ActionValues) or not isinstance(env, GridWorld):
        return
    q = np.asarray(agent.action_values(state, env.observations()))
    exact = env.optimal_values(float(state.hyper.discount))[-1, -1]
    compared = f"seed 0: Q(start) {q[-1].max():.4f}, optimal {exact:.4f}"
    value_map(path, q, (env.height, env.width), title=f"{title}\n{compared}")


@drawing.themed()
def value_map(path: Path, q: np.ndarray, shape: tuple[int, int], *, title: str) -> None:
    """Plot the maximum value of each cell, with an arrow per greedy action.

    A cell with four arrows was rarely or never visited. The goal, the top left cell, has no arrow,
    because the episode ends there.

    Args:
      path: the PNG to write.
      q: float `[height * width, 4]`, cells in row-major order; actions up, right, down, left.
      shape: `(height, width)`.
      title: the title.
    """
    height, width = shape
    values = q.max(axis=1).reshape(shape)
    figure = drawing.new_figure(130 + 48 * width, 100 + 48 * height, drawing.EDGE)
    axes = figure.add_subplot()
    image = axes.imshow(values, cmap="viridis")
    figure.colorbar(image, label="maximum Q-value")
    x, y, u, v = _arrows(q, width)
    bright = np.asarray(image.norm(values[y, x])) > 0.6
    axes.quiver(
        *(x, y, u, v),
        angles="xy",
        scale_units="xy",
        scale=1.0,
        color=np.where(bright, "black", "white"),
        width=0.05 / width,
    )
    axes.text(0, 0, "goal", ha="center", va="center", color="white", fontsize=10)
    axes.set_xticks(range(width))
    axes.set_yticks(range(height))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title(printable(title, keep="\n"))
    drawing.save(path, figure)


def greedy_actions(q: np.ndarray) -> np.ndarray:
    """Mark the actions of maximum value up to float32 rounding, bool `[cells, 4]`."""
    return np.isclose(q, q.max(axis=1, keepdims=True), rtol=1e-5, atol=0.0)


def _arrows(q: np.ndarray, width: int) -> tuple[np.ndarray, ...]:
    """Compute the arrows' positions and vectors, each 0.38 cells long, from the cell's centre."""
    cell, action = np.nonzero(greedy_actions(q)[1:])
    cell = cell + 1
    u, v = 0.38 * ARROWS[action].T
    return cell % width, cell // width, u, v
