"""`triglot.curves`: learning curves of trainings as a figure of matplotlib."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import TriglotError, check_known, kind_of
from ..core.hyper import check_count
from .plots.learning_curves import Curve, learning_figure
from .result import TrainResult
from .storage.journal import read_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curves(
    runs: "TrainResult | str | Path | Mapping[str, TrainResult | str | Path]",
    *,
    metric: str = "episode_return",
    updates_per_point: int | None = None,
    title: str | None = None,
) -> "Figure":
    """Plot learning curves over environment steps, the mean over seeds of each training.

    Around it is its 95% confidence interval, or below 5 seeds a thin line for each.

    Args:
      runs: the result of a training, or a run directory; or several of them by label.
      metric: the name of a metric, such as `loss`.
      updates_per_point: updates averaged to one point; None gives at most 80 points.
      title: of the figure; None for the names of the algorithms and environments.

    Returns:
      A `matplotlib.figure.Figure`, which a notebook shows as the last line of a cell, and
      `savefig` writes.

    Raises:
      TriglotError: if a training does not have the metric, or a folder is not a run directory.
    """
    if updates_per_point is not None:
        check_count("updates_per_point", updates_per_point)
    by_label = runs if isinstance(runs, Mapping) else {"": runs}
    if not by_label:
        raise TriglotError("curves needs at least one training, got an empty dictionary.")
    learning_curves = {str(label): _curve(run, metric) for label, run in by_label.items()}
    _show_in_notebooks()
    return learning_figure(
        learning_curves,
        title=metric.replace("_", " ") if title is None else title,
        metric=metric,
        updates_per_point=updates_per_point,
    )


def _show_in_notebooks() -> None:
    """Let a notebook show figures, which it does once pyplot has drawn one of its own."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return
    from IPython.core.pylabtools import select_figure_formats
    from matplotlib.figure import Figure

    formatters = shell.display_formatter.formatters.values()
    if not any(
        Figure in formatter.type_printers for formatter in formatters
    ):  # the user's choice stays
        select_figure_formats(shell, {"png"})


def _curve(run: object, metric: str) -> Curve:
    if isinstance(run, TrainResult):
        env_steps, metrics, what = run.env_steps, run.metrics, "the training"
    elif isinstance(run, str | Path):
        env_steps, metrics = read_metrics(Path(run))
        what = str(run)
    else:
        raise TriglotError(
            "curves takes the result of triglot.train or triglot.load_run, a run directory, or "
            f"several of them by label; got {kind_of(run)}."
        )
    check_known(f"metric of {what}", metric, metrics)
    return Curve(env_steps, metrics[metric])
