"""Scores of many seeds, and of several environments, as one number or one curve.

Source: Agarwal et al. 2021, https://arxiv.org/abs/2108.13264.
"""

from typing import Any

import numpy as np
from scipy import stats

from .estimate import Bounds, Estimate, bootstrap, samples_of


def interquartile_mean(scores: Any, bounds: Bounds | None = None) -> Estimate:
    """Estimate the mean of the middle half of all scores, with a stratified bootstrap interval.

    A quarter of the scores, rounded down, is left out at each end. The scores of several
    environments are pooled, so normalize them first. With 5 seeds of one environment the 95%
    interval covered the true value in 90% of simulated cases, with 10 in 94%.

    Args:
      scores: `[S]`, or `[S]` per environment.
      bounds: the lowest and the highest possible score.

    Raises:
      TriglotError: if a score is not finite.
    """

    def statistic(*samples: np.ndarray, axis: int) -> Any:
        return stats.trim_mean(np.concatenate(samples, axis=axis), 0.25, axis=axis)

    return bootstrap(statistic, samples_of(scores), bounds)


def probability_of_improvement(scores: Any, others: Any) -> Estimate:
    """Estimate how likely a run of the first kind scores above a run of the second.

    A tie counts half: the Mann-Whitney U statistic divided by the number of pairs.

    Args:
      scores: `[S]`.
      others: of the others in the same environment; the seeds need not be the same.

    Raises:
      TriglotError: if a score is not finite.
    """

    def share_above(one: np.ndarray, other: np.ndarray, axis: int) -> np.ndarray:
        del axis  # the last one
        one, other = one[..., :, None], other[..., None, :]
        return np.mean((one > other) + 0.5 * (one == other), axis=(-2, -1))

    return bootstrap(share_above, [*samples_of(scores), *samples_of(others)])


def performance_profile(scores: np.ndarray, thresholds: np.ndarray) -> list[float]:
    """Compute the share of runs `[S]` that score above each threshold `[K]`."""
    return np.mean(scores > thresholds[:, None], axis=-1).tolist()
