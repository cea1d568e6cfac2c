"""Libraries whose numbers are equal, drawn once and named together."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .charts.theme import ALL, colours
from .numbers import capitalized, names


@dataclass(frozen=True)
class Group:
    """Libraries with equal numbers.

    Attributes:
      backends: their names, in the order of the comparison.
      label: such as `Haiku and Flax NNX`, or `All four`.
      colour: of the first library, or a neutral one if the group holds all.
    """

    backends: tuple[str, ...]
    label: str
    colour: str


def grouped(values: Mapping[str, Any]) -> list[Group]:
    """Group libraries by exact equality of their values.

    >>> [group.label for group in grouped({"haiku": [1.0], "linen": [2.0], "nnx": [1.0]})]
    ['Haiku and Flax NNX', 'Flax Linen']
    >>> [group.label for group in grouped({"haiku": [1.0], "linen": [1.0]})]
    ['Both']
    """
    members: dict[Hashable, list[str]] = {}
    for name, value in values.items():
        members.setdefault(_key(value), []).append(name)
    colour = colours(list(values))
    return [
        Group(
            backends=tuple(equal),
            label=capitalized(names(equal, total=len(values))),
            colour=ALL if len(equal) == len(values) > 1 else colour[equal[0]],
        )
        for equal in members.values()
    ]


def _key(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return tuple((name, _key(child)) for name, child in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(map(_key, value))
    return value
