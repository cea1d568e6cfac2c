"""The mean of returns, its interval, and their format: what every command prints."""

import math
import statistics
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

Arrays: TypeAlias = dict[str, np.ndarray]

MIN_SEEDS = 5  # below it there is no interval over seeds


def last_return(metrics: Arrays) -> float | None:
    """Average, over seeds, the return of the last update in which an episode ended."""
    curves = metrics.get("episode_return", np.empty((0, 0)))
    ended = [curve[~np.isnan(curve)] for curve in curves]
    last = [float(values[-1]) for values in ended if len(values)]
    return statistics.fmean(last) if last else None


def interval95(values: Sequence[float]) -> list[float] | None:
    """Compute the 95% confidence interval of the mean, by Student's t; None below two values.

    >>> [round(bound, 2) for bound in interval95([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    """
    if len(values) < 2:
        return None
    from scipy.special import stdtrit  # 0.2 s, which the start of a training does not need

    quantile = float(stdtrit(len(values) - 1, 0.975))
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return [mean - half, mean + half]


def interval95_over_seeds(values: Sequence[float]) -> list[float] | None:
    """Compute `interval95`, or None for fewer than `MIN_SEEDS` seeds."""
    return None if len(values) < MIN_SEEDS else interval95(values)


def format_return(value: float) -> str:
    """Format a return, with more decimals for small ones.

    >>> format_return(0.4981), format_return(-1.5), format_return(499.96)
    ('0.498', '-1.50', '500.0')
    """
    return f"{value:.{3 if abs(value) < 1 else 2 if abs(value) < 10 else 1}f}"
