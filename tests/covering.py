"""Which cases of a table are tested: `pairwise`, and quickly: `@pytest.mark.covering`."""

import itertools
import math
from collections.abc import Hashable, Iterable, Sequence, Set
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case", bound=tuple[Any, ...])

GOLDEN_RATIO = (1 + math.sqrt(5)) / 2


def axis_values(item: pytest.Item) -> set[Hashable]:
    """Return a case's value of each parameter and of each field of a named tuple.

    A value that has no hash is shown by its identity.
    """
    callspec = getattr(item, "callspec", None)
    values: set[Hashable] = set()
    for name, value in callspec.params.items() if callspec is not None else ():
        fields = value._asdict() if hasattr(value, "_asdict") else {name: value}
        for field in fields.items():
            try:
                values.add(field)
            except TypeError:
                values.add((field[0], id(field[1])))
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


def pairwise(cases: Iterable[Case]) -> list[Case]:
    """Choose few cases that show each pair of values of two axes, for a table too large to be run.

    Args:
      cases: a value of each axis. With two axes, each case is a pair, so all are chosen.
    """
    table = list(cases)
    pairs = [set(itertools.combinations(enumerate(case), 2)) for case in table]
    return [table[index] for index in sorted(choose_covering(pairs))]
