"""Pairing of two networks' parameters by an explicit mapping."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax

from ...core.errors import TriglotError
from ..naming import normalize_separators

Change: TypeAlias = Callable[[jax.Array], jax.Array]
Mapped: TypeAlias = str | tuple[str, Change]
Arrays: TypeAlias = Mapping[str, Any]  # canonical arrays, or their shapes, by name


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
    *,
    partial: bool = False,
) -> dict[str, Target]:
    """Pair parameters by a mapping of names or prefixes.

    The longest matching prefix of a name applies, so that `linear` and `linear/1` can have separate
    entries. Parameters without an entry are paired by equal names.

    Args:
      mapping: names or prefixes of `source` to names or prefixes of `target`, or to
        `(name, function)`.
      source: canonical arrays of the first network by name.
      target: canonical arrays of the second network by name.
      networks: the two networks, for the messages.
      partial: whether parameters may be left unpaired, and two of `source` mapped to one.

    Returns:
      Targets by names of `source`.

    Raises:
      TriglotError: if a name is unknown, or, unless `partial`, mapped twice or left unpaired.
    """
    prefixes = _read(mapping, source, networks)
    pairs: dict[str, Target] = {}
    for name in source:
        prefix = max((p for p in prefixes if _covers(p, name)), key=len, default=None)
        if prefix is not None:
            pairs[name] = _moved(name, prefix, prefixes[prefix], target, networks)
    reached = [pair.name for pair in pairs.values()]
    for name in reached:
        if reached.count(name) > 1 and not partial:
            raise TriglotError(f"{networks}: two parameters are mapped to {name!r}.")
    unnamed = [name for name in source if name not in pairs]
    pairs.update({n: Target(n) for n in unnamed if n in target and n not in reached})
    reached = [pair.name for pair in pairs.values()]
    left = [
        listed({n: source[n] for n in source if n not in pairs}),
        listed({n: target[n] for n in target if n not in reached}),
    ]
    if any(left) and not partial:
        raise TriglotError(
            f"{networks}: the mapping does not cover {left[0] or 'nothing'} of the first and "
            f"{left[1] or 'nothing'} of the second."
        )
    return pairs


def _read(mapping: Mapping[str, Mapped], source: Arrays, networks: str) -> dict[str, Target]:
    prefixes: dict[str, Target] = {}
    for key, to in mapping.items():
        prefix, parts = normalize_separators(key), (to,) if isinstance(to, str) else to
        if not any(_covers(prefix, name) for name in source):
            raise TriglotError(
                f"{networks}: no parameter is named {key!r}; the first has {listed(source)}."
            )
        if prefix in prefixes:
            raise TriglotError(f"{networks}: {prefix!r} is mapped twice.")
        match parts:
            case (str(name),):
                prefixes[prefix] = Target(normalize_separators(name))
            case (str(name), change) if callable(change):
                prefixes[prefix] = Target(normalize_separators(name), change)
            case _:
                raise TriglotError(
                    f"{networks}: {key!r} is mapped to {to!r}; expected a name, or "
                    "(name, function of the array)."
                )
    return prefixes


def _moved(name: str, prefix: str, to: Target, target: Arrays, networks: str) -> Target:
    rest = name[len(prefix) :].strip("/")
    renamed = "/".join(part for part in (to.name, rest) if part)
    if renamed not in target:
        raise TriglotError(
            f"{networks}: {name!r} is mapped to {renamed!r}, which does not exist; the second has "
            f"{listed(target)}."
        )
    return to._replace(name=renamed, is_named=not rest)


def _covers(prefix: str, name: str) -> bool:
    """Check whether a name equals a prefix or lies below it; all names lie below the empty one."""
    return prefix in ("", name) or name.startswith(f"{prefix}/")


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


def listed(arrays: Arrays) -> str:
    """List names with their shapes."""
    return ", ".join(f"{name} {tuple(array.shape)}" for name, array in sorted(arrays.items()))
