"""Elo ratings by maximum likelihood, with intervals by the bootstrap over games.

Source: Bradley and Terry (1952), "Rank Analysis of Incomplete Block Designs",
https://doi.org/10.2307/2334029: player i beats player j with probability 1 / (1 + exp(r_j - r_i)).
A draw counts as half a win of both. Ratings are on Elo's scale, where 400 points are odds of 10.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit

SCALE = 400.0 / math.log(10.0)  # Elo points of a rating's unit, the logarithm of the odds
RESAMPLES = 1000
# One drawn game more in each pair, as in Coulom's BayesElo (2005), keeps the ratings finite where a
# player has won all games.
PRIOR_DRAWS = 1.0
MAX_STEPS, LARGEST_STEP, ENOUGH = 100, 2.0, 1e-9  # of Newton's method


class Ratings(NamedTuple):
    """Elo points `[P]` above the anchor, with the bounds of their 95% intervals."""

    elo: np.ndarray
    low: np.ndarray
    high: np.ndarray


def rate(
    results: np.ndarray,
    *,
    anchor: int = 0,
    prior_draws: float = PRIOR_DRAWS,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Ratings:
    """Rate players by the games between them.

    Args:
      results: int `[P, P, 3]`, the games that player i won, drew and lost against j; read where
        i < j.
      anchor: the player whose rating is 0.
      prior_draws: drawn games that each pair is given besides.
      resamples: bootstrap samples of the games of each pair.
      seed: random seed of the samples.
    """
    one, other = np.triu_indices(len(results), 1)
    played = results[one, other]
    counts = played.sum(axis=1)
    random = np.random.default_rng(seed)
    shares = played / np.maximum(counts, 1)[:, None]
    drawn = random.multinomial(counts, shares, size=(resamples, len(counts)))
    scores = np.zeros((1 + resamples, len(results), len(results)))
    for index, games in enumerate(np.concatenate([played[None], drawn])):
        half = (games[:, 1] + prior_draws) / 2
        scores[index, one, other] = games[:, 0] + half
        scores[index, other, one] = games[:, 2] + half
    elo = fit(scores, anchor)
    low, high = np.percentile(elo[1:], [2.5, 97.5], axis=0)
    return Ratings(elo[0], low, high)


def fit(scores: np.ndarray, anchor: int = 0) -> np.ndarray:
    """Find the ratings of highest likelihood by Newton's method.

    Args:
      scores: float `[..., P, P]`, the wins of player i against j, and half of their draws.
      anchor: the player whose rating is 0.

    Returns:
      Elo points, float `[..., P]`. The likelihood has no maximum where some players have won all
      games against the others: add a drawn game to each pair, as `rate` does.

    >>> fit(np.array([[0.0, 1.0], [3.0, 0.0]])).round(1)  # odds of 3
    array([  0. , 190.8])
    """
    games = scores + np.swapaxes(scores, -1, -2)
    ratings = np.zeros(scores.shape[:-1])
    free = np.delete(np.arange(scores.shape[-1]), anchor)
    for _ in range(MAX_STEPS):
        win = expit(ratings[..., :, None] - ratings[..., None, :])
        gradient = (scores - games * win).sum(axis=-1)[..., free]
        weights = games * win * (1 - win)
        information = weights.sum(axis=-1)[..., None] * np.eye(scores.shape[-1]) - weights
        information = information[..., free[:, None], free]
        step = np.linalg.solve(information, gradient[..., None])[..., 0]
        largest = np.abs(step).max(axis=-1, keepdims=True)
        ratings[..., free] += step * (LARGEST_STEP / np.maximum(largest, LARGEST_STEP))
        if largest.max() < ENOUGH:
            break
    return SCALE * ratings
