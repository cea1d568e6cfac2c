"""Which cases of a table of tests stay in the quick tests: `@pytest.mark.covering`."""

import math
from collections.abc import Hashable, Sequence, Set

import pytest

GOLDEN_RATIO = (1 + math.sqrt(5)) / 2


def axis_values(item: pytest.Item) -> set[Hashable]:
    """Return a case's value of each parameter, the identity of a value that has no hash."""
    callspec = getattr(item, "callspec", None)
    values: set[Hashable] = set()
    for name, value in callspec.params.items() if callspec is not None else ():
        try:
            values.add((name, value))
        except TypeError:
            values.add((name, id(value)))
    return values


def choose_covering(cases: Sequence[Set[Hashable]], one_in: int | None = None) -> set[int]:
    """Choose few cases that show each value of each axis: always the one with most new values.

    Args:
      cases: the values of each case.
      one_in: at most one in `one_in` cases is chosen; None sets no limit.
    """
    if one_in is None:
        # Scattered, so that two axes with the same values are not covered by pairs of equal ones.
        most, order = len(cases), lambda index: index * GOLDEN_RATIO % 1
    else:
        most, order = math.ceil(len(cases) / one_in), lambda index: index % one_in
    left = sorted(range(len(cases)), key=order)
    chosen: set[int] = set()
    missing: set[Hashable] = set().union(*cases)
    while len(chosen) < most and (missing or not chosen):
        best = max(left, key=lambda index: len(cases[index] & missing))
        left.remove(best)
        chosen.add(best)
        missing -= cases[best]
    return chosen
