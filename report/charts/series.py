"""Entries of a legend; libraries whose numbers are equal are one entry with all their colours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..numbers import capitalized, names
from .theme import ALL, colours


@dataclass(frozen=True)
class Series:
    """One entry of a legend.

    Attributes:
      key: in the data.
      label: for people.
      colours: one, or one for each library that the entry stands for.
      width: of its line, in pixels.
    """

    key: str
    label: str
    colours: tuple[str, ...]
    width: float = 2.4

    @property
    def shared(self) -> bool:
        """Whether it stands for several libraries."""
        return len(self.colours) > 1

    @property
    def ground(self) -> str:
        """The colour of its interval and its seeds, neutral where it has several."""
        return ALL if self.shared else self.colours[0]


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

    Learning curves in a result are rounded, so they cannot show it.

    Returns:
      The series of each group, and its libraries.
    """
    alone = [[name] for name in result["backends"]]
    groups = (result.get("identity") or {"groups": alone})["groups"]
    return library_series(groups), groups
