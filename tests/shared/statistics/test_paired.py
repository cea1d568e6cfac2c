"""The equivalence test and the number of seeds it needs, against formulas written by hand."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from triglot.core.errors import TriglotError
from triglot.shared.statistics.paired import (
    POWER,
    _power,
    difference_p_value,
    equivalence,
    holm,
    seeds_needed,
)

RNG = np.random.default_rng(3)
BASE = RNG.normal(300, 100, 12)


def shifted(by: float, spread: float, count: int = 12) -> np.ndarray:
    """Shift the base scores so that the differences have exactly this mean and deviation."""
    noise = RNG.normal(size=count)
    return BASE[:count] + by + spread * (noise - noise.mean()) / noise.std(ddof=1)


@pytest.mark.parametrize(
    ("by", "spread", "level"),
    [
        (0.0, 0.0, "equivalent"),
        (0.0, 10.0, "equivalent"),
        (10.0, 5.0, "equivalent"),  # surely different from 0, and surely within the margin
        (-40.0, 10.0, "different"),
        (40.0, 0.0, "different"),
        (20.0, 20.0, "different"),  # the 95% interval is 7.3 to 32.7
        (0.0, 100.0, "inconclusive"),
        (30.0, 100.0, "inconclusive"),
    ],
)
def test_the_conclusion(by: float, spread: float, level: str) -> None:
    found = equivalence(shifted(by, spread), BASE, margin=20.0)
    assert found.level == level
    assert found.difference.value == pytest.approx(by, abs=1e-9)
    assert (found.seeds_needed is None) == (level != "inconclusive" or abs(by) >= 20)
    assert found.p_value is not None and (found.p_value < 0.05) == (level == "equivalent")
    assert equivalence(BASE, shifted(by, spread), margin=20.0).level == level


def test_the_p_value_is_the_larger_of_two_one_sided_tests() -> None:
    scores = shifted(4.0, 25.0)
    above = stats.ttest_rel(scores + 20, BASE, alternative="greater").pvalue
    below = stats.ttest_rel(scores - 20, BASE, alternative="less").pvalue
    assert equivalence(scores, BASE, margin=20).p_value == pytest.approx(max(above, below))


@pytest.mark.parametrize("margin", np.linspace(8, 40, 17))
def test_equivalent_means_that_the_90_percent_interval_is_within_the_margin(margin: float) -> None:
    scores = shifted(5.0, 30.0)  # the interval is -10.6 to 20.6
    found = stats.ttest_1samp(scores - BASE, 0.0).confidence_interval(0.9)
    within = -margin < found.low and found.high < margin
    assert (equivalence(scores, BASE, margin).level == "equivalent") == within


@pytest.mark.parametrize("count", [1, 2, 4])
def test_few_seeds_are_inconclusive_even_if_equal(count: int) -> None:
    found = equivalence(BASE[:count], BASE[:count], margin=1.0)
    assert (found.level, found.p_value) == ("inconclusive", None)
    assert found.seeds_needed == (None if count == 1 else 5)


def exact_power(centre: float, spread: float, count: int, margin: float, level: float) -> float:
    """Integrate over the standard deviation of the sample, given which the mean is normal."""
    freedom, error = count - 1, spread / math.sqrt(count)
    critical = stats.t.ppf(1 - level, freedom)

    def given(ratio: float) -> float:
        half = margin - critical * error * ratio
        if half <= 0:
            return 0.0
        inside = stats.norm.cdf((half - centre) / error) - stats.norm.cdf((-half - centre) / error)
        density = stats.chi.pdf(ratio * math.sqrt(freedom), freedom) * math.sqrt(freedom)
        return float(inside * density)

    return float(integrate.quad(given, 0, 5, limit=200)[0])


@pytest.mark.parametrize("centre", [0.0, 5.0, -10.0])
@pytest.mark.parametrize("spread", [15.0, 30.0, 80.0])
def test_the_number_of_seeds_is_the_smallest_with_enough_power(
    centre: float, spread: float
) -> None:
    needed = seeds_needed(centre, spread, margin=20.0)
    assert needed is not None
    assert exact_power(centre, spread, needed, 20.0, 0.05) >= POWER - 0.002
    if needed > 5:
        assert exact_power(centre, spread, needed - 1, 20.0, 0.05) < POWER + 0.002


def test_many_seeds_approach_the_normal_formula() -> None:
    # Lakens 2017, table 1 and its formula: (z(0.95) + z(0.9))^2 / d^2 pairs.
    for size in (0.05, 0.1, 0.2):
        expected = (stats.norm.ppf(0.95) + stats.norm.ppf(0.9)) ** 2 / size**2
        assert seeds_needed(0.0, 1.0, margin=size) == pytest.approx(expected, abs=3)


def test_an_unreachable_conclusion_needs_no_number() -> None:
    assert seeds_needed(20.0, 1.0, margin=20.0) is None
    assert seeds_needed(0.0, 1e4, margin=20.0) is None
    assert seeds_needed(0.0, 1e-9, margin=20.0) == 5
    assert 0.999 < _power(0.0, 1e-9, 5, 20.0) <= 1


def test_pairs_need_the_same_seeds() -> None:
    with pytest.raises(TriglotError, match=r"got 12 and 11 seeds"):
        equivalence(BASE, BASE[1:], margin=1.0)


def test_the_p_value_of_no_difference_is_that_of_the_paired_t_test() -> None:
    scores = shifted(40.0, 25.0)
    assert difference_p_value(scores, BASE) == pytest.approx(stats.ttest_rel(scores, BASE).pvalue)
    assert difference_p_value(BASE, BASE) == 1.0
    assert difference_p_value(np.arange(6.0) + 3, np.arange(6.0)) == 0.0
    assert difference_p_value(BASE[:4], BASE[:4]) is None


def test_a_corrected_p_value_decides_about_different_only() -> None:
    scores = shifted(40.0, 20.0)
    assert equivalence(scores, BASE, margin=20.0).level == "different"
    assert equivalence(scores, BASE, margin=20.0, corrected=0.06).level == "inconclusive"
    assert equivalence(shifted(0.0, 10.0), BASE, margin=20.0, corrected=1.0).level == "equivalent"


def test_holm_s_correction() -> None:
    # By hand: 0.01 x 4; 0.013 x 3 = 0.039 is raised to 0.04; 0.03 x 2; 0.5 x 1.
    np.testing.assert_allclose(holm([0.03, 0.01, 0.5, 0.013]), [0.06, 0.04, 0.5, 0.04])
    np.testing.assert_allclose(holm([0.6, 0.7]), [1.0, 1.0])
    assert holm([]).shape == (0,) and holm([0.2]) == 0.2


def p_values_of_pairs(means: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Simulate the p-values `[count, 6]` of the pairs of 4 libraries of 10 seeds each."""
    seeds = rng.normal(size=(count, 1, 10))  # what libraries share with equal seeds
    scores = means[:, None] + seeds + rng.normal(size=(count, 4, 10))
    first, second = np.triu_indices(4, 1)
    return np.asarray(stats.ttest_rel(scores[:, first], scores[:, second], axis=-1).pvalue)


def test_six_pairs_without_a_difference_give_one_in_5_percent_of_comparisons() -> None:
    p_values = p_values_of_pairs(np.zeros(4), 6000, np.random.default_rng(0))
    assert np.mean(np.any(p_values < 0.05, -1)) > 0.15, "without correction"
    assert np.mean(np.any(holm(p_values) < 0.05, -1)) < 0.056


def test_a_large_difference_is_found_among_six_pairs() -> None:
    means = np.array([0.0, 0.0, 0.0, 3.0])
    found = holm(p_values_of_pairs(means, 1000, np.random.default_rng(1))) < 0.05
    differs = np.array([False, False, True, False, True, True])
    assert np.mean(found[:, differs]) > 0.95
    assert np.mean(np.any(found[:, ~differs], -1)) < 0.065, "the true nulls among others"
