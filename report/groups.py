"""Libraries whose numbers are equal, drawn once and named together."""

from collections.abc import Mapping, Sequence
from typing import Any

from .charts.chart import Series
from .charts.theme import colours
from .numbers import capitalized, names


def grouped(values: Mapping[Any, Any]) -> list[list[Any]]:
    """Group names by exact equality of their values.

    >>> grouped({"haiku": [1.0], "linen": [2.0], "nnx": [1.0]})
    [['haiku', 'nnx'], ['linen']]
    """
    members: dict[str, list[Any]] = {}
    for name, value in values.items():
        members.setdefault(repr(value), []).append(name)
    return list(members.values())


def library_series(groups: Sequence[Sequence[str]]) -> tuple[Series, ...]:
    """Build a series for each group of libraries, with its label and the colours of all.

    >>> [one.label for one in library_series([["haiku", "nnx"], ["linen"]])]
    ['Haiku and Flax NNX', 'Flax Linen']
    >>> [one.label for one in library_series([["haiku", "linen"]])]
    ['Both']
    """
    backends = [name for group in groups for name in group]
    colour = colours(backends)
    return tuple(
        Series(
            f"g{index}",
            capitalized(names(group, total=len(backends))),
            tuple(colour[name] for name in group),
        )
        for index, group in enumerate(groups)
    )


def equal_libraries(
    result: Mapping[str, Any],
) -> tuple[tuple[Series, ...], Sequence[Sequence[str]]]:
    """Group the libraries whose parameters and metrics are equal bit for bit.

    Learning curves in a result are rounded, and cannot tell.

    Returns:
      The series of each group, and its libraries.
    """
    alone = [[name] for name in result["backends"]]
    groups = (result.get("identity") or {"groups": alone})["groups"]
    return library_series(groups), groups
