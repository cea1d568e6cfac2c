"""Pictures; matplotlib is imported when one is drawn."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
DASHES = ((1, 0), (5, 2), (2, 2), (6, 2, 1, 2))
MOST_POINTS = 80


def learning_curves(
    path: Path, curves: Mapping[str, np.ndarray], env_steps: np.ndarray, *, title: str
) -> None:
    """Draw the episode return over training, with the middle half of the seeds as a band.

    Equal curves stay visible: each is thinner than the one below it, and dashed.

    Args:
      path: the PNG to write.
      curves: by label, the mean return of the episodes that ended in each update, `[S, U]`; NaN
        where none did.
      env_steps: environment steps per seed after each update, `[U]`.
      title: stands above the picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(7.2, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    bins = np.array_split(np.arange(len(env_steps)), min(len(env_steps), MOST_POINTS))
    steps = np.array([env_steps[part[-1]] for part in bins])
    for index, (label, values) in enumerate(curves.items()):
        binned = np.stack([_mean(values[:, part]) for part in bins], axis=1)
        seen = np.isfinite(binned).any(axis=0)
        if not seen.any():
            axes.plot([], [], label=f"{label}: no episode ended")
            continue
        low, high = np.nanquantile(binned[:, seen], (0.25, 0.75), axis=0)
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(
            steps[seen],
            np.nanmean(binned[:, seen], axis=0),
            color=colour,
            label=label,
            linewidth=1.4 + 1.5 * (len(curves) - 1 - index),
            dashes=DASHES[index % len(DASHES)],
        )
        if len(values) > 1:
            axes.fill_between(steps[seen], low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("environment steps per seed")
    axes.set_ylabel("return per episode, in training")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    num_seeds = max(len(values) for values in curves.values())
    band = f"mean of {num_seeds} seeds; band: the middle half of them" if num_seeds > 1 else None
    axes.legend(title=band, title_fontsize="small", frameon=False, handlelength=4)
    figure.savefig(path)


def _mean(values: np.ndarray) -> np.ndarray:
    """Average over the last axis what is no NaN; NaN where there is nothing."""
    there = np.isfinite(values)
    count, total = there.sum(axis=-1), np.where(there, values, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
