"""Elo ratings: hand-computed likelihoods, draws, the prior and the bootstrap."""

import numpy as np
import pytest

from triglot.runs.rating.elo import fit, rate


def results(*games: tuple[int, int, int, int, int], num_players: int) -> np.ndarray:
    """Build `[P, P, 3]` from (one, other, won, drawn, lost)."""
    found = np.zeros((num_players, num_players, 3), int)
    for one, other, *counts in games:
        found[one, other], found[other, one] = counts, counts[::-1]
    return found


def test_odds_of_ten_are_400_points() -> None:
    scores = np.array([[0.0, 10.0], [100.0, 0.0]])
    np.testing.assert_allclose(fit(scores), [0, 400], atol=1e-6)
    np.testing.assert_allclose(fit(scores, anchor=1), [-400, 0], atol=1e-6)


def test_three_players_at_their_expected_scores() -> None:
    # Strengths 1, 2 and 6: player 1 scores 2/3 against 0, and so on.
    strength = np.array([1.0, 2.0, 6.0])
    scores = 12 * strength[:, None] / (strength[:, None] + strength[None, :])
    np.fill_diagonal(scores, 0)
    np.testing.assert_allclose(fit(scores), 400 * np.log10(strength), atol=1e-6)


def test_a_draw_is_half_a_win() -> None:
    with_draws = results((0, 1, 2, 4, 10), num_players=2)  # 12 points of 16
    found = rate(with_draws, prior_draws=0, resamples=3)
    np.testing.assert_allclose(found.elo, [0, 400 * np.log10(3)], atol=1e-6)


def test_the_prior_keeps_a_clean_sweep_finite() -> None:
    found = rate(results((0, 1, 0, 0, 10), num_players=2), resamples=10)
    # 10.5 points of 11; each resample is the same.
    expected = 400 * np.log10(10.5 / 0.5)
    np.testing.assert_allclose([found.elo[1], found.low[1], found.high[1]], expected, atol=1e-6)


def test_the_bootstrap_agrees_with_the_information() -> None:
    found = rate(results((0, 1, 100, 0, 300), num_players=2), prior_draws=0, resamples=2000)
    # The standard error of the log odds is 1 / sqrt(n p (1 - p)).
    half = 1.96 * 400 / np.log(10) / np.sqrt(400 * 0.25 * 0.75)
    assert found.elo[1] == pytest.approx(400 * np.log10(3), abs=1e-6)
    assert found.high[1] - found.low[1] == pytest.approx(2 * half, rel=0.1)
    assert found.low[0] == found.high[0] == 0  # the anchor
