"""The values of a swept name, as the axis of a chart."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..axes import format_value

RETURN = "return per episode"
LOG_RATIO = 20  # largest to smallest value of a name, above which its axis is logarithmic


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def values_of(records: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """List the values of a name."""
    return [record["values"][name] for record in records]


def is_log(values: Sequence[float]) -> bool:
    """Return whether numbers need a logarithmic axis."""
    return min(values) > 0 and max(values) >= LOG_RATIO * min(values)


def ordered_texts(values: Sequence[Any]) -> list[str]:
    """Order the values of an axis: numbers by size, others as they were given."""
    unique = list(dict.fromkeys(values))
    return list(map(format_value, sorted(unique) if all(map(is_number, unique)) else unique))
