"""Plot Elo ratings over training; matplotlib is imported on first use."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...shared.pages.charts import drawing
from ...shared.pages.charts.chart import Axes, Chart, over_steps, reference
from ...shared.pages.charts.theme import Series, colours


class RatedRun(NamedTuple):
    """The ratings of a run's checkpoints, `[C]` each: after `num_steps` steps per seed."""

    label: str
    num_steps: np.ndarray
    elo: np.ndarray
    low: np.ndarray
    high: np.ndarray


def draw_ratings(path: Path, runs: Sequence[RatedRun], *, title: str) -> None:
    """Plot Elo points over environment steps, with their intervals; 0 is the random player.

    Args:
      path: the PNG to write.
      runs: each is a line.
      title: the plot's title.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    palette = colours([run.label for run in runs])

    def draw(axes: Axes) -> None:
        reference(axes, 0.0, "random player")
        for run in runs:
            around = np.stack([run.elo - run.low, run.high - run.elo]).clip(min=0.0)
            look = {"marker": "o", "markersize": 5, "capsize": 3, "linewidth": 2}
            axes.errorbar(run.num_steps, run.elo, around, color=palette[run.label], **look)
        axes.set_ylabel("Elo points above the random player")
        over_steps(axes, max(run.num_steps[-1] for run in runs))

    chart = Chart(
        name="ratings",
        description=title,
        draw=draw,
        series=tuple(
            Series(f"g{index}", run.label, (palette[run.label],)) for index, run in enumerate(runs)
        ),
    )
    drawing.write(path, chart, [title, "bars: 95% intervals"])
