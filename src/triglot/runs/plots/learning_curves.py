"""Plot learning curves of runs; matplotlib is imported on first use."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...shared.pages.charts import drawing
from ...shared.pages.charts.curves import seeds_chart
from ...shared.pages.charts.theme import PALETTE, Series, colours
from ...shared.statistics.curves import finite_mean
from ...shared.statistics.returns import MIN_SEEDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHES = ((), (9, 3), (3, 3), (9, 3, 3, 3))  # of the first curves in all colours, and of the next
MAX_POINTS = 80
# Axis labels; other metrics are labelled by their name.
AXES = {
    "episode_return": "return per episode, in training",
    "episode_length": "steps per episode, in training",
    "eval_return": "return per greedy episode",
    "eval_return_unseen": "return per greedy episode, unseen levels",
}


class Curve(NamedTuple):
    """One metric of a run: `env_steps` per seed `[U]` and `values` `[S, U]`, which may be NaN."""

    env_steps: np.ndarray
    values: np.ndarray


INFORMATIVE = ("episode_return", "episode_length")
BOTH_RETURNS = "return per episode"  # of training and of evaluations


def most_informative_metric(metrics: Mapping[str, np.ndarray]) -> str:
    """Choose the metric to plot: the return, or the length if all returns are equal.

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
    updates_per_point: int | None = None,
) -> None:
    """Plot a metric over training to a PNG; see `learning_figure`.

    Args:
      path: the PNG to write.
      curves, title, metric, updates_per_point: see `learning_figure`.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    drawing.write(path, *_chart(curves, title, metric, updates_per_point))


def learning_figure(
    curves: Mapping[str, Curve],
    *,
    title: str,
    metric: str = "episode_return",
    updates_per_point: int | None = None,
) -> "Figure":
    """Plot a metric over training: the mean over seeds.

    Around it is its 95% confidence interval, or below `MIN_SEEDS` seeds a thin line for each. Each
    curve is thinner than the equal one below it, so that both stay visible.

    Args:
      curves: by label.
      title: the plot's title.
      metric: the name of the metric, for the vertical axis.
      updates_per_point: updates averaged to one point; None gives at most `MAX_POINTS` points.

    Returns:
      A `matplotlib.figure.Figure`.
    """
    return drawing.figure_of(*_chart(curves, title, metric, updates_per_point))


def _chart(
    curves: Mapping[str, Curve], title: str, metric: str, updates_per_point: int | None
) -> tuple[drawing.Chart, list[str]]:
    palette = colours(list(curves))
    points = [averaged(curve, updates_per_point) for curve in curves.values()]
    known = [values[np.isfinite(values)] for _, values in points]
    drawn = np.concatenate(known)
    chart = seeds_chart(
        "curves",
        [
            Series(
                f"g{index}",
                label if len(values) else f"{label}: no data",
                (palette[label],),
                dashes=DASHES[index // len(PALETTE) % len(DASHES)],
            )
            for index, (label, values) in enumerate(zip(curves, known, strict=True))
        ],
        *zip(*points, strict=True),
        label=AXES.get(metric, metric.replace("_", " ")),
        # An interval may be far wider than the values, which would flatten the curves.
        bounds=(drawn.min(), drawn.max()) if len(drawn) else (None, None),
    )
    return chart, [title, *_meaning([len(curve.values) for curve in curves.values()])]


def averaged(curve: Curve, updates_per_point: int | None) -> Curve:
    num_updates = len(curve.env_steps)
    count = -(-num_updates // updates_per_point) if updates_per_point else MAX_POINTS
    bins = np.array_split(np.arange(num_updates), min(num_updates, count))
    return Curve(
        np.array([curve.env_steps[part[-1]] for part in bins]),
        np.stack([finite_mean(curve.values[:, part]) for part in bins], axis=1),
    )


def _meaning(num_seeds: list[int]) -> list[str]:
    """Say what the lines and bands are, if there are several seeds."""
    low, high = min(num_seeds), max(num_seeds)
    if high == 1:
        return []
    seeds = f"{high}" if low == high else f"{low} to {high}"
    around = [
        "band: 95% confidence interval" if high >= MIN_SEEDS else "",
        "thin lines: single seeds" if any(1 < count < MIN_SEEDS for count in num_seeds) else "",
    ]
    return ["; ".join(filter(None, [f"mean of {seeds} seeds", *around]))]
