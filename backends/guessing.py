"""Pairing of two networks' parameters by shape and order."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ..core.errors import TriglotError
from .pairing import Arrays, listed

Layers: TypeAlias = Mapping[str, str]  # the layer of each array, by name; arrays may lack one


def guess(
    source: Arrays, target: Arrays, networks: str, layers: tuple[Layers, Layers] = ({}, {})
) -> dict[str, str]:
    """Pair parameters by shape and by the order of their numbers, if only one pairing exists.

    Whole layers are paired first: those with the same last names (`kernel`, `bias`) and shapes of
    their parameters, then those with the same shapes; then single parameters. Several candidates
    of the same shapes are paired if their names agree on both sides, or if the names of each side
    differ in numbers only (`linear`, `linear_1`, ..., `linear_10`). Arrays of different layers are
    never paired.

    Args:
      source: canonical arrays of the first network by name.
      target: canonical arrays of the second network by name.
      networks: the two networks, for the message.
      layers: what layer owns each array, of `source` and of `target`.

    Returns:
      Names of `target` by names of `source`.

    Raises:
      TriglotError: if the shapes do not agree, or several pairings exist.
    """
    pairs: dict[str, str] = {}

    def described(
        describe: Callable[[Arrays, Layers, bool], dict[str, Hashable]], by_name: bool
    ) -> Iterable[dict[str, Hashable]]:
        sides = _unpaired(pairs, source, target)
        return [describe(side, own, by_name) for side, own in zip(sides, layers, strict=True)]

    for by_name in (True, False):
        for layer, other in _match(*described(_layers, by_name)).items():
            pairs.update(_inside(layer, other, source, target))
    for by_name in (True, False):
        pairs.update(_match(*described(_parameters, by_name)))
    if any(_unpaired(pairs, source, target)) or _splits_a_layer(pairs):
        raise _refusal(pairs, source, target, networks, layers)
    return pairs


def as_mapping(pairs: Mapping[str, str], open_names: Iterable[str] = ()) -> str:
    """Write pairs as a `mapping=` argument: one entry per layer if possible, `...` for open names.

    >>> as_mapping({"a/kernel": "b/kernel", "a/bias": "b/bias", "c/w": "d/kernel"}, ["e/w"])
    "mapping={'a': 'b', 'c/w': 'd/kernel', 'e/w': ...}"
    """
    entries: dict[str, str] = {}
    for name, other in pairs.items():
        layer, to = _layer(name), _layer(other)
        members = [n for n in pairs if _layer(n) == layer]
        together = {_layer(pairs[n]) for n in members} == {to}
        same_names = all(_last_name(n) == _last_name(pairs[n]) for n in members)
        if layer and to and together and same_names:
            entries[layer] = repr(to)
        else:
            entries[name] = repr(other)
    entries |= dict.fromkeys(open_names, "...")
    written = ", ".join(f"{name!r}: {to}" for name, to in sorted(entries.items()))
    return f"mapping={{{written}}}"


def _match(left: Mapping[str, Hashable], right: Mapping[str, Hashable]) -> dict[str, str]:
    """Pair names of equal signature, if only one pairing exists."""
    pairs: dict[str, str] = {}
    for signature in set(left.values()) & set(right.values()):
        first, second = ([n for n in side if side[n] == signature] for side in (left, right))
        for labelled in (_without_common_prefix, _ranked):
            one, other = labelled(first), labelled(second)
            if one and one.keys() == other.keys():
                pairs.update({one[label]: other[label] for label in one})
                break
    return pairs


def _without_common_prefix(names: Sequence[str]) -> dict[Hashable, str]:
    """Label names by their parts after the common prefix."""
    parts = [name.split("/") for name in names]
    levels = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))
    common = len(list(levels))
    return {tuple(own[common:]): name for own, name in zip(parts, names, strict=True)}


def _ranked(names: Sequence[str]) -> dict[Hashable, str]:
    """Label names by their rank in natural order; empty if they differ in more than numbers."""
    if len({re.sub(r"/?\d+", "", name) for name in names}) > 1:
        return {}
    return dict(enumerate(sorted(names, key=_numbers)))


def _numbers(name: str) -> list[tuple[int, ...]]:
    """Read the numbers of each part of a name; parts without numbers sort first."""
    words = re.split(r"/(?=\D)", name)
    return [tuple(int(number) for number in re.findall(r"\d+", word)) for word in words]


def _parameters(arrays: Arrays, layers: Layers, by_name: bool) -> dict[str, Hashable]:
    """Describe each parameter by its layer, its shape and, if wanted, its last name."""
    return {
        name: (layers.get(name, ""), _last_name(name) if by_name else "", _shape(array))
        for name, array in arrays.items()
    }


def _layers(arrays: Arrays, layers: Layers, by_name: bool) -> dict[str, Hashable]:
    """Describe each layer by its type and the names and shapes of its parameters."""
    found: dict[str, list[Any]] = {}
    for name, described in _parameters(arrays, layers, by_name).items():
        found.setdefault(_layer(name), []).append(described)
    return {layer: tuple(sorted(shapes)) for layer, shapes in found.items()}


def _inside(layer: str, other: str, source: Arrays, target: Arrays) -> dict[str, str]:
    """Pair the parameters of two layers, by last name if these agree, else by shape."""
    left = [name for name in source if _layer(name) == layer]
    right = {_last_name(name): name for name in target if _layer(name) == other}
    if {_last_name(name) for name in left} == right.keys():
        return {name: right[_last_name(name)] for name in left}
    return _match(
        {name: _shape(source[name]) for name in left},
        {name: _shape(target[name]) for name in right.values()},
    )


def _unpaired(pairs: Mapping[str, str], source: Arrays, target: Arrays) -> tuple[Arrays, Arrays]:
    reached = set(pairs.values())
    return (
        {name: array for name, array in source.items() if name not in pairs},
        {name: array for name, array in target.items() if name not in reached},
    )


def _splits_a_layer(pairs: Mapping[str, str]) -> bool:
    """Check whether a layer's kernel and bias are paired with two different layers."""
    names = {"kernel", "bias"}
    known = [(n, o) for n, o in pairs.items() if {_last_name(n), _last_name(o)} <= names]
    together = {(_layer(n), _layer(o)) for n, o in known}
    return len({layer for layer, _ in together}) < len(together)


