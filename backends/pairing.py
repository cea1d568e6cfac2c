"""Which parameter of one network stands for which of another, as a person states it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax

from ..core.errors import TriglotError
from .naming import spelled

Change: TypeAlias = Callable[[jax.Array], jax.Array]
Mapped: TypeAlias = str | tuple[str, Change]
Arrays: TypeAlias = Mapping[str, Any]  # canonical arrays, or their shapes, by name


class Stated(NamedTuple):
    """A target's parameter, and what happens to the canonical array on its way there."""

    name: str
    apply: Change = lambda array: array


def state(
    mapping: Mapping[str, Mapped], source: Arrays, target: Arrays, whose: str
) -> dict[str, Stated]:
    """Follow a stated mapping of names, or of the places they begin with.

    The longest place that a name begins with counts, so that `linear` leaves `linear/1` to another
    entry. What no entry names, and is called alike on both sides, stands for each other.

    Raises:
      TriglotError: if a name is unknown or given twice, or a parameter is left over.
    """
    places = _read(mapping, source, whose)
    pairs: dict[str, Stated] = {}
    for name in source:
        place = max((p for p in places if _covers(p, name)), key=len, default=None)
        if place is not None:
            pairs[name] = _moved(name, place, places[place], target, whose)
    reached = [pair.name for pair in pairs.values()]
    for name in reached:
        if reached.count(name) > 1:
            raise TriglotError(f"{whose}: {name!r} is mapped to twice.")
    unnamed = [name for name in source if name not in pairs]
    pairs.update({n: Stated(n) for n in unnamed if n in target and n not in reached})
    reached = [pair.name for pair in pairs.values()]
    left = [
        listed({n: source[n] for n in source if n not in pairs}),
        listed({n: target[n] for n in target if n not in reached}),
    ]
    if any(left):
        raise TriglotError(
            f"{whose}: the mapping leaves out {left[0] or 'nothing'} of the first and "
            f"{left[1] or 'nothing'} of the second."
        )
    return pairs


def _read(mapping: Mapping[str, Mapped], source: Arrays, whose: str) -> dict[str, Stated]:
    places: dict[str, Stated] = {}
    for given, to in mapping.items():
        place, parts = spelled(given), (to,) if isinstance(to, str) else to
        if not any(_covers(place, name) for name in source):
            raise TriglotError(
                f"{whose}: no parameter is called {given!r}; the first has {listed(source)}."
            )
        if place in places:
            raise TriglotError(f"{whose}: {place!r} is mapped twice.")
        match parts:
            case (str(name),):
                places[place] = Stated(spelled(name))
            case (str(name), change) if callable(change):
                places[place] = Stated(spelled(name), change)
            case _:
                raise TriglotError(
                    f"{whose}: {given!r} is mapped to {to!r}; expected a name, or "
                    "(name, function of the array)."
                )
    return places


def _moved(name: str, place: str, to: Stated, target: Arrays, whose: str) -> Stated:
    rest = name[len(place) :].strip("/")
    there = "/".join(part for part in (to.name, rest) if part)
    if there not in target:
        raise TriglotError(
            f"{whose}: {name!r} is mapped to {there!r}, which is not there; the second has "
            f"{listed(target)}."
        )
    return to._replace(name=there)


def _covers(place: str, name: str) -> bool:
    """Tell whether a name is this one, or begins with this place; all begin with the empty one."""
    return place in ("", name) or name.startswith(f"{place}/")


def is_split(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Tell whether the shapes are equal, or one has some axes of the other split.

    >>> is_split((8, 6), (8, 2, 3)), is_split((8, 6), (6, 8))
    (True, False)
    """
    short, long = sorted((tuple(one), tuple(other)), key=len)
    if len(short) == len(long):
        return short == long
    axes = list(long)
    for size in short:
        product = 1
        while product < size and axes:
            product *= axes.pop(0)
        if product != size:
            return False
    return all(size == 1 for size in axes)


def listed(arrays: Arrays) -> str:
    """List names with their shapes."""
    return ", ".join(f"{name} {tuple(array.shape)}" for name, array in sorted(arrays.items()))
