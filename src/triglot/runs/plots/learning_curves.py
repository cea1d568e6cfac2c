"""Plot learning curves; matplotlib is imported on first use."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...shared.pages.axes import literal, over_steps, quiet, save
from ...shared.pages.charts.theme import INK, QUIET, colours
from ...shared.statistics.curves import finite_mean, mean_and_interval
from ...shared.statistics.returns import MIN_SEEDS

DASHES = ((1, 0), (5, 2), (2, 2), (6, 2, 1, 2))
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
    """Plot a metric over training: the mean over seeds.

    Around it is its 95% confidence interval, or below `MIN_SEEDS` seeds a thin line for each. Each
    curve is thinner than the one below it, and dashed, so that equal curves stay visible.

    Args:
      path: the PNG to write.
      curves: by label.
      title: the plot's title.
      metric: the name of the metric, for the vertical axis.
      updates_per_point: updates averaged to one point; None gives at most `MAX_POINTS` points.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    palette = colours(list(curves))
    for index, (label, curve) in enumerate(curves.items()):
        steps, values = averaged(curve, updates_per_point)
        mean, low, high = mean_and_interval(values)
        seen, colour = np.isfinite(mean), palette[label]
        if not seen.any():
            axes.plot([], [], label=literal(f"{label}: no data"))
            continue
        axes.plot(
            steps[seen],
            mean[seen],
            color=colour,
            label=literal(label),
            linewidth=1.4 + min(1.5 * (len(curves) - 1 - index), 4.5),
            dashes=DASHES[index % len(DASHES)],
        )
        if len(values) >= MIN_SEEDS:
            # An interval may be far wider than the values, which would flatten the curves.
            low, high = np.maximum(low, np.nanmin(values)), np.minimum(high, np.nanmax(values))
            around = {"color": colour, "alpha": 0.16, "linewidth": 0}
            axes.fill_between(steps[seen], low[seen], high[seen], **around)
        elif len(values) > 1:
            axes.plot(steps[seen], values[:, seen].T, color=colour, alpha=0.4, linewidth=0.7)
    axes.set_title(literal(title), fontsize="medium", loc="left", color=INK)
    axes.set_ylabel(AXES.get(metric, literal(metric.replace("_", " "))), color=QUIET)
    over_steps(axes, "environment steps of each seed")
    quiet(axes)
    axes.legend(
        title=_legend_title([len(curve.values) for curve in curves.values()]),
        title_fontsize="small",
        frameon=False,
        handlelength=4,
    )
    save(figure, path)


def averaged(curve: Curve, updates_per_point: int | None) -> Curve:
    num_updates = len(curve.env_steps)
    count = -(-num_updates // updates_per_point) if updates_per_point else MAX_POINTS
    bins = np.array_split(np.arange(num_updates), min(num_updates, count))
    return Curve(
        np.array([curve.env_steps[part[-1]] for part in bins]),
        np.stack([finite_mean(curve.values[:, part]) for part in bins], axis=1),
    )


def _legend_title(num_seeds: list[int]) -> str | None:
    low, high = min(num_seeds), max(num_seeds)
    if high == 1:
        return None
    seeds = f"{high}" if low == high else f"{low} to {high}"
    around = [
        "band: 95% confidence interval" if high >= MIN_SEEDS else "",
        "thin lines: single seeds" if any(1 < count < MIN_SEEDS for count in num_seeds) else "",
    ]
    return "; ".join(filter(None, [f"mean of {seeds} seeds", *around]))
