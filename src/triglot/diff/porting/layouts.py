"""Recognize the layers of a file of weights by names, shapes, and the layers of the target."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple, NoReturn, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...backends.layers.kinds import (
    ATTENTION,
    BATCH_NORM,
    CONVOLUTION,
    DENSE,
    EMBEDDING,
    GROUP_NORM,
    LAYER_NORM,
    TRANSPOSED,
)
from ...backends.layers.rules import Layer, UnknownLayout, several_axes
from ...backends.layers.storage import Storage
from ...backends.libraries import find, title
from ...backends.naming import normalize_separators
from ...backends.pairing.biases import inner_biases, second_biases
from ...core.errors import TriglotError
from ...core.network import Codec, Leaf, Network, Statistic, Variables
from ...core.types import PyTree
from ..pairing.parameters import Parameter, place_of, read_parameters

Shape: TypeAlias = tuple[int, ...]
Signature: TypeAlias = tuple[str, tuple[tuple[str, Shape], ...]]  # kind; names and shapes of arrays

MIN_UPDATES = 1000  # updates, after which an average is no longer corrected for its start
# Parts of the names that people give to layers. A convolution and a transposed one are not told
# apart by a name: their kernels may have equal shapes and are stored differently.
USUAL_NAMES = {
    EMBEDDING: "emb|wte|wpe|vocab|token",
    DENSE: "fc|dense|linear|proj|head|mlp",
    LAYER_NORM: "ln|layer_?norm",
    BATCH_NORM: "bn|batch_?norm",
    GROUP_NORM: "gn|group_?norm|instance",
}


class KnownLayer(NamedTuple):
    """A layer of a file whose class and settings are known, as those of a recording.

    Attributes:
      name: the name of the class.
      layer: the listed layer of the class.
      settings: the plain attributes of the layer.
    """

    name: str
    layer: Layer
    settings: Mapping[str, object]


class _Candidate(NamedTuple):
    """A kind of layer that some arrays of the file may be."""

    kind: str
    leaves: dict[str, Leaf]  # by the file's name
    shapes: dict[str, tuple[int, ...]]  # of the canonical arrays


class FileNetwork(NamedTuple):
    """The network whose arrays a file holds, as far as the file shows it.

    Attributes:
      network: a network without a function, to `translate` from.
      variables: the arrays of the file.
      notes: what was assumed of layers that the shapes of their arrays do not tell apart.
    """

    network: Network
    variables: Variables
    notes: tuple[str, ...]


def network_of(
    arrays: Mapping[str, np.ndarray],
    library: str,
    target: Network,
    file_name: str,
    known_layers: Mapping[str, KnownLayer] | None = None,
) -> FileNetwork:
    """Describe a file's arrays by the layers that a library has with such names and shapes.

    Where several layers are stored alike (a dense layer and an embedding), the kinds of the
    target's layers of the same shapes decide.

    Args:
      arrays: the arrays of the file, by the library's names.
      library: the library that wrote them.
      target: the network that will hold them.
      file_name: the file, for messages.
      known_layers: layers whose class is known, by the place before their arrays' names.

    Raises:
      TriglotError: if the library is not known, or the names of a layer fit two kinds.
    """
    storage = find(library).storage
    if not storage.layers:
        raise TriglotError(
            f"--from {library}: no layouts of its layers are known: give the network of the file, "
            "--source my_file:net."
        )
    collections = tuple(filter(None, (storage.parameters_in, storage.statistics_in)))
    if collections and all(name.startswith(collections) for name in arrays):
        arrays = {name.removeprefix(storage.parameters_in): a for name, a in arrays.items()}
    in_state = {name for name in arrays if _end(name, storage) is not None}
    statistics = {
        name: kind for name in in_state if (kind := _statistic(name, storage)) is not None
    }
    params = {name: array for name, array in arrays.items() if name not in in_state}
    target_layers = _Target.of(read_parameters(target))
    if storage.corrects_start:
        _check_settled(arrays, statistics, title(library), file_name)
    leaves: dict[str, Leaf] = {}
    notes: list[str] = []
    for group in _groups(params, storage):
        layer = (known_layers or {}).get(group.place.rstrip("./"))
        if layer is not None and (layer.layer.refused or group.fits(layer.layer)):
            leaves |= _leaves_of_known(group, layer, library)
            continue
        normalized = any(name.startswith(group.place) for name in statistics)
        candidates = _candidates(group, storage, target_layers.num_heads, normalized)
        chosen = _choose(group, candidates, target_layers, file_name)
        if chosen is not None:
            leaves |= chosen.leaves
            notes += _assumption_notes(group, chosen, candidates)
    for name in params:
        if name not in leaves:
            leaves[name] = _unknown_leaf(name, params[name].shape, library)
    state = {name: jnp.asarray(arrays[name]) for name in statistics}
    param_arrays = {name: jnp.asarray(array) for name, array in params.items()}

    variables = Variables(params=param_arrays, state=state)

    def fail(*args: PyTree, **kwargs: PyTree) -> NoReturn:
        raise TriglotError(f"{file_name} holds weights, and no network: give --source.")

    network = Network(
        name=file_name,
        backend=library,
        init=lambda key: variables,
        apply=fail,
        codec=Codec.named(
            param_arrays, [leaves[name] for name in sorted(param_arrays)], sorted(param_arrays)
        ),
        statistics=tuple(statistics[name] for name in sorted(state)),
    )
    return FileNetwork(network, variables, tuple(notes))


def _check_settled(
    arrays: Mapping[str, np.ndarray],
    statistics: Mapping[str, Statistic],
    library: str,
    file_name: str,
) -> None:
    for name, kind in statistics.items():
        if kind.counts and arrays[name].dtype.kind == "i" and arrays[name] < MIN_UPDATES:
            raise TriglotError(
                f"{file_name}: {name} is {arrays[name]}, so {library}'s averages are still "
                "bias-corrected, by a momentum that the file does not contain: give the network of "
                "the file, --source my_file:net."
            )


class _Group(NamedTuple):
    """Arrays below one place whose names are those of a listed layer's parameters."""

    place: str  # with the separator behind it
    names: dict[str, str]  # the file's, by the name inside the layer
    shapes: dict[str, Shape]  # by the name inside the layer

    @property
    def canonical_place(self) -> str:
        return normalize_separators(self.place)

    @property
    def title(self) -> str:
        return self.place.rstrip("./") or "the array"

    def fits(self, layer: Layer) -> bool:
        return self.names.keys() <= layer.parameters.keys()


