"""Lines of the hyperparameters that change over the training."""

from typing import Any

import numpy as np

from ....core.errors import TriglotError
from ....core.records import JSON
from .chart import Axes, Chart, over_steps, stroke
from .theme import ALL, Series

MAX_POINTS = 200
PREFIX = "schedule-"  # of the charts' names


def schedule_charts(result: JSON, prefix: str = PREFIX) -> list[Chart]:
    """Build a plot of each hyperparameter that is a schedule, over environment steps.

    A Python function has no text from which it could be drawn, and is left out.

    Args:
      result: has `hyper`, texts and numbers by name, `num_updates` and `steps_per_update`.
      prefix: of the charts' names.
    """
    num_updates = result["num_updates"]
    updates = np.unique(np.linspace(0, num_updates, min(num_updates + 1, MAX_POINTS)).astype(int))
    charts = []
    for name, text in (result.get("hyper") or {}).items():
        values = _values(text, updates, num_updates, result["steps_per_update"])
        if values is not None:
            steps = updates * result["steps_per_update"]
            charts.append(_chart(prefix + name, name, text, steps, values))
    return charts


def _values(
    text: Any, updates: np.ndarray, num_updates: int, steps_per_update: int
) -> np.ndarray | None:
    if not isinstance(text, str):
        return None
    import jax
    import jax.numpy as jnp

    from ....core.rl.schedules import schedule

    try:
        values_of = schedule(text).over(num_updates)
    except TriglotError:  # another text, such as inf, or the name of a function
        return None
    steps = jnp.asarray(updates * steps_per_update, jnp.float32)
    return np.asarray(jax.vmap(values_of.at)(jnp.asarray(updates, jnp.int32), steps), np.float64)


def _chart(called: str, name: str, text: str, steps: np.ndarray, values: np.ndarray) -> Chart:
    def draw(axes: Axes) -> None:
        stroke(axes, Series("s", name, (ALL,)), steps, values)
        axes.set_ylabel(name)
        over_steps(axes, steps[-1])

    return Chart(
        name=called,
        heading=f"{name} = {text}",
        description=f"{name} against environment steps: {text}.",
        draw=draw,
        heights=(200, 180),
    )
