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


@dataclass
class _Leftovers:
    """The parameters that one network has and the other lacks.

    Attributes:
      index: 0 if it is the first network, 1 for the second.
      owner, lacking: the network that has them, and the other one.
      side: all parameters of the owner.
      remaining: those that have no cause yet.
    """

    index: int
    owner: Side
    lacking: Side
    side: Mapping[str, Parameter]
    remaining: list[Parameter]

    def take(self, chosen: list[Parameter]) -> list[Parameter]:
        """Return some of the remaining parameters, which then have a cause."""
        self.remaining = [each for each in self.remaining if each not in chosen]
        return chosen

    def cause(
        self, name: str, parameters: Sequence[Parameter], evidence: str, where: str = ""
    ) -> Cause:
        """Make a cause of parameters, at their names unless another place is given."""
        where = where or ", ".join(each.display_name for each in parameters)
        names = _by_side(self.index, [each.name for each in parameters])
        return Cause(name, f"{where} ({self.owner.label})", evidence, names)


def leftover_causes(
    pairing: Pairing,
    explained: Collection[str],
    first: Side,
    second: Side,
    read_uses: Callable[[], tuple[Uses, Uses]],
) -> list[Cause]:
    """Name a cause for each parameter without a counterpart, except the `explained` ones."""
    causes = _variants(pairing, first, second)
    variants = {cause.name for cause in causes}
    unpaired = (*pairing.only_one, *pairing.only_other)
    if "norm_axis" in variants:
        explained = {*explained, *(p.name for p in unpaired if p.leaf.note in NORMS.values())}
    readers = [each.readers for each in read_uses()] if unpaired else [{}, {}]
    if resized := _pair_resized(pairing, explained):
        explained = {*explained, *(each.name for pair in resized for each in pair)}
        causes.append(_of_other_size(resized, first, second))
    for index, (owner, lacking, side, only) in enumerate(
        (
            (first, second, pairing.one, pairing.only_one),
            (second, first, pairing.other, pairing.only_other),
        )
    ):
        remaining = [each for each in only if each.name not in explained]
        if "gru_variant" in variants:
            remaining = [each for each in remaining if not is_inner_bias(each.name)]
        left = _Leftovers(index, owner, lacking, side, remaining)
        if (missing := _missing_layers(left.remaining, side)) is not None:
            causes.append(_layer_count(left, *missing))
        second_bias_names = second_biases({name: each.leaf for name, each in side.items()})
        if taken := left.take([p for p in left.remaining if p.name in second_bias_names]):
            causes.append(_second_bias(left, taken))
        for name, kind, operation in (
            ("missing_bias", "bias", "add"),
            ("missing_scale", "scale", "mul"),
        ):
            vectors = _vectors(left, kind, operation, pairing, readers[index])
            if left.take(vectors):
                causes.append(_missing_vectors(left, name, vectors, pairing))
        if left.remaining:
            evidence = (
                f"{join_names(left.remaining)} of {owner.label} "
                f"{'has' if len(left.remaining) == 1 else 'have'} no counterpart in {lacking.label}"
            )
            where = ", ".join(each.display_name for each in left.remaining[:3])
            causes.append(left.cause("architecture", left.remaining, evidence, where))
    return causes


def _vectors(
    left: _Leftovers,
    kind: str,
    operation: str,
    pairing: Pairing,
    readers: Mapping[str, list[Reader]],
) -> list[Parameter]:
    """List the biases, or scales, of layers that have a counterpart."""
    paired = {name for pair in pairing.pairs for name in (pair.one, pair.other)}
    matrices = [n for n, each in left.side.items() if len(each.shape) > 1 and n not in paired]
    modules = {_module(name) for name in matrices}  # layers that have no counterpart
    kinds = BIASES if kind == "bias" else (kind,)
    vectors = []
    for each in left.remaining:
        module, _, name = each.name.rpartition("/")
        reading = {reader.name for reader in readers.get(each.name, [])}
        is_named_so = name in kinds and module not in modules
        is_read_so = len(each.shape) < 2 and reading == {operation}
        # In the network's own module, arrays of several layers may stand together.
        if is_named_so or (is_read_so and not (module and module in modules)):
            vectors.append(each)
    return vectors


def _missing_vectors(
    left: _Leftovers, name: str, vectors: list[Parameter], pairing: Pairing
) -> Cause:
    owner, lacking = left.owner.label, left.lacking.label
    evidence = f"{owner} has {join_names(vectors)}; {lacking} has no such parameter"
    cause = left.cause(name, vectors, evidence)
    names = [each.name for each in vectors]
    neighbors = _neighbors(names, pairing, left.index)
    if not neighbors:
        return cause
    counterparts = display_names((pairing.other, pairing.one)[left.index], neighbors)
    where = f"{cause.where}; beside {', '.join(counterparts)} ({lacking})"
    return replace(cause, where=where, parameters=_by_side(left.index, names, neighbors))


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


def _layer_count(left: _Leftovers, place: str, layers: Sequence[str]) -> Cause:
    missing = left.take([p for p in left.remaining if _layer_at(p.name, place) in layers])
    count = len({_layer_at(name, place) for name in left.side} - {""})
    first_parameters = {_layer_at(each.name, place): each for each in reversed(missing)}
    names = [first_parameters[layer].display_place(f"{place}/{layer}") for layer in layers]
    evidence = (
        f"{left.owner.label} has {count} equal layers in {missing[0].display_place(place)}; "
        f"{left.lacking.label} has {count - len(layers)}"
    )
    return left.cause("layer_count", missing, evidence, ", ".join(names))


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


def _second_bias(left: _Leftovers, parameters: Sequence[Parameter]) -> Cause:
    evidence = (
        f"{left.owner.label} adds a second bias in each of these gates; {left.lacking.label} has "
        "one, which gets the sum when weights are translated. Trained alike, a sum of two changes "
        "twice as fast"
    )
    where = ", ".join(each.display_name for each in parameters)
    return left.cause("second_bias", (), evidence, where)


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


def _neighbors(names: Sequence[str], pairing: Pairing, index: int) -> list[str]:
    """List the counterparts of the parameters in the same modules as some of one network."""
    modules = {_module(name) for name in names}
    pairs = [(each.one, each.other) for each in pairing.pairs]
    return [pair[1 - index] for pair in pairs if _module(pair[index]) in modules]


def _module(name: str) -> str:
    return name.rpartition("/")[0]
