"""Parameters that only one of two networks has: shared, frozen, missing, or of another design."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from ...backends.layers.weight_norm import NORMS
from ...backends.pairing.biases import second_biases
from ...core.network import Variables
from ...core.types import PyTree, by_path
from ..measures.subject import Subject
from ..types import Cause, Side, join_names
from .parameters import Pair, Pairing, Parameter, display_names, is_inner_bias, place_of
from .use_order import Reader, Uses, align_uses

BIASES = ("bias", "b", "beta", "offset")


def find_shared(
    pairing: Pairing, read_uses: Callable[[], tuple[Uses, Uses]], first: Side, second: Side
) -> tuple[Pairing, list[Cause]]:
    """Pair a parameter that one network uses several times with its copies in the other.

    Both programs' uses are aligned in order; a parameter without a counterpart belongs to the one
    that is used in its place, if that one is used more often than its own counterpart.
    """
    if bool(pairing.only_one) == bool(pairing.only_other):
        return pairing, []
    parties, sides = (first, second), (pairing.one, pairing.other)
    network_uses = read_uses()
    uses = [each.order for each in network_uses]
    aligned = align_uses(sides, network_uses, repeated=True)
    sharing, copying = (1, 0) if pairing.only_one else (0, 1)  # the sides that share and that copy
    unpaired = {each.name for each in (pairing.only_one or pairing.only_other)}
    counterpart = {(p.one, p.other)[sharing]: (p.one, p.other)[copying] for p in pairing.pairs}
    added: dict[str, Pair] = {}
    copies_of: list[tuple[str, str]] = []
    for names in aligned:
        shared, copy = names[sharing], names[copying]
        if copy not in unpaired or copy in added or shared not in counterpart:
            continue
        if len(sides[sharing][shared].leaf.names) > 1:  # the gates of a cell are used together
            continue
        if uses[sharing].count(shared) <= uses[copying].count(counterpart[shared]):
            continue
        transposed = sides[sharing][shared].shape != sides[copying][copy].shape
        added[copy] = Pair(*names, transposed=transposed)
        copies_of.append((shared, copy))
    if not any(len(sides[copying][copy].shape) > 1 for _, copy in copies_of):
        return pairing, []
    copies = ", ".join(display_names(sides[copying], (copy for _, copy in copies_of)))
    shared_names = display_names(sides[sharing], dict.fromkeys(shared for shared, _ in copies_of))
    cause = Cause(
        "weight_sharing",
        f"{', '.join(shared_names)} ({parties[sharing].label}); {copies} "
        f"({parties[copying].label})",
        f"{parties[sharing].label} uses one parameter {uses[sharing].count(copies_of[0][0])} "
        "times where "
        f"{parties[copying].label} has copies, which start equal but are trained separately",
        _by_side(sharing, [shared for shared, _ in copies_of], [copy for _, copy in copies_of]),
    )
    return replace(pairing, pairs=(*pairing.pairs, *added.values())), [cause]


def _by_side(
    index: int, names: Sequence[str], other_names: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Order the names of one network, and those of the other one, by network."""
    sides = tuple(dict.fromkeys(names)), tuple(dict.fromkeys(other_names))
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


def find_frozen(unpaired: Sequence[Parameter], owner: Side, other_side: Subject) -> list[Frozen]:
    """Find arrays in the state or the constants of `other_side` that fit `owner`'s parameters.

    Vectors count only beside a matrix of the same module, since statistics have their shape.

    Args:
      unpaired: the parameters of `owner` without a counterpart.
      owner, other_side: the networks, with their initial variables.
    """
    arrays = [(name, array) for name, array in _nonparameter_arrays(other_side) if array.size > 1]
    frozen: list[Frozen] = []
    for parameter in sorted(unpaired, key=lambda each: -len(each.shape)):
        has_matrix = any(_module(each.name) == _module(parameter.name) for each in frozen)
        if len(parameter.shape) < 2 and not has_matrix:
            continue
        for index, (place, array) in enumerate(arrays):
            value = _in_layout(array, parameter.shape)
            if value is None:
                continue
            del arrays[index]
            cause = Cause(
                "not_trainable",
                f"{parameter.display_name} ({owner.label}); {place} ({other_side.label})",
                f"{list(parameter.shape)} is a parameter in the first; the second has it outside "
                "its parameters, so it gets no gradient",
            )
            frozen.append(Frozen(parameter.name, value, cause))
            break
    return frozen


def _nonparameter_arrays(side: Subject) -> list[tuple[str, np.ndarray]]:
    """List the floating-point arrays of a network that are not parameters, with their places."""
    initial_state = side.variables.state

    def call(params: PyTree, inputs: PyTree) -> tuple[PyTree, PyTree]:
        return side.network.apply(Variables(params=params, state=initial_state), inputs)

    closed = jax.make_jaxpr(call)(side.variables.params, side.example)
    state = [(f"state {path}".strip(), leaf) for path, leaf in by_path(initial_state).items()]
    constants = [("a constant", const) for const in closed.consts]
    nonparameters: list[tuple[str, np.ndarray]] = []
    for place, array in [*state, *constants]:
        floating = hasattr(array, "dtype") and jnp.issubdtype(array.dtype, jnp.floating)
        if floating and not any(
            np.array_equal(np.asarray(array), listed_array) for _, listed_array in nonparameters
        ):
            nonparameters.append((place, np.asarray(array)))
    return nonparameters