def _groups(params: Mapping[str, np.ndarray], storage: Storage) -> list[_Group]:
    """Find the outermost places below which a listed layer has all names."""
    layers = storage.layers.values()
    parameters = [set(layer.parameters) for layer in layers if layer.parameters]
    names_below: dict[str, dict[str, str]] = {}
    for name in params:
        for end in [0, *(m.end() for m in re.finditer(r"[./]", name))]:
            inside = name[end:].replace(".", "/")
            names_below.setdefault(name[:end], {})[inside] = name
    groups: list[_Group] = []
    for place in sorted(names_below, key=len):
        if any(place.startswith(group.place) for group in groups):
            continue
        below = names_below[place]
        if any(below.keys() <= names for names in parameters):
            shapes = {inside: params[name].shape for inside, name in below.items()}
            groups.append(_Group(place, below, shapes))
    return groups


def _leaves_of_known(group: _Group, known_layer: KnownLayer, library: str) -> dict[str, Leaf]:
    """Describe the arrays of a layer whose class is known."""
    leaves: dict[str, Leaf] = {}
    stand_in = layer_of_settings(known_layer.settings, group.shapes)
    for inside, name in group.names.items():
        unknown = known_layer.layer.refused and f": {known_layer.layer.refused}"
        try:
            rule = known_layer.layer.parameters.get(inside)
            leaf = None if rule is None else rule(stand_in, group.shapes[inside])
        except (UnknownLayout, AttributeError) as problem:
            leaf, unknown = None, f", but {problem}"
        if leaf is not None:
            leaves[name] = _name_by_place(group, known_layer.layer, leaf)
        else:
            reason = f"it belongs to {library}'s {known_layer.name}{unknown}"
            layer = f"{library} {known_layer.name}"
            leaves[name] = Leaf((normalize_separators(name),), layer=layer, unknown=reason)
    return leaves


