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

    @property
    def alone(self) -> bool:
        """Whether no other library is equal."""
        return len(self.backends) == 1


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
    return labelled(list(members.values()))


def labelled(groups: Sequence[Sequence[str]]) -> list[Group]:
    """Add a label and a colour to groups of libraries."""
    backends = [name for group in groups for name in group]
    colour = colours(backends)
    return [
        Group(
            backends=tuple(equal),
            label=capitalized(names(equal, total=len(backends))),
            colour=ALL if len(equal) == len(backends) > 1 else colour[equal[0]],
        )
        for equal in groups
    ]


def equal_libraries(result: Mapping[str, Any]) -> list[Group]:
    """Group the libraries whose parameters and metrics are equal bit for bit.

    Learning curves in a result are rounded, and cannot tell.
    """
    names = list(result["backends"])
    identity = result.get("identity") or {"groups": [[name] for name in names]}
    return labelled(identity["groups"])


def _key(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return tuple((name, _key(child)) for name, child in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(map(_key, value))
    return value