def _in_layout(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """Arrange an array in a canonical layout, if it has such elements; None otherwise."""
    if array.shape == shape:
        return array
    if array.ndim == 2 and array.shape[::-1] == shape:
        return array.T
    spatial_first = np.moveaxis(array, (0, 1), (-1, -2)) if array.ndim > 2 else array
    return spatial_first if spatial_first.shape == shape else None


def leftover_causes(
    pairing: Pairing,
    explained: Collection[str],
    first: Side,
    second: Side,
    read_uses: Callable[[], tuple[Uses, Uses]],
) -> list[Cause]:
    """Name a cause for each parameter without a counterpart, except the `explained` ones."""
    causes = _variants(pairing, first, second)
    if any(cause.name == "norm_axis" for cause in causes):
        remaining = (*pairing.only_one, *pairing.only_other)
        explained = {*explained, *(p.name for p in remaining if p.leaf.note in NORMS.values())}
    readers = (
        [each.readers for each in read_uses()] if pairing.only_one or pairing.only_other else []
    )
    sides = (
        (pairing.only_one, first, second, pairing.one),
        (pairing.only_other, second, first, pairing.other),
    )
    paired = {name for pair in pairing.pairs for name in (pair.one, pair.other)}
    if resized := _pair_resized(pairing, explained):
        explained = {*explained, *(each.name for pair in resized for each in pair)}
        causes.append(_of_other_size(resized, first, second))
    for index, (unpaired, owner, lacking, side) in enumerate(sides):
        remaining = tuple(each for each in unpaired if each.name not in explained)
        if any(cause.name == "gru_variant" for cause in causes):
            remaining = tuple(each for each in remaining if not is_inner_bias(each.name))
        if (missing := _missing_layers(remaining, side)) is not None:
            place, layers = missing
            missing_parameters = [
                each for each in remaining if _layer_at(each.name, place) in layers
            ]
            remaining = tuple(each for each in remaining if each not in missing_parameters)
            causes.append(
                _layer_count(place, layers, missing_parameters, index, (owner, lacking), side)
            )
        second_bias_names = second_biases({name: each.leaf for name, each in side.items()})
        if second_bias_parameters := [each for each in remaining if each.name in second_bias_names]:
            remaining = tuple(each for each in remaining if each not in second_bias_parameters)
            causes.append(_second_bias(second_bias_parameters, owner, lacking))
        for name, kind, operation in (
            ("missing_bias", "bias", "add"),
            ("missing_scale", "scale", "mul"),
        ):
            vectors = [
                each
                for each in remaining
                if _is_vector(each, kind, side, paired)
                or (
                    _is_only_read_by(operation, each, readers[index])
                    # In the network's own module, arrays of several layers may stand together.
                    and not (
                        _module(each.name) and _stands_beside_unpaired_matrix(each, side, paired)
                    )
                )
            ]
            remaining = tuple(each for each in remaining if each not in vectors)
            if vectors:
                names = [each.name for each in vectors]
                neighbors = _neighbors(names, pairing, index)
                where = f"{', '.join(display_names(side, names))} ({owner.label})"
                if neighbors:
                    counterparts = display_names((pairing.other, pairing.one)[index], neighbors)
                    where += f"; beside {', '.join(counterparts)} ({lacking.label})"
                causes.append(
                    Cause(
                        name,
                        where,
                        f"{owner.label} has {join_names(vectors)}; {lacking.label} has no such "
                        "parameter",
                        _by_side(index, names, neighbors),
                    )
                )
        if remaining:
            causes.append(
                Cause(
                    "architecture",
                    f"{', '.join(each.display_name for each in remaining[:3])} ({owner.label})",
                    f"{join_names(remaining)} of {owner.label} "
                    f"{'has' if len(remaining) == 1 else 'have'} no counterpart in {lacking.label}",
                    _by_side(index, [each.name for each in remaining]),
                )
            )
    return causes


def _layer_at(name: str, place: str) -> str:
    """Return the layer index that follows a place in a name; empty if none follows."""
    inside = name.removeprefix(f"{place}/") if place else name
    index = inside.partition("/")[0]
    return index if inside != name and index.isdigit() else ""


def _missing_layers(
    unpaired: Sequence[Parameter], side: Mapping[str, Parameter]
) -> tuple[str, list[str]] | None:
    """Find layers of a stack of equal ones that have no counterpart.

    Args:
      unpaired: the parameters of a network without a counterpart.
      side: all parameters of that network.

    Returns:
      The place of the stack, and the indices of these layers in it; None if there are none.
    """
    names = {each.name for each in unpaired}
    for name in names:
        words = name.split("/")
        for depth, word in enumerate(words):
            if not depth or not word.isdigit():
                continue
            place = "/".join(words[:depth])
            layers: dict[str, dict[str, tuple[int, ...]]] = {}
            for parameter_name, parameter in side.items():
                if index := _layer_at(parameter_name, place):
                    inside = parameter_name.removeprefix(f"{place}/{index}")
                    layers.setdefault(index, {})[inside] = parameter.shape
            missing = [
                index
                for index, inside in layers.items()
                if all(f"{place}/{index}{each}" in names for each in inside)
            ]
            present = [index for index in layers if index not in missing]
            if (
                present
                and word in missing
                and all(layers[index] == layers[present[0]] for index in missing)
            ):
                return place, missing
    return None


def _layer_count(
    place: str,
    layers: Sequence[str],
    missing: Sequence[Parameter],
    index: int,
    parties: tuple[Side, Side],
    side: Mapping[str, Parameter],
) -> Cause:
    owner, lacking = parties
    count = len({_layer_at(name, place) for name in side} - {""})
    first_parameters = {_layer_at(each.name, place): each for each in reversed(missing)}
    names = [first_parameters[layer].display_place(f"{place}/{layer}") for layer in layers]
    return Cause(
        "layer_count",
        f"{', '.join(names)} ({owner.label})",
        f"{owner.label} has {count} equal layers in {missing[0].display_place(place)}; "
        f"{lacking.label} has {count - len(layers)}",
        _by_side(index, [each.name for each in missing]),
    )


def _pair_resized(
    pairing: Pairing, explained: Collection[str]
) -> list[tuple[Parameter, Parameter]]:
    """Pair the vectors that both networks have left, of other sizes, by kind and order."""
    unpaired = [
        [each for each in side if each.name not in explained]
        for side in (pairing.only_one, pairing.only_other)
    ]
    kinds = [sorted(_kind(each) for each in side) for side in unpaired]
    if not kinds[0] or kinds[0] != kinds[1] or set(kinds[0]) - {"bias", "scale"}:
        return []
    return list(zip(*(sorted(side, key=_kind) for side in unpaired), strict=True))


def _kind(parameter: Parameter) -> str:
    return parameter.name.rpartition("/")[2]


def _of_other_size(
    pairs: Sequence[tuple[Parameter, Parameter]], first: Side, second: Side
) -> Cause:
    names = [", ".join(each.display_name for each in side) for side in zip(*pairs, strict=True)]
    sizes = [join_names(side) for side in zip(*pairs, strict=True)]
    return Cause(
        "architecture",
        f"{names[0]} ({first.label}); {names[1]} ({second.label})",
        f"the layers differ in size: {sizes[0]} in {first.label}, {sizes[1]} in {second.label}",
    )


def _second_bias(parameters: Sequence[Parameter], owner: Side, lacking: Side) -> Cause:
    return Cause(
        "second_bias",
        f"{', '.join(each.display_name for each in parameters)} ({owner.label})",
        f"{owner.label} adds a second bias in each of these gates; {lacking.label} has one, which "
        "gets the sum when weights are translated. Trained alike, a sum of two changes twice as "
        "fast",
    )


def _variants(pairing: Pairing, first: Side, second: Side) -> list[Cause]:
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
                        for each, party in zip(sides, (first, second), strict=True)
                    ),
                    f"{first.label} has {notes[0]}, {second.label} has {notes[1]}",
                )
            ]
    return []


