"""Plot Elo ratings over training; matplotlib is imported on first use."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...shared.pages.axes import literal, over_steps, quiet, save
from ...shared.pages.charts.theme import INK, QUIET, colours


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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    palette = colours([run.label for run in runs])
    axes.axhline(0.0, color=QUIET, linewidth=1.0, linestyle=":", label="random player")
    for run in runs:
        around = np.stack([run.elo - run.low, run.high - run.elo]).clip(min=0.0)
        axes.errorbar(
            run.num_steps,
            run.elo,
            yerr=around,
            color=palette[run.label],
            label=literal(run.label),
            marker="o",
            markersize=3.5,
            capsize=2.0,
            linewidth=1.4,
        )
    axes.set_title(literal(title), fontsize="medium", loc="left", color=INK)
    axes.set_ylabel("Elo points above the random player", color=QUIET)
    over_steps(axes, "environment steps of each seed")
    quiet(axes)
    axes.legend(frameon=False, title="bars: 95% intervals", title_fontsize="small")
    save(figure, path)