def _refusal(
    pairs: Mapping[str, str],
    source: Arrays,
    target: Arrays,
    networks: str,
    layers: tuple[Layers, Layers],
) -> TriglotError:
    left, right = _unpaired({} if _splits_a_layer(pairs) else pairs, source, target)
    shapes = [Counter(_shape(array) for array in side.values()) for side in (left, right)]
    types = [
        Counter(own.get(name, "") for name in side)
        for side, own in zip((left, right), layers, strict=True)
    ]
    problem = "the architectures differ"
    if shapes[0] == shapes[1] and types[0] != types[1]:
        found = [" and ".join(sorted(filter(None, side))) or "no listed layer" for side in types]
        problem = f"parameters of equal shapes belong to {found[0]} here, {found[1]} there"
    elif shapes[0] == shapes[1]:
        problem = "parameters of equal shapes can be paired in several ways"
    paired = {name: other for name, other in pairs.items() if name not in left}
    return TriglotError(
        f"{networks}: {problem}. Unpaired parameters: {listed(left) or 'none'} of the first and "
        f"{listed(right) or 'none'} of the second. If both compute the same function, complete "
        f"{as_mapping(paired, left)}."
    )


def _layer(name: str) -> str:
    return name.rpartition("/")[0]


def _last_name(name: str) -> str:
    return name.rpartition("/")[2]


def _shape(array: object) -> tuple[int, ...]:
    return tuple(getattr(array, "shape", ()))