def _is_vector(
    parameter: Parameter, kind: str, side: Mapping[str, Parameter], paired: set[str]
) -> bool:
    """Return whether it is the bias or scale of a layer that has a counterpart."""
    name = parameter.name.rpartition("/")[2]
    if _stands_beside_unpaired_matrix(parameter, side, paired):
        return False  # the whole layer has no counterpart
    return name == kind or (kind == "bias" and name in BIASES)


def _stands_beside_unpaired_matrix(
    parameter: Parameter, side: Mapping[str, Parameter], paired: set[str]
) -> bool:
    module = _module(parameter.name)
    return any(
        name not in paired and len(side[name].shape) > 1 for name in side if _module(name) == module
    )


def _is_only_read_by(name: str, parameter: Parameter, readers: Mapping[str, list[Reader]]) -> bool:
    """Return whether operations of one kind alone read a vector."""
    reading = {reader.name for reader in readers.get(parameter.name, [])}
    return len(parameter.shape) < 2 and reading == {name}


def _neighbors(names: Sequence[str], pairing: Pairing, index: int) -> list[str]:
    """List the counterparts of the parameters in the same modules as some of one network."""
    modules = {_module(name) for name in names}
    pairs = [(each.one, each.other) for each in pairing.pairs]
    return [pair[1 - index] for pair in pairs if _module(pair[index]) in modules]


def _module(name: str) -> str:
    return name.rpartition("/")[0]
