"""Make `comparison.json` small: fewer points of each curve, fewer digits."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.records import JSON, JSONDict
from ..machine.files import plain
from ..statistics.curves import finite_mean

MAX_POINTS = 200
MAX_BYTES = 300_000
DIGITS, FEW = 6, 4
STEPS = (MAX_POINTS, 120, 80, 40, 20)  # points of a curve, until the file is small enough


def thinned(result: JSON) -> JSONDict:
    """Thin a result until its JSON text is smaller than 300 kB.

    Final returns and statistics stay exact, but for the ladder's, which have four digits where
    nothing else makes the file small enough, as with seven libraries. A point of a learning curve
    becomes the average of neighbouring updates, as far as an episode ended there; a point of a
    difference, the largest. NaN becomes None, and an infinite number stays one.
    """
    whole: JSONDict = _with_infinities(plain(result))
    smaller = whole
    for points in STEPS:
        smaller = _thin(whole, points)
        if len(as_json(smaller).encode()) < MAX_BYTES:
            return smaller
    return {name: _with_few_digits(v) if name == "ladder" else v for name, v in smaller.items()}


def _thin(result: JSON, points: int) -> JSONDict:
    thin: dict[str, Callable[[Any], Any]] = {
        "curves": lambda curves: thin_curves(curves, points),
        "divergence": lambda divergence: _thin_divergence(divergence, points),
        "environments": lambda environments: {
            e: _thin(result_of_env, points) for e, result_of_env in environments.items()
        },
    }
    return {name: thin[name](v) if v and name in thin else v for name, v in result.items()}


def _with_infinities(value: Any) -> Any:
    """Restore the infinite numbers of strict JSON, which has none."""
    if isinstance(value, dict):
        return {name: _with_infinities(child) for name, child in value.items()}
    if isinstance(value, list):
        return list(map(_with_infinities, value))
    return float(value) if isinstance(value, str) and value in ("inf", "-inf") else value


def as_json(result: JSON) -> str:
    """Format a result as strict JSON, one line for each field."""
    lines = (
        f"{json.dumps(name)}: {json.dumps(value, allow_nan=False, ensure_ascii=False)}"
        for name, value in plain(result).items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _bins(number: int, points: int) -> list[np.ndarray]:
    edges = np.linspace(0, number, min(number, points) + 1).round().astype(int)
    return np.split(np.arange(number), edges[1:-1])


def _rounded(values: Sequence[float | None] | np.ndarray) -> list[Any]:
    """Round to six digits; whole numbers and missing values stay.

    >>> _rounded([0.12345678, 3, None])
    [0.123457, 3, None]
    """
    return [_short(value, DIGITS) for value in values]


def _short(value: Any, digits: int) -> Any:
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _with_few_digits(value: Any) -> Any:
    """Round all numbers of a tree to four digits."""
    if isinstance(value, dict):
        return {name: _with_few_digits(child) for name, child in value.items()}
    if isinstance(value, list):
        return list(map(_with_few_digits, value))
    return _short(value, FEW)


def thin_curves(curves: JSON, points: int = MAX_POINTS) -> JSONDict:
    """Average learning curves over runs of updates.

    Args:
      curves: `env_steps` `[U]`, and the returns `[S, U]` of each library, `backends`.
      points: how many are left, at most.
    """
    bins = _bins(len(curves["env_steps"]), points)

    def averaged(seed: Sequence[float | None] | np.ndarray) -> list[Any]:
        values = np.array(seed, np.float64)
        return _rounded(plain([float(finite_mean(values[part])) for part in bins]))

    return {
        **curves,
        "env_steps": [curves["env_steps"][part[-1]] for part in bins],
        "backends": {
            name: [averaged(seed) for seed in seeds] for name, seeds in curves["backends"].items()
        },
    }


def _thin_divergence(divergence: JSON, points: int) -> JSONDict:
    bins = _bins(len(divergence["env_steps"]), points)

    def largest(values: Sequence[float | None]) -> list[Any]:
        known = [[values[i] for i in part if values[i] is not None] for part in bins]
        return _rounded([max(part, default=None) for part in known])

    return {
        **{name: [divergence[name][p[-1]] for p in bins] for name in ("updates", "env_steps")},
        "pairs": [
            {
                name: values if name == "backends" or not values else largest(values)
                for name, values in pair.items()
            }
            for pair in divergence["pairs"]
        ],
    }
