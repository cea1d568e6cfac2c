"""Describe what the default networks read of an environment's observations."""

from collections.abc import Iterator
from typing import SupportsFloat

import numpy as np

from ...core import specs
from ...core.types import Obs
from .case import spec_leaves

MAX_NOTES = 8
# Of the range from 0 to 1 that the declared bounds of bytes become.
NARROW = 0.1


def reading_notes(spec: specs.Spec, observations: list[Obs]) -> Iterator[str]:
    """Describe, for each array of an observation, the values that the default networks read.

    Args:
      spec: of one observation.
      observations: batches `[..., *shape]` that were seen, at least one.
    """
    for number, (path, leaf, _) in enumerate(spec_leaves(spec, observations[0])):
        if number == MAX_NOTES:
            yield "The other arrays of an observation are not listed here."
            return
        values = [dict(_values(spec, obs))[path] for obs in observations]
        yield f"The default networks read {path} as {_described(leaf, values)}."


def _values(spec: specs.Spec, obs: Obs) -> Iterator[tuple[str, np.ndarray]]:
    for path, _, value in spec_leaves(spec, obs):
        yield path, np.asarray(value)


def _described(leaf: specs.Leaf, observed: list[np.ndarray]) -> str:
    if isinstance(leaf, specs.Discrete):
        return f"one of {leaf.num_values} values: a row of a table, or one-hot"
    if isinstance(leaf, specs.MultiDiscrete):
        return f"{sum(leaf.num_values)} values, the integers one-hot"
    low, high = leaf.bounds()
    if specs.byte_range(leaf) is None:
        unscaled = f"{leaf.dtype} without scaling"
        wanted = f"declared within [{_number(np.min(low))}, {_number(np.max(high))}]"
        return f"{unscaled}, {wanted}; seen: {_range(observed)}"
    scaled = [np.asarray(specs.floats(leaf, values)) for values in observed]
    text = (
        f"values within [0, 1]: bytes within [{np.min(low)}, {np.max(high)}] are scaled by these "
        f"bounds; seen: {_range(scaled)}"
    )
    if max(values.max(initial=0) for values in scaled) < NARROW:
        top = max(int(values.max(initial=0)) for values in observed)
        text += f". If no value can be above {top}, declare it as the upper bound"
    return text


def _range(arrays: list[np.ndarray]) -> str:
    arrays = [array for array in arrays if array.size]
    if not arrays:
        return "nothing"
    least, greatest = min(map(np.min, arrays)), max(map(np.max, arrays))
    return f"[{_number(least)}, {_number(greatest)}]"


def _number(value: SupportsFloat) -> str:
    return f"{float(value):.4g}"
