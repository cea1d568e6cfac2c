"""Means, aggregates and their intervals, against formulas written by hand and other libraries."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

from triglot.core.errors import TriglotError
from triglot.shared.statistics.curves import area_under_curve
from triglot.shared.statistics.estimate import (
    Estimate,
    interquartile_mean,
    mean,
    performance_profile,
    probability_of_improvement,
)
from triglot.shared.statistics.paired import paired_difference

NAN = np.nan
RNG = np.random.default_rng(0)
TEN = RNG.normal(100, 20, 10)
THREE_ENVS = [RNG.normal(size=10), RNG.normal(1, 2, size=12), RNG.normal(3, 1, size=8)]
# Darwin's 15 pairs of maize plants, cross- and self-fertilised, in eighths of an inch.
CROSSED = np.array([188, 96, 168, 176, 153, 172, 177, 163, 146, 173, 186, 168, 177, 184, 96])
SELFED = np.array([139, 163, 160, 160, 147, 149, 149, 122, 132, 144, 130, 144, 102, 124, 144])

SINGLE = (mean, interquartile_mean)


def estimates(scores: Any) -> list[Estimate]:
    """Compute every estimate of one array of scores."""
    found = [estimate(scores) for estimate in SINGLE]
    if np.ndim(scores[0]):
        return found
    return [
        *found,
        probability_of_improvement(scores, scores),
        paired_difference(scores, scores),
    ]


@pytest.mark.parametrize("scores", [[3.0], [0.0, 500.0], [1.0, 2.0, 3.0, 4.0], [[1.0] * 9, [2.0]]])
def test_fewer_than_five_seeds_have_no_interval(scores: Any) -> None:
    for estimate in estimates(scores):
        assert (estimate.low, estimate.high) == (None, None)
        assert estimate.count == min(np.size(scores[-1]) if np.ndim(scores[0]) else len(scores), 5)


def test_five_seeds_have_an_interval() -> None:
    for estimate in estimates([1.0, 2.0, 3.0, 4.0, 5.0]):
        assert estimate.low is not None and estimate.high is not None
        assert estimate.low <= estimate.value <= estimate.high and estimate.count == 5


def test_equal_scores_give_a_point_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for estimate in [*estimates([500.0] * 10), *estimates([[1.0] * 6, [2.0] * 6])]:
            assert estimate.low == estimate.value == estimate.high


def test_an_interval_respects_the_bounds_of_the_return() -> None:
    scores = [500.0] * 8 + [20.0, 500.0]
    free, bounded = mean(scores), mean(scores, bounds=(0.0, 500.0))
    assert free.high is not None and free.high > 500
    assert bounded.high == 500 and bounded.low == free.low
    difference = paired_difference([500.0] * 10, [50.0, *[0.0] * 9], bounds=(0.0, 500.0))
    assert difference.high == 500


def test_the_mean_of_one_environment_is_that_of_a_t_test() -> None:
    found, expected = mean(TEN), stats.ttest_1samp(TEN, 0.0).confidence_interval(0.95)
    assert found.value == pytest.approx(TEN.mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_the_mean_over_environments_weighs_them_alike() -> None:
    found = mean(THREE_ENVS)
    assert found.value == pytest.approx(sum(env.mean() for env in THREE_ENVS) / 3)
    assert found.count == 8
    # The mean of two environments is half of a difference, whose interval is Welch's.
    one, other = THREE_ENVS[:2]
    welch = stats.ttest_ind(one, -other, equal_var=False).confidence_interval(0.95)
    two = mean([one, other])
    assert (two.low, two.high) == pytest.approx((welch.low / 2, welch.high / 2))


def test_the_paired_difference_agrees_with_the_published_one() -> None:
    found = paired_difference(CROSSED / 8, SELFED / 8)
    # Fisher, The Design of Experiments, section 17: mean 20.933 and its error 9.746 in eighths of
    # an inch; t is 2.148, and its 5% point with 14 degrees of freedom is 2.145.
    assert found.value == pytest.approx(20.933 / 8, abs=1e-4)
    assert found.low == pytest.approx((20.933 - 2.145 * 9.746) / 8, abs=1e-3)


def test_the_interquartile_mean_is_that_of_the_middle_half() -> None:
    pooled = np.sort(np.concatenate(THREE_ENVS))  # 30 scores; 7 are left out at each end
    found = interquartile_mean(THREE_ENVS)
    assert found.value == pytest.approx(pooled[7:-7].mean())
    assert found.value == pytest.approx(stats.trim_mean(pooled, 0.25))


def test_bootstrap_intervals_agree_with_resampling_by_hand() -> None:
    rng = np.random.default_rng(1)
    means = []
    for _ in range(4000):
        again = [env[rng.integers(0, len(env), len(env))] for env in THREE_ENVS]
        pooled = np.sort(np.concatenate(again))
        means.append(pooled[7:-7].mean())
    found = interquartile_mean(THREE_ENVS)
    low, high = np.quantile(means, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.05)
    # Resampled from the pool instead, an environment's number of scores would vary.
    pool = np.concatenate(THREE_ENVS)
    wide = np.quantile(
        [stats.trim_mean(rng.choice(pool, len(pool)), 0.25) for _ in range(4000)], [0.025, 0.975]
    )
    assert found.low is not None and found.high is not None
    assert found.high - found.low < 0.9 * (wide[1] - wide[0])


def test_the_probability_of_improvement_is_mann_whitneys() -> None:
    one, other = np.round(TEN / 10), np.round(RNG.normal(105, 20, 12) / 10)  # with ties
    u = stats.mannwhitneyu(one, other).statistic
    found = probability_of_improvement(one, other)
    assert found.value == pytest.approx(u / (10 * 12))
    assert found.low is not None and found.high is not None
    assert 0 <= found.low < found.value < found.high <= 1
    assert found.count == 10
    back = probability_of_improvement(other, one)
    assert back.value == pytest.approx(1 - found.value)


def test_a_performance_profile_falls_from_one_to_zero() -> None:
    scores = THREE_ENVS[0]
    found = performance_profile(scores, np.array([-100.0, 0.0, 1.0, 2.0, 100.0]))
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (1.0, 0.0)
    assert found[2] == pytest.approx(sum(score > 1.0 for score in scores) / len(scores))


@pytest.mark.parametrize("estimate", SINGLE)
def test_a_missing_score_is_an_error(estimate: Any) -> None:
    with pytest.raises(TriglotError, match=r"one per seed \[S\], got \[1.0, nan, 2.0, inf"):
        estimate([1.0, NAN, 2.0, np.inf, 3.0])
    with pytest.raises(TriglotError, match=r"got \[nan\]"):
        estimate([[1.0, 2.0], [NAN]])
    with pytest.raises(TriglotError, match=r"got \[\]"):
        estimate([])


@pytest.mark.parametrize(
    ("curve", "area"),
    [
        ([1.0, 2.0, 3.0], 2.0),
        ([NAN, NAN, 2.0, 4.0], 2.5),  # 2 2 2 4
        ([1.0, NAN, NAN, 5.0], 2.0),  # 1 1 1 5
        ([NAN, 3.0, NAN], 3.0),
    ],
)
def test_the_area_under_a_curve_holds_the_last_return(curve: list[float], area: float) -> None:
    assert area_under_curve(np.array([curve, [1.0] * len(curve)])).tolist() == [area, 1.0]


def test_a_curve_without_an_episode_has_no_area() -> None:
    assert np.isnan(area_under_curve(np.full((2, 3), NAN))).all()
