"""Pairing of two networks' parameters by shape and order."""

import itertools
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ...core.errors import TriglotError
from .author_names import Arrays, Leaves, display_pairs

Layers: TypeAlias = Mapping[str, str]  # the layer of each array, by name; arrays may lack one
Types: TypeAlias = Mapping[str, tuple[str, tuple[int, ...]]]  # layers and shapes, by name


def guess(
    source: Arrays,
    target: Arrays,
    networks: str,
    layers: tuple[Layers, Layers] = ({}, {}),
    leaves: tuple[Leaves, Leaves] = ({}, {}),
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
      leaves: the libraries' arrays by canonical name, from which messages take their names.

    Returns:
      Names of `target` by names of `source`.

    Raises:
      TriglotError: if the shapes do not agree, or several pairings exist.
    """
    pairs: dict[str, str] = {}
    one, other = (
        {name: (layer_of.get(name, ""), tuple(array.shape)) for name, array in side.items()}
        for side, layer_of in zip((source, target), layers, strict=True)
    )
    for by_name in (True, False):
        first, second = (_layers(side, by_name) for side in _unpaired(pairs, one, other))
        for layer, to in _match(first, second).items():
            pairs.update(_inside(layer, to, one, other))
    for by_name in (True, False):
        first, second = (_parameters(side, by_name) for side in _unpaired(pairs, one, other))
        pairs.update(_match(first, second))
    if any(_unpaired(pairs, one, other)) or _splits_a_layer(pairs):
        raise _refusal(pairs, one, other, networks, leaves)
    return pairs


def as_mapping(
    pairs: Mapping[str, str],
    open_names: Iterable[str] = (),
    leaves: tuple[Leaves, Leaves] = ({}, {}),
) -> str:
    """Write pairs as a `mapping=` argument: one entry per layer if possible, `...` for open names.

    >>> as_mapping({"a/kernel": "b/kernel", "a/bias": "b/bias", "c/w": "d/kernel"}, ["e/w"])
    "mapping={'a': 'b', 'c/w': 'd/kernel', 'e/w': ...}"
    """
    shown = display_pairs(mapping_of(pairs), leaves)
    entries = {name: repr(other) for name, other in shown.items()}
    entries |= dict.fromkeys(display_pairs(dict.fromkeys(open_names, ""), leaves), "...")
    written = ", ".join(f"{name!r}: {to}" for name, to in sorted(entries.items()))
    return f"mapping={{{written}}}"


def mapping_of(pairs: Mapping[str, str]) -> dict[str, str]:
    """Shorten pairs of parameters to pairs of layers, where all names inside agree.

    >>> mapping_of({"a/kernel": "b/kernel", "a/bias": "b/bias", "c/w": "d/kernel"})
    {'a': 'b', 'c/w': 'd/kernel'}
    """
    entries: dict[str, str] = {}
    for name, other in pairs.items():
        layer, to = _layer(name), _layer(other)
        members = [n for n in pairs if _layer(n) == layer]
        together = {_layer(pairs[n]) for n in members} == {to}
        same_names = all(_last_name(n) == _last_name(pairs[n]) for n in members)
        if layer and to and together and same_names:
            entries[layer] = to
        else:
            entries[name] = other
    return entries


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
    return {tuple(words[common:]): name for words, name in zip(parts, names, strict=True)}


def _ranked(names: Sequence[str]) -> dict[Hashable, str]:
    """Label names by their rank in natural order; empty if they differ in more than numbers."""
    if len({re.sub(r"/?\d+", "", name) for name in names}) > 1:
        return {}
    return dict(enumerate(sorted(names, key=_numbers)))


def _numbers(name: str) -> list[tuple[int, ...]]:
    """Read the numbers of each part of a name; parts without numbers sort first."""
    words = re.split(r"/(?=\D)", name)
    return [tuple(int(number) for number in re.findall(r"\d+", word)) for word in words]


def _parameters(types: Types, by_name: bool) -> dict[str, Hashable]:
    """Describe each parameter by its layer, its shape and, if wanted, its last name."""
    return {
        n: (layer, _last_name(n) if by_name else "", shape) for n, (layer, shape) in types.items()
    }


def _layers(types: Types, by_name: bool) -> dict[str, Hashable]:
    """Describe each layer by its type and the names and shapes of its parameters."""
    shapes_of_layer: dict[str, list[Any]] = {}
    for name, described in _parameters(types, by_name).items():
        shapes_of_layer.setdefault(_layer(name), []).append(described)
    return {layer: tuple(sorted(shapes)) for layer, shapes in shapes_of_layer.items()}


def _inside(layer: str, other: str, source: Types, target: Types) -> dict[str, str]:
    """Pair the parameters of two layers, by last name if these agree, else by shape."""
    left = [name for name in source if _layer(name) == layer]
    right = {_last_name(name): name for name in target if _layer(name) == other}
    if {_last_name(name) for name in left} == right.keys():
        return {name: right[_last_name(name)] for name in left}
    shapes = {name: source[name][1] for name in left}
    return _match(shapes, {name: target[name][1] for name in right.values()})


def _unpaired(pairs: Mapping[str, str], source: Types, target: Types) -> tuple[Types, Types]:
    reached = set(pairs.values())
    return (
        {name: description for name, description in source.items() if name not in pairs},
        {name: description for name, description in target.items() if name not in reached},
    )


def _splits_a_layer(pairs: Mapping[str, str]) -> bool:
    """Check whether a layer's kernel and bias are paired with two different layers."""
    names = {"kernel", "bias"}
    known = [(n, o) for n, o in pairs.items() if {_last_name(n), _last_name(o)} <= names]
    together = {(_layer(n), _layer(o)) for n, o in known}
    return len({layer for layer, _ in together}) < len(together)


def _refusal(
    pairs: Mapping[str, str],
    source: Types,
    target: Types,
    networks: str,
    leaves: tuple[Leaves, Leaves],
) -> TriglotError:
    sides = _unpaired({} if _splits_a_layer(pairs) else pairs, source, target)
    shapes = [Counter(shape for _, shape in side.values()) for side in sides]
    types = [Counter(layer for layer, _ in side.values()) for side in sides]
    listed = [
        ", ".join(
            f"{side_leaves[n].display_name(n) if n in side_leaves else n} {shape}"
            for n, (_, shape) in sorted(side.items())
        )
        for side, side_leaves in zip(sides, leaves, strict=True)
    ]
    problem = "the architectures differ"
    if shapes[0] == shapes[1] and types[0] != types[1]:
        layer_kinds = [
            " and ".join(sorted(filter(None, side))) or "no listed layer" for side in types
        ]
        problem = (
            f"parameters of equal shapes belong to {layer_kinds[0]} here, {layer_kinds[1]} there"
        )
    elif shapes[0] == shapes[1]:
        problem = "parameters of equal shapes can be paired in several ways"
    paired = {name: other for name, other in pairs.items() if name not in sides[0]}
    return TriglotError(
        f"{networks}: {problem}. Unpaired parameters: {listed[0] or 'none'} of the first and "
        f"{listed[1] or 'none'} of the second. If both compute the same function, complete "
        f"{as_mapping(paired, sides[0], leaves)}."
    )


def _layer(name: str) -> str:
    return name.rpartition("/")[0]


def _last_name(name: str) -> str:
    return name.rpartition("/")[2]
