"""Estimates with their 95% intervals: means by Student's t, other statistics by the bootstrap.

Means use Student's t: in simulations with 5 normal returns its 95% interval covered the true mean
in 95% of the cases, the percentile bootstrap in 84% (20 returns: 92%); BCa was no better.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ...core.errors import TriglotError
from ...core.records import JSONDict
from .returns import MIN_SEEDS

Samples: TypeAlias = list[np.ndarray]
Bounds: TypeAlias = tuple[float, float]
Scores: TypeAlias = np.ndarray | Sequence[ArrayLike]  # of one environment, or of several

LEVEL = 0.95
RESAMPLES = 5000


@dataclass(frozen=True)
class Estimate:
    """An estimate over seeds, and its 95% confidence interval.

    Attributes:
      value: the estimate.
      low: lower end of the interval; None with fewer than 5 seeds.
      high: upper end of the interval; None with fewer than 5 seeds.
      count: the number of seeds; with several environments, of the one that has the fewest.
    """

    value: float
    low: float | None
    high: float | None
    count: int

    @classmethod
    def within(
        cls, value: float, low: float, high: float, count: int, bounds: Bounds | None = None
    ) -> "Estimate":
        """Create an estimate whose interval contains `value` and does not exceed `bounds`."""
        if bounds is not None:
            low, high = max(low, bounds[0]), min(high, bounds[1])
        return cls(float(value), float(min(low, value)), float(max(high, value)), count)

    def as_json(self) -> JSONDict:
        """Return the fields by name."""
        return asdict(self)


def samples_of(scores: Scores) -> Samples:
    """Split scores by environment.

    Args:
      scores: of one environment `[S]`, or one such array per environment, of any lengths.

    Returns:
      One float64 array `[S]` per environment.

    Raises:
      TriglotError: if there are no scores, an array has another shape, or a score is not finite.
    """
    several = len(scores) > 0 and np.ndim(scores[0]) > 0
    samples = [
        np.asarray(task_scores, np.float64) for task_scores in (scores if several else [scores])
    ]
    for sample in samples:
        if sample.ndim != 1 or not sample.size or not np.isfinite(sample).all():
            raise TriglotError(
                f"expected finite scores, one per seed [S], got {sample.tolist()}: a seed without "
                "a finished episode or with a diverged network has no score; leave it out."
            )
    return samples


def count_of(samples: Samples) -> int:
    """Count the seeds of the environment with the fewest."""
    return min(len(sample) for sample in samples)


def mean(scores: Scores, bounds: Bounds | None = None) -> Estimate:
    """Estimate the mean score: environments weigh the same, whatever their numbers of seeds.

    The interval is Student's t; over several environments, that of a sum of independent means with
    unequal variances.

    Args:
      scores: `[S]`, or `[S]` per environment.
      bounds: the lowest and the highest possible score.

    Raises:
      TriglotError: if a score is not finite.

    Source: Welch 1947, https://doi.org/10.1093/biomet/34.1-2.28.
    """
    samples = samples_of(scores)
    count = count_of(samples)
    value = float(np.mean([sample.mean() for sample in samples]))
    if count < MIN_SEEDS:
        return Estimate(value, None, None, count)
    parts = [sample.var(ddof=1) / len(sample) / len(samples) ** 2 for sample in samples]
    variance = float(sum(parts))
    if variance == 0:
        return Estimate.within(value, value, value, count)
    shares = [(part / variance) ** 2 for part in parts]
    freedom = 1 / sum(x / (len(s) - 1) for x, s in zip(shares, samples, strict=True))
    half = float(stats.t.ppf(0.5 + LEVEL / 2, freedom)) * math.sqrt(variance)
    return Estimate.within(value, value - half, value + half, count, bounds)


def bootstrap(
    statistic: Callable[..., Any], samples: Samples, bounds: Bounds | None = None
) -> Estimate:
    """Estimate a statistic with the percentile interval of the stratified bootstrap.

    Every sample is resampled by itself, so that each environment keeps its number of seeds.

    Args:
      statistic: `statistic(*samples, axis=-1) -> [...]` of samples `[..., S]`.
      samples: one array `[S]` per environment; fewer than 5 seeds give no interval.
      bounds: the lowest and the highest possible value.

    Source: Agarwal et al. 2021, https://arxiv.org/abs/2108.13264, section 4.1.
    """
    value, count = float(statistic(*samples, axis=-1)), count_of(samples)
    if count < MIN_SEEDS:
        return Estimate(value, None, None, count)
    low, high = stats.bootstrap(
        samples,
        statistic,
        n_resamples=RESAMPLES,
        batch=500,  # limits the memory of resamples
        vectorized=True,
        axis=-1,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Estimate.within(value, low, high, count, bounds)


def interquartile_mean(scores: Scores, bounds: Bounds | None = None) -> Estimate:
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


def probability_of_improvement(scores: Scores, others: Scores) -> Estimate:
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
