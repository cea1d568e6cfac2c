"""Parameters that only one of two networks has: shared, frozen, missing, or of another design."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...backends.layers.weight_norm import NORMS
from ...backends.pairing.biases import second_biases
from ...core.network import Variables
from ...core.types import PyTree, by_path
from ..measures.subject import Subject
from ..types import Cause, Side, listed
from .parameters import Pair, Pairing, Parameter, display_names, is_inner_bias, place_of
from .use_order import Reader, Uses, align_uses

BIASES = ("bias", "b", "beta", "offset")


def find_shared(
    pairing: Pairing, read: Callable[[], tuple[Uses, Uses]], one: Side, other: Side
) -> tuple[Pairing, list[Cause]]:
    """Pair parameters that one network has once, uses several times, and the other has copies of.

    Both programs' uses are aligned in order; a parameter without a counterpart belongs to the one
    that is used in its place, if that one is used more often than its own counterpart.
    """
    if bool(pairing.only_one) == bool(pairing.only_other):
        return pairing, []
    parties, sides = (one, other), (pairing.one, pairing.other)
    both = read()
    uses = [each.order for each in both]
    aligned = align_uses(sides, both, repeated=True)
    few, many = (1, 0) if pairing.only_one else (0, 1)  # the sides that share and that copy
    left = {each.name for each in (pairing.only_one or pairing.only_other)}
    partner = {(p.one, p.other)[few]: (p.one, p.other)[many] for p in pairing.pairs}
    added: dict[str, Pair] = {}
    copies_of: list[tuple[str, str]] = []
    for names in aligned:
        shared, copy = names[few], names[many]
        if copy not in left or copy in added or shared not in partner:
            continue
        if len(sides[few][shared].leaf.names) > 1:  # the gates of a cell are used together
            continue
        if uses[few].count(shared) <= uses[many].count(partner[shared]):
            continue
        turned = sides[few][shared].shape != sides[many][copy].shape
        added[copy] = Pair(*names, transposed=turned)
        copies_of.append((shared, copy))
    if not any(len(sides[many][copy].shape) > 1 for _, copy in copies_of):
        return pairing, []
    copies = ", ".join(display_names(sides[many], (copy for _, copy in copies_of)))
    shared_names = display_names(sides[few], dict.fromkeys(shared for shared, _ in copies_of))
    cause = Cause(
        "weight_sharing",
        f"{', '.join(shared_names)} ({parties[few].label}); {copies} ({parties[many].label})",
        f"{parties[few].label} uses one parameter {uses[few].count(copies_of[0][0])} times where "
        f"{parties[many].label} has copies, which start equal but are trained separately",
        _by_side(few, [shared for shared, _ in copies_of], [copy for _, copy in copies_of]),
    )
    return replace(pairing, pairs=(*pairing.pairs, *added.values())), [cause]


def _by_side(
    index: int, names: Sequence[str], others: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Order the names of one network, and those of the other one, by network."""
    sides = tuple(dict.fromkeys(names)), tuple(dict.fromkeys(others))
    return sides if index == 0 else (sides[1], sides[0])


@dataclass(frozen=True)
class Frozen:
    """A parameter of one network that the other has as an array outside its parameters.

    Attributes:
      name: the name of the parameter.
      value: the value of the array, in the parameter's canonical layout.
      cause: the cause, which says where both are.
    """

    name: str
    value: np.ndarray
    cause: Cause


def find_frozen(left: Sequence[Parameter], owner: Side, other: Subject) -> list[Frozen]:
    """Find arrays in the state or among the constants of `other` that fit `owner`'s parameters.

    Vectors count only beside a matrix of the same module, since statistics have their shape.

    Args:
      left: the parameters of `owner` without a counterpart.
      owner, other: the networks, with their initial variables.
    """
    arrays = [(name, array) for name, array in _outside(other) if array.size > 1]
    frozen: list[Frozen] = []
    for parameter in sorted(left, key=lambda each: -len(each.shape)):
        beside = any(_module(each.name) == _module(parameter.name) for each in frozen)
        if len(parameter.shape) < 2 and not beside:
            continue
        for index, (place, array) in enumerate(arrays):
            value = _arranged(array, parameter.shape)
            if value is None:
                continue
            del arrays[index]
            cause = Cause(
                "not_trainable",
                f"{parameter.display_name} ({owner.label}); {place} ({other.label})",
                f"{list(parameter.shape)} is a parameter in the first; the second has it outside "
                "its parameters, so it gets no gradient",
            )
            frozen.append(Frozen(parameter.name, value, cause))
            break
    return frozen