def layer_of_settings(
    settings: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]
) -> SimpleNamespace:
    """Build what rules read of a layer.

    Args:
      settings: the attributes of the layer.
      shapes: the shapes of its arrays, by the names of `Layer.parameters`.
    """
    return SimpleNamespace(**{**settings, "shapes": shapes})


def _candidates(
    group: _Group, storage: Storage, num_heads: int | None, has_statistics: bool
) -> list[_Candidate]:
    """List the kinds of layers that have arrays of these names and shapes, each layout once."""
    candidates: list[_Candidate] = []
    for layer in storage.layers.values():
        if not group.fits(layer) or (layer.kind == BATCH_NORM) < has_statistics:
            continue
        for variant in layer.variants(group.shapes):
            settings = variant if num_heads is None else {"num_heads": num_heads, **variant}
            candidate = _candidate(group, layer, settings)
            if candidate is not None and not any(
                each.kind == candidate.kind and _stored_alike(group, each, candidate)
                for each in candidates
            ):
                candidates.append(candidate)
    return candidates


def _candidate(group: _Group, layer: Layer, settings: Mapping[str, object]) -> _Candidate | None:
    """Describe a layer's arrays by its rules; None if these do not fit the shapes."""
    leaves: dict[str, Leaf] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for inside, name in group.names.items():
        shape = group.shapes[inside]
        spatial = {"num_spatial_dims": len(shape) - 2} if len(shape) > 2 else {}
        stand_in = layer_of_settings({**spatial, **settings}, group.shapes)
        try:
            leaf = _name_by_place(group, layer, layer.parameters[inside](stand_in, shape))
            arrays = jax.eval_shape(leaf.encode, jax.ShapeDtypeStruct(shape, jnp.float32))
        except (UnknownLayout, AttributeError, TypeError, ValueError):
            return None
        leaves[name] = leaf
        shapes |= {n: tuple(a.shape) for n, a in zip(leaf.names, arrays, strict=True)}
    if layer.kind in (DENSE, CONVOLUTION, TRANSPOSED):
        kernel, bias = (shapes.get(f"{group.canonical_place}/{n}".strip("/"))
                        for n in ("kernel", "bias"))  # fmt: skip
        if kernel is not None and bias is not None and bias != kernel[-1:]:
            return None
    return _Candidate(layer.kind, leaves, shapes)


def _name_by_place(group: _Group, layer: Layer, leaf: Leaf) -> Leaf:
    """Name the canonical arrays of a leaf by the place of its layer."""
    names = tuple(f"{group.canonical_place}/{each}".strip("/") for each in leaf.names)
    return replace(leaf, names=names, layer=leaf.layer or layer.kind)


def _stored_alike(group: _Group, first: _Candidate, second: _Candidate) -> bool:
    """Check whether two candidates give equal canonical arrays."""
    if first.shapes != second.shapes:
        return False
    for inside, name in group.names.items():
        leaf, shape = first.leaves[name], group.shapes[inside]
        if leaf.names != second.leaves[name].names:
            return False
        if several_axes(shape):
            numbers = jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape)
            pair = zip(leaf.encode(numbers), second.leaves[name].encode(numbers), strict=True)
            if not all(np.array_equal(a, b) for a, b in pair):
                return False
    return True


def _choose(
    group: _Group, candidates: Sequence[_Candidate], target: "_Target", file_name: str
) -> _Candidate | None:
    """Choose among the kinds that the arrays may be: those that the target has, then by names.

    Raises:
      TriglotError: if the target has several.
    """
    fitting = [each for each in candidates if target.has(each)]
    options = fitting or list(candidates)
    for chosen in (
        [each for each in options if target.kinds.get(group.canonical_place) == each.kind],
        [each for each in options if _sounds_like(group.place, each.kind)],
    ):
        options = chosen if len(options) > 1 and len(chosen) == 1 else options
    if len(options) > 1 and fitting:
        kinds = list(dict.fromkeys(each.kind for each in options))
        description = f"{' or '.join(kinds)}, and the target has both with these shapes"
        if len(kinds) == 1:
            description = f"{kinds[0]} with its kernel in one of several layouts of equal shape"
        raise TriglotError(
            f"{file_name}: {group.title} may be {description}: give the network of the file, "
            "--source my_file:net."
        )
    return next(iter(options), None)


