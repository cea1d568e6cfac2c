"""Pictures; matplotlib is imported when one is drawn."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from ...core.errors import writing
from ..statistics import interval95

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
DASHES = ((1, 0), (5, 2), (2, 2), (6, 2, 1, 2))
MOST_POINTS = 80
# What stands at the axis of a metric; another metric is called by its name.
AXES = {
    "episode_return": "return per episode, in training",
    "episode_length": "steps per episode, in training",
}

Bounds: TypeAlias = tuple[np.ndarray, np.ndarray]


class Curve(NamedTuple):
    """One metric of a training: `env_steps` per seed `[U]`, its `values` `[S, U]`, some NaN."""

    env_steps: np.ndarray
    values: np.ndarray


class Band(NamedTuple):
    """What is shaded around a mean: `bounds` of `[S, P]`, `[P]` each, and how it is called."""

    name: str
    bounds: Callable[[np.ndarray], Bounds]


def _interval(values: np.ndarray) -> Bounds:
    found = [interval95(point[np.isfinite(point)].tolist()) for point in values.T]
    # Where one seed alone has a value there is no interval, and a gap in the band.
    low, high = np.array([bounds or (np.nan, np.nan) for bounds in found]).T
    return low, high


BANDS = {
    "interval": Band("95% interval of the mean", _interval),
    "range": Band("least to greatest", lambda v: (np.nanmin(v, axis=0), np.nanmax(v, axis=0))),
    "half": Band("the middle half of them", lambda v: tuple(np.nanquantile(v, (0.25, 0.75), 0))),
}


def telling(metrics: Mapping[str, np.ndarray]) -> str:
    """Choose what shows a training best: the return, unless every episode earned the same.

    Args:
      metrics: `[S, U]` by name, NaN where no episode ended.

    Returns:
      The metric's name.
    """
    returns = metrics["episode_return"]
    same = len(np.unique(returns[np.isfinite(returns)])) == 1
    return "episode_length" if same else "episode_return"


def learning_curves(
    path: Path,
    curves: Mapping[str, Curve],
    *,
    title: str,
    metric: str = "episode_return",
    band: Band = BANDS["half"],
    updates_per_point: int | None = None,
) -> None:
    """Draw a metric over training, the mean over seeds with a band around it.

    Equal curves stay visible: each is thinner than the one below it, and dashed.

    Args:
      path: the PNG to write.
      curves: by label.
      title: stands above the picture.
      metric: the name of what is drawn, for the vertical axis.
      band: what is shaded where there are several seeds.
      updates_per_point: updates that are averaged to a point; None for as many as leave
        `MOST_POINTS` points.

    Raises:
      CannotWrite: if the disk is full, or the folder is gone or read-only.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(7.2, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for index, (label, curve) in enumerate(curves.items()):
        steps, values = _averaged(curve, updates_per_point)
        seen = np.isfinite(values).any(axis=0)
        if not seen.any():
            axes.plot([], [], label=f"{label}: nothing to show")
            continue
        steps, values = steps[seen], values[:, seen]
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(
            steps,
            np.nanmean(values, axis=0),
            color=colour,
            label=label,
            linewidth=1.4 + min(1.5 * (len(curves) - 1 - index), 4.5),
            dashes=DASHES[index % len(DASHES)],
        )
        if len(values) > 1:
            low, high = band.bounds(values)
            # An interval may be far wider than all values, and would flatten the curves.
            low, high = np.maximum(low, np.nanmin(values)), np.minimum(high, np.nanmax(values))
            axes.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("environment steps per seed")
    axes.set_ylabel(AXES.get(metric, metric.replace("_", " ")))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        title=_legend_title([len(curve.values) for curve in curves.values()], band),
        title_fontsize="small",
        frameon=False,
        handlelength=4,
    )
    with writing(path):
        figure.savefig(path)


def finite_mean(values: np.ndarray) -> np.ndarray:
    """Average over the last axis what is a number; NaN where there is none.

    >>> finite_mean(np.array([[1.0, np.nan, 3.0], [np.nan] * 3])).tolist()
    [2.0, nan]
    """
    there = np.isfinite(values)
    count, total = there.sum(axis=-1), np.where(there, values, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _averaged(curve: Curve, updates_per_point: int | None) -> Curve:
    num_updates = len(curve.env_steps)
    count = -(-num_updates // updates_per_point) if updates_per_point else MOST_POINTS
    bins = np.array_split(np.arange(num_updates), min(num_updates, count))
    return Curve(
        np.array([curve.env_steps[part[-1]] for part in bins]),
        np.stack([finite_mean(curve.values[:, part]) for part in bins], axis=1),
    )


def _legend_title(num_seeds: list[int], band: Band) -> str | None:
    least, most = min(num_seeds), max(num_seeds)
    if most == 1:
        return None
    seeds = f"{most}" if least == most else f"{least} to {most}"
    return f"mean of {seeds} seeds; band: {band.name}"