def _outside(side: Subject) -> list[tuple[str, np.ndarray]]:
    """List the floating-point arrays of a network that are not parameters, with their places."""
    held_state = side.variables.state

    def call(params: PyTree, inputs: PyTree) -> Any:
        return side.network.apply(Variables(params=params, state=held_state), inputs)

    closed = jax.make_jaxpr(call)(side.variables.params, side.example)
    state = [(f"state {path}".strip(), leaf) for path, leaf in by_path(held_state).items()]
    constants = [("a constant", const) for const in closed.consts]
    held: list[tuple[str, np.ndarray]] = []
    for place, array in [*state, *constants]:
        floating = hasattr(array, "dtype") and jnp.issubdtype(array.dtype, jnp.floating)
        if floating and not any(np.array_equal(np.asarray(array), known) for _, known in held):
            held.append((place, np.asarray(array)))
    return held


def _arranged(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """Arrange an array in a canonical layout, if it has such elements; None otherwise."""
    if array.shape == shape:
        return array
    if array.ndim == 2 and array.shape[::-1] == shape:
        return array.T
    first = np.moveaxis(array, (0, 1), (-1, -2)) if array.ndim > 2 else array
    return first if first.shape == shape else None


def leftover_causes(
    pairing: Pairing,
    explained: Collection[str],
    one: Side,
    other: Side,
    read: Callable[[], tuple[Uses, Uses]],
) -> list[Cause]:
    """Name what the parameters without a counterpart mean, except those that are `explained`."""
    causes = _variants(pairing, one, other)
    if any(cause.name == "norm_axis" for cause in causes):
        left = (*pairing.only_one, *pairing.only_other)
        explained = {*explained, *(p.name for p in left if p.leaf.note in NORMS.values())}
    readers = [each.readers for each in read()] if pairing.only_one or pairing.only_other else []
    sides = (
        (pairing.only_one, one, other, pairing.one),
        (pairing.only_other, other, one, pairing.other),
    )
    paired = {name for pair in pairing.pairs for name in (pair.one, pair.other)}
    if resized := _resized(pairing, explained):
        explained = {*explained, *(each.name for pair in resized for each in pair)}
        causes.append(_of_other_size(resized, one, other))
    for index, (unpaired, owner, lacking, side) in enumerate(sides):
        left = tuple(each for each in unpaired if each.name not in explained)
        if any(cause.name == "gru_variant" for cause in causes):
            left = tuple(each for each in left if not is_inner_bias(each.name))
        if (missing := _missing_layers(left, side)) is not None:
            place, layers = missing
            gone = [each for each in left if _layer_at(each.name, place) in layers]
            left = tuple(each for each in left if each not in gone)
            causes.append(_layer_count(place, layers, gone, index, (owner, lacking), side))
        seconds = second_biases({name: each.leaf for name, each in side.items()})
        if doubled := [each for each in left if each.name in seconds]:
            left = tuple(each for each in left if each not in doubled)
            causes.append(_second_bias(doubled, owner, lacking))
        for name, kind, reading in (
            ("missing_bias", "bias", "add"),
            ("missing_scale", "scale", "mul"),
        ):
            vectors = [
                each
                for each in left
                if _is_vector(each, kind, side, paired)
                or _is_only_read_by(reading, each, readers[index])
            ]
            left = tuple(each for each in left if each not in vectors)
            if vectors:
                names = [each.name for each in vectors]
                beside = _beside(names, pairing, index)
                where = f"{', '.join(display_names(side, names))} ({owner.label})"
                if beside:
                    counterparts = display_names((pairing.other, pairing.one)[index], beside)
                    where += f"; beside {', '.join(counterparts)} ({lacking.label})"
                causes.append(
                    Cause(
                        name,
                        where,
                        f"{owner.label} has {listed(vectors)}; {lacking.label} has no such "
                        "parameter",
                        _by_side(index, names, beside),
                    )
                )
        if left:
            causes.append(
                Cause(
                    "architecture",
                    f"{', '.join(each.display_name for each in left[:3])} ({owner.label})",
                    f"{listed(left)} of {owner.label} {'has' if len(left) == 1 else 'have'} no "
                    f"counterpart in {lacking.label}",
                    _by_side(index, [each.name for each in left]),
                )
            )
    return causes


def _layer_at(name: str, place: str) -> str:
    """Return the index of a layer after a place; empty if there is none."""
    inside = name.removeprefix(f"{place}/") if place else name
    index = inside.partition("/")[0]
    return index if inside != name and index.isdigit() else ""


def _missing_layers(
    left: Sequence[Parameter], side: Mapping[str, Parameter]
) -> tuple[str, list[str]] | None:
    """Find whole layers of a row of equal ones that have no counterpart.

    Args:
      left: the parameters of a network without a counterpart.
      side: all its parameters.

    Returns:
      The place of the row, and the indices of these layers in it; None if there are none.
    """
    names = {each.name for each in left}
    for name in names:
        words = name.split("/")
        for depth, word in enumerate(words):
            if not depth or not word.isdigit():
                continue
            place = "/".join(words[:depth])
            layers: dict[str, dict[str, tuple[int, ...]]] = {}
            for other, parameter in side.items():
                if index := _layer_at(other, place):
                    inside = other.removeprefix(f"{place}/{index}")
                    layers.setdefault(index, {})[inside] = parameter.shape
            gone = [
                index
                for index, inside in layers.items()
                if all(f"{place}/{index}{each}" in names for each in inside)
            ]
            kept = [index for index in layers if index not in gone]
            if kept and word in gone and all(layers[index] == layers[kept[0]] for index in gone):
                return place, gone
    return None


def _layer_count(
    place: str,
    layers: Sequence[str],
    gone: Sequence[Parameter],
    index: int,
    parties: tuple[Side, Side],
    side: Mapping[str, Parameter],
) -> Cause:
    owner, lacking = parties
    count = len({_layer_at(name, place) for name in side} - {""})
    shown = {_layer_at(each.name, place): each for each in reversed(gone)}
    names = [shown[layer].display_place(f"{place}/{layer}") for layer in layers]
    return Cause(
        "layer_count",
        f"{', '.join(names)} ({owner.label})",
        f"{owner.label} has {count} equal layers in {gone[0].display_place(place)}; "
        f"{lacking.label} has {count - len(layers)}",
        _by_side(index, [each.name for each in gone]),
    )


def _resized(pairing: Pairing, explained: Collection[str]) -> list[tuple[Parameter, Parameter]]:
    """Pair the vectors that both networks have left, of other sizes, by kind and order."""
    left = [
        [each for each in side if each.name not in explained]
        for side in (pairing.only_one, pairing.only_other)
    ]
    kinds = [sorted(_kind(each) for each in side) for side in left]
    if not kinds[0] or kinds[0] != kinds[1] or set(kinds[0]) - {"bias", "scale"}:
        return []
    return list(zip(*(sorted(side, key=_kind) for side in left), strict=True))


def _kind(parameter: Parameter) -> str:
    return parameter.name.rpartition("/")[2]


def _of_other_size(pairs: Sequence[tuple[Parameter, Parameter]], one: Side, other: Side) -> Cause:
    shown = [", ".join(each.display_name for each in side) for side in zip(*pairs, strict=True)]
    sizes = [listed(side) for side in zip(*pairs, strict=True)]
    return Cause(
        "architecture",
        f"{shown[0]} ({one.label}); {shown[1]} ({other.label})",
        f"the layers differ in size: {sizes[0]} in {one.label}, {sizes[1]} in {other.label}",
    )


def _second_bias(doubled: Sequence[Parameter], owner: Side, lacking: Side) -> Cause:
    return Cause(
        "second_bias",
        f"{', '.join(each.display_name for each in doubled)} ({owner.label})",
        f"{owner.label} adds a second bias in each of these gates; {lacking.label} has one, which "
        "gets the sum when weights are translated. Trained alike, a sum of two changes twice as "
        "fast",
    )


def _variants(pairing: Pairing, one: Side, other: Side) -> list[Cause]:
    """Name pairs whose layers compute different functions with equal parameters."""
    for pair in pairing.pairs:
        sides = pairing.one[pair.one], pairing.other[pair.other]
        notes = sides[0].leaf.note, sides[1].leaf.note
        if all(notes) and notes[0] != notes[1]:
            return [
                Cause(
                    "norm_axis" if set(notes) <= {*NORMS.values()} else "gru_variant",
                    "; ".join(
                        f"{each.display_place(place_of(each)[0])} ({party.label})"
                        for each, party in zip(sides, (one, other), strict=True)
                    ),
                    f"{one.label} has {notes[0]}, {other.label} has {notes[1]}",
                )
            ]
    return []


def _is_vector(
    parameter: Parameter, kind: str, side: Mapping[str, Parameter], paired: set[str]
) -> bool:
    """Return whether it is the bias or scale of a layer that has a counterpart."""
    name = parameter.name.rpartition("/")[2]
    beside = [other for other in side if _module(other) == _module(parameter.name)]
    if any(other not in paired and len(side[other].shape) > 1 for other in beside):
        return False  # the whole layer has no counterpart
    return name == kind or (kind == "bias" and name in BIASES)


def _is_only_read_by(name: str, parameter: Parameter, readers: Mapping[str, list[Reader]]) -> bool:
    """Return whether all that reads a vector is one kind of operation."""
    reading = {reader.name for reader in readers.get(parameter.name, [])}
    return len(parameter.shape) < 2 and reading == {name}


def _beside(names: Sequence[str], pairing: Pairing, index: int) -> list[str]:
    """List the counterparts of what stands beside parameters of one network in its modules."""
    modules = {_module(name) for name in names}
    pairs = [(each.one, each.other) for each in pairing.pairs]
    return [pair[1 - index] for pair in pairs if _module(pair[index]) in modules]


def _module(name: str) -> str:
    return name.rpartition("/")[0]
