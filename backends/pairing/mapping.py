"""Pairing of two networks' parameters by an explicit mapping."""

from collections.abc import Callable, Mapping, Sequence
from os.path import commonpath
from typing import NamedTuple, TypeAlias

import jax

from ...core.errors import TriglotError
from .author_names import Arrays, covers, listed, resolve

Change: TypeAlias = Callable[[jax.Array], jax.Array]
Mapped: TypeAlias = str | tuple[str, Change]


class Target(NamedTuple):
    """A target's parameter.

    Attributes:
      name: its canonical name.
      apply: a function to apply to the canonical array.
      is_named: whether the mapping has an entry for this parameter, not for its layer only.
    """

    name: str
    apply: Change = lambda array: array
    is_named: bool = False


def follow_mapping(
    mapping: Mapping[str, Mapped],
    source: Arrays,
    target: Arrays,
    networks: str,
    names: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
    *,
    partial: bool = False,
) -> dict[str, Target]:
    """Pair parameters by a mapping of names or prefixes.

    The longest matching prefix of a name applies, so that `linear` and `linear/1` can have separate
    entries. Parameters without an entry are paired by equal names.

    Args:
      mapping: names or prefixes of `source` to names or prefixes of `target`, or to
        `(name, function)`: canonical, as their authors know them, or the ends of either.
      source: canonical arrays of the first network by name.
      target: canonical arrays of the second network by name.
      networks: the two networks, for the messages.
      names: names as the author of each network knows them, by canonical name.
      partial: whether parameters may be left unpaired, and two of `source` mapped to one.

    Returns:
      Targets by names of `source`.

    Raises:
      TriglotError: if a name is unknown, or, unless `partial`, mapped twice or left unpaired.
    """
    prefixes = _read(mapping, (source, target), networks, names)
    pairs: dict[str, Target] = {}
    for name in source:
        prefix = max((p for p in prefixes if covers(p, name)), key=len, default=None)
        if prefix is not None:
            pairs[name] = _moved(name, prefix, prefixes[prefix], target, networks, names)
    reached = [pair.name for pair in pairs.values()]
    for name in reached:
        if reached.count(name) > 1 and not partial:
            shown = names[1].get(name, name)
            raise TriglotError(f"{networks}: two parameters are mapped to {shown!r}.")
    unnamed = [name for name in source if name not in pairs]
    pairs.update({n: Target(n) for n in unnamed if n in target and n not in reached})
    reached = [pair.name for pair in pairs.values()]
    left = [
        listed({n: source[n] for n in source if n not in pairs}, names[0]),
        listed({n: target[n] for n in target if n not in reached}, names[1]),
    ]
    if any(left) and not partial:
        raise TriglotError(
            f"{networks}: the mapping does not cover {left[0] or 'nothing'} of the first and "
            f"{left[1] or 'nothing'} of the second."
        )
    return pairs


def _read(
    mapping: Mapping[str, Mapped],
    sides: tuple[Arrays, Arrays],
    networks: str,
    names: tuple[Mapping[str, str], Mapping[str, str]],
) -> dict[str, Target]:
    """Read the targets by canonical names or prefixes of the first network."""
    prefixes: dict[str, Target] = {}
    for key, to in mapping.items():
        match (to,) if isinstance(to, str) else to:
            case (str(name),):
                target = Target(name)
            case (str(name), change) if callable(change):
                target = Target(name, change)
            case _:
                raise TriglotError(
                    f"{networks}: {key!r} is mapped to {to!r}; expected a name, or "
                    "(name, function of the array)."
                )
        first, second = (
            resolve(text, side, side_names, f"{networks}, in the {which}")
            for text, side, side_names, which in zip(
                (key, target.name), sides, names, ("first", "second"), strict=True
            )
        )
        if len(first) != len(second):
            raise TriglotError(
                f"{networks}: {key!r} is mapped to {target.name!r}: one holds {len(first)} "
                f"parameters, the other {len(second)}. Name one of them, such as "
                f"{_part_of(first, second, names)!r}."
            )
        for prefix, other in _matched(first, second):
            if prefix in prefixes:
                raise TriglotError(f"{networks}: {key!r} is mapped twice.")
            prefixes[prefix] = target._replace(name=other)
    return prefixes


def _part_of(
    first: Sequence[str],
    second: Sequence[str],
    names: tuple[Mapping[str, str], Mapping[str, str]],
) -> str:
    """Return a parameter of the array that holds more of them."""
    side = 0 if len(first) > len(second) else 1
    name = (first, second)[side][0]
    return names[side].get(name, name)


def _matched(one: Sequence[str], other: Sequence[str]) -> list[tuple[str, str]]:
    """Pair the parameters that two arrays hold: by the ends of their names, else in order."""
    ends = [{name.removeprefix(commonpath(side)): name for name in side} for side in (one, other)]
    if len(one) > 1 and ends[0].keys() == ends[1].keys():
        return [(name, ends[1][end]) for end, name in ends[0].items()]
    return list(zip(one, other, strict=True))


def _moved(
    name: str,
    prefix: str,
    to: Target,
    target: Arrays,
    networks: str,
    names: tuple[Mapping[str, str], Mapping[str, str]],
) -> Target:
    rest = name[len(prefix) :].strip("/")
    renamed = "/".join(part for part in (to.name, rest) if part)
    if renamed not in target:
        raise TriglotError(
            f"{networks}: {names[0].get(name, name)!r} is mapped to {renamed!r}, which does not "
            f"exist; the second has {listed(target, names[1])}."
        )
    return to._replace(name=renamed, is_named=not rest)


def is_split(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Check whether shapes are equal, or equal after splitting some axes of one of them.

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
