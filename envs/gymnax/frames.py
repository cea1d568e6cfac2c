"""Pictures of gymnax's environments, drawn by gymnax or by Gymnasium."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core.errors import TriglotError, require
from ...core.types import PyTree
from ..gif import without_window


def frames(env: Any, params: Any, states: list[PyTree]) -> Iterator[np.ndarray]:
    """Render each state with gymnax, uint8 `[height, width, 3]`."""
    visualize = require("gymnax.visualize.visualizer", "gymnax")
    if env.name in visualize.vis_gym.SUPPORTED_GYM_ENVS:
        yield from _classic_frames(visualize.vis_gym, env.name, params, states)
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.pyplot import close

    picture = visualize.Visualizer(env, params, states)
    try:
        picture.init()
        if not hasattr(picture, "im"):
            raise TriglotError(f"gymnax cannot render {env.name}.")
        canvas = FigureCanvasAgg(picture.fig)
        for index in range(len(states)):
            picture.update(index)
            canvas.draw()
            yield np.asarray(canvas.buffer_rgba())[..., :3]
    finally:
        close(picture.fig)


def _classic_frames(
    vis_gym: Any, name: str, params: Any, states: list[PyTree]
) -> Iterator[np.ndarray]:
    """Render with Gymnasium; gymnax's own function builds an environment for every frame."""
    without_window()
    require("pygame", "render")
    renderer = vis_gym.gym.make(name, render_mode="rgb_array")
    try:
        renderer.reset()
        vis_gym.set_gym_params(renderer.unwrapped, name, params)
        for state in states:
            renderer.unwrapped.state = vis_gym.get_gym_state(state, name)
            renderer.unwrapped.last_u = getattr(state, "last_u", None)  # Pendulum's arrow
            yield renderer.render()
    finally:
        renderer.close()
