"""Compare two libraries on the same seeds: the paired difference, and whether it matters."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ...core.errors import TriglotError
from .estimate import Bounds, Estimate, Scores, mean, samples_of
from .returns import MIN_SEEDS

SIGNIFICANCE = 0.05  # level of the tests
POWER = 0.8
MAX_SEEDS = 10_000
SMALLEST = 1e-200  # standard error, where all differences are equal


@dataclass(frozen=True)
class Equivalence:
    """Whether two libraries' scores differ by less than a margin.

    Attributes:
      level: the conclusion; see `equivalence`.
      difference: the mean of the paired differences, with its 95% interval.
      tested: the ends of the interval that decides equivalence, at 90% for tests at 5%: it lies
        within the margin exactly where both one-sided tests reject; None with fewer than 5 seeds.
      p_value: of the two one-sided tests, the larger; None with fewer than 5 seeds.
      seeds_needed: if inconclusive, the number of seeds that would show equivalence with
        probability 0.8 if mean and spread of the differences stayed as they are; None if more than
        10,000, or if the mean is outside of the margin.
    """

    level: Literal["equivalent", "different", "inconclusive"]
    difference: Estimate
    tested: Bounds | None
    p_value: float | None
    seeds_needed: int | None


def paired_difference(scores: Scores, others: Scores, bounds: Bounds | None = None) -> Estimate:
    """Estimate the mean of `scores - others`, seed by seed, with Student's t interval.

    Args:
      scores: `[S]`.
      others: `[S]`, of the same seeds.
      bounds: the lowest and the highest possible score.

    Raises:
      TriglotError: if a score is not finite, or the numbers of seeds differ.
    """
    width = None if bounds is None else bounds[1] - bounds[0]
    return mean(_differences(scores, others), None if width is None else (-width, width))


def difference_p_value(scores: Scores, others: Scores) -> float | None:
    """Test whether the mean paired difference is 0, by the two-sided paired t test.

    Args:
      scores: `[S]`.
      others: `[S]`, of the same seeds.

    Returns:
      The p-value; None with fewer than 5 seeds.

    Raises:
      TriglotError: if a score is not finite, or the numbers of seeds differ.
    """
    sample = _differences(scores, others)
    if len(sample) < MIN_SEEDS:
        return None
    located = _located(sample)
    return float(2 * min(located.cdf(0.0), located.sf(0.0)))


def holm(p_values: ArrayLike) -> np.ndarray:
    """Correct p-values for their number: those below 5 % then have a common level of 5 %.

    Whatever tests are true nulls and however they depend on each other, the probability that any of
    those is rejected is at most the level.

    Args:
      p_values: `[..., M]`, of M tests that are judged together.

    Returns:
      `[..., M]`, the smallest common levels at which each test is rejected.

    Source: Holm 1979, https://www.jstor.org/stable/4615733.
    """
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values, axis=-1)
    scaled = np.take_along_axis(values, order, -1) * np.arange(values.shape[-1], 0, -1)
    adjusted_values = np.empty_like(values)
    adjusted = np.minimum(np.maximum.accumulate(scaled, -1), 1.0)
    np.put_along_axis(adjusted_values, order, adjusted, -1)
    return adjusted_values


def equivalence(
    scores: Scores,
    others: Scores,
    margin: float,
    bounds: Bounds | None = None,
    corrected: float | None = None,
) -> Equivalence:
    """Test whether the mean paired difference is within ±`margin`.

    - *inconclusive* with fewer than 5 seeds, whatever the scores;
    - *equivalent* if two one-sided paired t tests reject both a mean of `-margin` or less and one
      of `margin` or more: the larger of their p-values is below 5 %;
    - *different* if not equivalent, the p-value of no difference is below 5 %, and the 95%
      interval of the mean is not within the margin;
    - *inconclusive* otherwise.

    Where several pairs are judged together, *different* is claimed if any of them differs, so its
    p-value must be `corrected` for their number (`holm`). *Equivalent* is not corrected: each claim
    is about its own pair, and all pairs are equivalent only if every one of them passes its test,
    which is wrong at most as often as one test is (Berger 1982).

    For several environments, pass each seed's normalized score averaged over them.

    Args:
      scores: `[S]`.
      others: `[S]`, of the same seeds.
      margin: positive, in the scores' unit.
      bounds: the lowest and the highest possible score.
      corrected: the p-value of no difference, corrected for the number of pairs; None takes this
        pair's own.

    Raises:
      TriglotError: if a score is not finite, or the numbers of seeds differ.

    Source: Schuirmann 1987, https://doi.org/10.1007/BF01068419; Berger 1982, Technometrics 24 (4),
    on tests that must all be passed.
    """
    sample, difference = _differences(scores, others), paired_difference(scores, others, bounds)
    if len(sample) == 1:
        return Equivalence("inconclusive", difference, None, None, None)
    spread = float(sample.std(ddof=1))
    needed = seeds_needed(difference.value, spread, margin)
    equality_p_value = difference_p_value(scores, others) if corrected is None else corrected
    if difference.low is None or difference.high is None or equality_p_value is None:
        return Equivalence("inconclusive", difference, None, None, needed)
    located = _located(sample)
    p_value = float(max(located.cdf(-margin), located.sf(margin)))
    low, high = map(float, located.interval(1 - 2 * SIGNIFICANCE))
    verdict, needed_then = "inconclusive", needed
    if p_value < SIGNIFICANCE:
        verdict, needed_then = "equivalent", None
    elif equality_p_value < SIGNIFICANCE and max(-difference.low, difference.high) > margin:
        verdict, needed_then = "different", None
    return Equivalence(verdict, difference, (low, high), p_value, needed_then)


def seeds_needed(centre: float, spread: float, margin: float) -> int | None:
    """Find the smallest number of seeds, at least 5, with which equivalence has power 0.8.

    Args:
      centre: the true mean of the paired differences.
      spread: their standard deviation.
      margin: positive.

    Returns:
      None if `centre` is outside of the margin, or more than 10,000 seeds are needed.
    """
    if abs(centre) >= margin:
        return None
    counts = range(MIN_SEEDS, MAX_SEEDS + 1)
    index = bisect_left(counts, POWER, key=lambda count: _power(centre, spread, count, margin))
    return None if index == len(counts) else counts[index]


def _power(centre: float, spread: float, count: int, margin: float) -> float:
    """Approximate the power of the two tests by two noncentral t distributions.

    Source: Phillips 1990, https://doi.org/10.1007/BF01063556.
    """
    if spread == 0:
        return 1.0
    freedom, error = count - 1, spread / math.sqrt(count)
    critical = stats.t.ppf(1 - SIGNIFICANCE, freedom)
    # Beyond 100 the probabilities are 0 and 1, and scipy loses precision.
    above, below = np.clip([(centre + margin) / error, (centre - margin) / error], -100, 100)
    both = stats.nct.cdf(-critical, freedom, below) - stats.nct.cdf(critical, freedom, above)
    return max(0.0, float(both))


def _located(sample: np.ndarray) -> Any:
    """Build Student's t distribution around the mean of a sample, as wide as its standard error."""
    error = float(sample.std(ddof=1)) / math.sqrt(len(sample))
    return stats.t(len(sample) - 1, loc=float(sample.mean()), scale=max(error, SMALLEST))


def _differences(scores: Scores, others: Scores) -> np.ndarray:
    (one,), (other,) = samples_of(scores), samples_of(others)
    if len(one) != len(other):
        raise TriglotError(
            f"paired scores need the same seeds on both sides; got {len(one)} and {len(other)} "
            "seeds."
        )
    return one - other
