"""Plot a population: returns and hyperparameters of its members; matplotlib is imported on use."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from ...core.errors import printable
from ...shared.pages.charts import drawing
from ...shared.pages.charts.chart import over_steps, write_short_numbers
from ...shared.pages.charts.theme import OTHERS, QUIET
from .learning_curves import AXES, Curve, averaged

RETURN = "episode_return"


def lineage(parents: np.ndarray, member: int) -> np.ndarray:
    """Trace which member held the ancestor of a member, int `[U]`.

    Args:
      parents: `[P, U]`: whom each member copied after each update; itself, if none.
      member: at the end.

    >>> lineage(np.array([[0, 0, 0], [1, 0, 1]]), 1).tolist()
    [0, 0, 1]
    """
    held = np.empty(parents.shape[1], int)
    for update in range(parents.shape[1] - 1, -1, -1):
        held[update] = member = int(parents[member, update])
    return held


@drawing.themed()
def draw_population(
    path: Path,
    env_steps: np.ndarray,
    metrics: Mapping[str, np.ndarray],
    held: np.ndarray,
    title: str,
) -> None:
    """Plot each metric of every member, thin, with the lineage of one member, thick.

    Args:
      path: the PNG to write.
      env_steps: of each member, `[U]`.
      metrics: `[P, U]` by name; hyperparameters above 0 have a logarithmic axis.
      held: the member that holds the lineage, `[U]`.
      title: the plot's title.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    figure = drawing.new_figure(drawing.FILE, 110 + 140 * len(metrics), drawing.EDGE)
    all_axes: Any = figure.subplots(len(metrics), sharex=True, squeeze=False)[:, 0]
    for axes, (name, values) in zip(all_axes, metrics.items(), strict=True):
        followed = values[held, np.arange(len(held))]
        steps, members = averaged(Curve(env_steps, values), None)
        axes.plot(steps, members.T, color=QUIET, alpha=0.35, linewidth=0.9)
        steps, line = averaged(Curve(env_steps, followed[None]), None)
        axes.plot(steps, line[0], color=OTHERS[0], label="lineage of the best member")
        axes.set_ylabel(fill(AXES.get(name, name.replace("_", " ")), 20))
        if name != RETURN and np.nanmin(values) > 0:
            axes.set_yscale("log")
        write_short_numbers(axes.yaxis)
    all_axes[0].set_title(printable(title), fontsize=15, fontweight="bold", loc="left", pad=10)
    all_axes[0].legend()
    over_steps(all_axes[-1], env_steps[-1], "environment steps of each member")
    drawing.save(path, figure)
