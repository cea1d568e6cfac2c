"""One number per learning curve."""

import numpy as np


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
    known = ~np.isnan(curves)
    places = np.where(known, np.arange(curves.shape[-1]), -1)
    last = np.maximum.accumulate(places, axis=-1)
    first = np.argmax(known, axis=-1)[..., None]
    held = np.take_along_axis(curves, np.where(last < 0, first, last), axis=-1)
    return held.mean(axis=-1)
