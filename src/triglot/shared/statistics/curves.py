"""Learning curves: what stands at each of their points, and one number per curve."""

import numpy as np

from .returns import MIN_SEEDS


def finite_mean(values: np.ndarray) -> np.ndarray:
    """Average the finite values over the last axis; NaN if there are none.

    >>> finite_mean(np.array([[1.0, np.nan, 3.0], [np.nan] * 3])).tolist()
    [2.0, nan]
    """
    finite = np.isfinite(values)
    count, known = finite.sum(axis=-1), np.where(finite, values, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = known.sum(axis=-1) / np.maximum(count, 1)
    if not np.isfinite(mean).all():  # the sum is above the largest number of its type
        shares = known / np.maximum(count, 1)[..., None]
        mean = np.where(np.isfinite(mean), mean, shares.sum(axis=-1))
    return np.where(count > 0, mean, np.nan)


def mean_and_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the mean over seeds at each point, and its 95% interval by Student's t.

    Args:
      values: `[S, P]`; NaN where a seed has no value.

    Returns:
      Mean, lower and upper bound, `[P]` each; the mean is NaN where no seed has a value, the
      bounds where fewer than `MIN_SEEDS` have one.
    """
    from scipy.special import stdtrit  # 0.2 s, which the start of a training does not need

    known = np.isfinite(values)
    count, mean = known.sum(axis=0), finite_mean(values.T)
    squares = np.where(known, values.astype(np.float64) - mean, 0.0) ** 2
    enough = np.where(count < MIN_SEEDS, np.nan, count)
    half = stdtrit(enough - 1, 0.975) * np.sqrt(squares.sum(axis=0) / (enough - 1) / enough)
    return mean, mean - half, mean + half


def forward_filled(curves: np.ndarray) -> np.ndarray:
    """Repeat the last return in updates in which no episode ended; NaN stays before the first.

    Args:
      curves: returns `[..., U]`, NaN where no episode ended.
    """
    places = np.where(np.isnan(curves), 0, np.arange(curves.shape[-1]))
    return np.take_along_axis(curves, np.maximum.accumulate(places, axis=-1), axis=-1)


def area_under_curve(curves: np.ndarray) -> np.ndarray:
    """Average each learning curve over its updates, in the unit of the return.

    In an update in which no episode ended, the last return before it counts; before the first
    episode, the first one, so that all seeds are averaged over the same updates.

    Args:
      curves: returns `[..., U]`, NaN where no episode ended.

    Returns:
      `[...]`; NaN where no episode ended at all.
    """
    curves = np.asarray(curves, np.float64)
    first = np.argmax(~np.isnan(curves), axis=-1)[..., None]
    held = forward_filled(curves)
    first_return = np.take_along_axis(curves, first, axis=-1)
    return np.where(np.isnan(held), first_return, held).mean(axis=-1)
