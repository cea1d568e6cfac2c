"""How far two trainings are apart, over updates: parameters, outputs and returns."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..results import Arrays, Record


def divergence(one: Record, other: Record) -> dict[str, Any]:
    """Measure the distance of two trainings wherever both kept a snapshot.

    Returns:
      `updates`, and by update, over all seeds: `params_abs` and `params_rel`, the largest
      difference of a parameter, absolute and relative to the largest entry of its array;
      `outputs_abs`, of an output on the fixed inputs; `return_abs`, of the mean return over seeds
      in training (None before the first episode ended).
    """
    updates = [update for update in one.snapshots if update in other.snapshots]
    pairs = [(one.snapshots[update], other.snapshots[update]) for update in updates]
    returns = [_running_mean(record.metrics) for record in (one, other)]
    return {
        "updates": updates,
        "params_abs": [_largest(a, b, "params/")[0] for a, b in pairs],
        "params_rel": [_largest(a, b, "params/")[1] for a, b in pairs],
        "outputs_abs": [_largest(a, b, "outputs/")[0] for a, b in pairs],
        "return_abs": [_return_distance(returns[0], returns[1], update) for update in updates],
    }


def difference(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Give the largest absolute difference, and that relative to the largest entry of `one`.

    NaN equals NaN; where only one side is finite, both are infinite.
    """
    here, there = np.asarray(one, np.float64), np.asarray(other, np.float64)
    same = (here == there) | (np.isnan(here) & np.isnan(there))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(here - there))
    largest = float(np.where(np.isnan(apart), np.inf, apart).max(initial=0.0))
    scale = float(np.max(np.abs(here), initial=0.0, where=np.isfinite(here)))
    return largest, largest / scale if scale else largest


def _largest(one: Arrays, other: Arrays, prefix: str) -> tuple[float, float]:
    """Give the largest differences of all arrays; infinite where shapes differ."""
    absolute = relative = 0.0
    for name in one:
        if not name.startswith(prefix):
            continue
        if name not in other or one[name].shape != other[name].shape:
            return np.inf, np.inf
        found = difference(one[name], other[name])
        absolute, relative = max(absolute, found[0]), max(relative, found[1])
    return absolute, relative


def _running_mean(metrics: Mapping[str, np.ndarray]) -> np.ndarray:
    """Give the mean over seeds of each seed's last return so far, `[U]`."""
    curves = np.asarray(metrics["episode_return"], np.float64)
    known = ~np.isnan(curves)
    places = np.maximum.accumulate(np.where(known, np.arange(curves.shape[1]), -1), axis=1)
    held = np.take_along_axis(curves, np.maximum(places, 0), axis=1)
    counts = (places >= 0).sum(axis=0)
    total = np.where(places >= 0, held, 0.0).sum(axis=0)
    return np.divide(total, counts, out=np.full(total.shape, np.nan), where=counts > 0)


def _return_distance(one: np.ndarray, other: np.ndarray, update: int) -> float | None:
    if update == 0:
        return None
    distance = abs(float(one[update - 1] - other[update - 1]))
    return None if np.isnan(distance) else distance