def _assumption_notes(
    group: _Group, chosen: _Candidate, candidates: Sequence[_Candidate]
) -> Iterator[str]:
    """State the choice between layers that have arrays of equal shapes and store them otherwise."""
    alternatives = [
        each.kind
        for each in candidates
        if each.shapes == chosen.shapes and not _stored_alike(group, each, chosen)
    ]
    if alternatives:
        yield (
            f"{group.title} is taken to be {chosen.kind}, as in the target; by its shapes it may "
            f"be {' or '.join(dict.fromkeys(alternatives))}, which is stored differently"
        )


def _sounds_like(place: str, kind: str) -> bool:
    """Check whether a layer's name contains a usual one for its kind."""
    return kind in USUAL_NAMES and re.search(USUAL_NAMES[kind], place.lower()) is not None


class _Target(NamedTuple):
    """The layers of the network that will hold the arrays.

    Attributes:
      signatures: each layer's kind, and the names and shapes of its arrays.
      kinds: the kind of the layer at each place where all arrays are of one kind.
      num_heads: the number of attention heads, which files lack; None if there are several.
    """

    signatures: Counter[Signature]
    kinds: dict[str, str]
    num_heads: int | None

    @classmethod
    def of(cls, parameters: Mapping[str, Parameter]) -> "_Target":
        kinds: dict[str, str] = {}
        for each in parameters.values():
            kinds.setdefault(place_of(each)[0], each.leaf.layer)
        heads = {
            each.shape[-2]
            for name, each in parameters.items()
            if each.leaf.layer == ATTENTION and name.endswith("query/kernel")
        }
        num_heads = heads.pop() if len(heads) == 1 else None
        return cls(Counter(_signatures(parameters)), kinds, num_heads)

    def has(self, candidate: _Candidate) -> bool:
        """Check whether it has layers of these kinds with arrays of these names and shapes."""
        leaves = {n: leaf for leaf in candidate.leaves.values() for n in leaf.names}
        parameters = {
            name: Parameter(name, shape, "", leaves[name])
            for name, shape in candidate.shapes.items()
        }
        return all(each in self.signatures for each in _signatures(parameters))


def _signatures(parameters: Mapping[str, Parameter]) -> list[Signature]:
    """Describe each layer by its kind and what all libraries have of it."""
    leaves = {name: each.leaf for name, each in parameters.items()}
    extra = {*second_biases(leaves), *inner_biases(leaves)}
    layers: dict[tuple[str, str], list[tuple[str, tuple[int, ...]]]] = {}
    for name, each in parameters.items():
        members = layers.setdefault((place_of(each)[0], each.leaf.layer), [])
        if name not in extra:
            members.append((name.rpartition("/")[2], each.shape))
    return [(kind, tuple(sorted(members))) for (_, kind), members in layers.items()]


def _end(name: str, storage: Storage) -> str | None:
    """Find the end of a running statistic's name; None for another array."""
    flat = f"/{name.replace('.', '/')}"
    end_found = next((end for end in storage.statistics if flat.endswith(f"/{end}")), None)
    # Flax's are in a collection, since a parameter may be called `mean` too.
    return end_found if storage.statistics_in in flat else None


def _statistic(name: str, storage: Storage) -> Statistic | None:
    """Describe a running statistic by its name in the file."""
    end = _end(name, storage)
    if end is None or (statistic := storage.statistics[end]) is None:
        return None
    prefix = name[: -len(end)]
    place = prefix.partition("batch_stats/")[2] or prefix
    return Statistic(f"{normalize_separators(place)}/{statistic}".strip("/"))


def _unknown_leaf(name: str, shape: Sequence[int], library: str) -> Leaf:
    canonical = normalize_separators(name)
    if not several_axes(tuple(shape)):
        return Leaf((canonical,))
    reason = f"no layer of {library} that is listed has parameters of these names and ranks"
    return Leaf((canonical,), layer=f"{library} a function", unknown=reason)
