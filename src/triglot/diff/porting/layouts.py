"""The layers of a file whose network is not at hand: by names, shapes, and what the target has."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

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
from ..pairing.parameters import Parameter, place_of, read_parameters

COLLECTIONS = ("params/", "batch_stats/")
SEEN = 1000  # updates, after which an average is no longer corrected for its start
KERNELS = ("weight", "kernel", "w")
USUAL = {  # parts of the names that people give to layers
    EMBEDDING: "emb|wte|wpe|vocab|token",
    DENSE: "fc|dense|linear|proj|head|mlp",
    LAYER_NORM: "ln|layer_?norm",
    BATCH_NORM: "bn|batch_?norm",
    GROUP_NORM: "gn|group_?norm|instance",
    TRANSPOSED: "up|transpose|deconv",
    CONVOLUTION: "conv",
}


class _Found(NamedTuple):
    """A layer of the file: the kind that the target has too, and its arrays."""

    kind: str
    leaves: dict[str, Leaf]  # by the file's name


def network_of(
    arrays: Mapping[str, np.ndarray], library: str, target: Network, shown: str
) -> tuple[Network, Variables]:
    """Describe a file's arrays by the layers that a library has with such names and shapes.

    Where several layers are stored alike (a dense layer and an embedding), the kinds of the
    target's layers of the same shapes decide.

    Args:
      arrays: by the library's names.
      library: that wrote them.
      target: the network that will hold them.
      shown: the file, for messages.

    Returns:
      A network without a function, to `translate` from, and its variables.

    Raises:
      TriglotError: if the library is not known, or the names of a layer fit two kinds.
    """
    storage = find(library).storage
    if not storage.layers:
        raise TriglotError(
            f"--from {library}: no layouts of its layers are known: give the network of the file, "
            "--source my_file:net."
        )
    if all(name.startswith(COLLECTIONS) for name in arrays):  # of Flax
        arrays = {name.removeprefix("params/"): array for name, array in arrays.items()}
    in_state = {name for name in arrays if _end(name, storage) is not None}
    statistics = {
        name: kind for name in in_state if (kind := _statistic(name, storage)) is not None
    }
    params = {name: array for name, array in arrays.items() if name not in in_state}
    parameters = read_parameters(target)
    wanted, num_heads = _signatures(parameters), _num_heads(parameters)
    if storage.corrects_start:
        _check_settled(arrays, statistics, title(library), shown)
    leaves: dict[str, Leaf] = {}
    for group in _groups(params, storage):
        normalized = any(name.startswith(group.place) for name in statistics)
        found = _choose(group, params, storage, wanted, num_heads, normalized, shown)
        leaves |= found.leaves
    for name in params:
        if name not in leaves:
            leaves[name] = _unknown(name, params[name].shape, library)
    state = {name: jnp.asarray(arrays[name]) for name in statistics}
    own = {name: jnp.asarray(array) for name, array in params.items()}

    def cannot(*args: Any, **kwargs: Any) -> Any:
        raise TriglotError(f"{shown} holds weights, and no network: give --source.")

    network = Network(
        name=shown,
        backend=library,
        init=cannot,
        apply=cannot,
        codec=Codec.named(own, [leaves[name] for name in sorted(own)]),
        statistics=tuple(statistics[name] for name in sorted(state)),
    )
    return network, Variables(params=own, state=state)


def _check_settled(
    arrays: Mapping[str, np.ndarray],
    statistics: Mapping[str, Statistic],
    library: str,
    shown: str,
) -> None:
    for name, kind in statistics.items():
        if kind.counts and arrays[name].dtype.kind == "i" and arrays[name] < SEEN:
            raise TriglotError(
                f"{shown}: {name} is {arrays[name]}, so {library}'s averages are still corrected "
                "for their start, by a momentum that the file does not hold: give the network of "
                "the file, --source my_file:net."
            )


class _Group(NamedTuple):
    """Arrays below one place whose names are those of a listed layer's parameters."""

    place: str  # with the separator behind it
    names: dict[str, str]  # the file's, by the name inside the layer


def _groups(params: Mapping[str, np.ndarray], storage: Storage) -> list[_Group]:
    """Find the outermost places below which a listed layer has all names."""
    layers = storage.layers.values()
    parameters = [set(layer.parameters) for layer in layers if layer.parameters]
    below: dict[str, dict[str, str]] = {}
    for name in params:
        for end in [0, *(m.end() for m in re.finditer(r"[./]", name))]:
            inside = name[end:].replace(".", "/")
            below.setdefault(name[:end], {})[inside] = name
    found: list[_Group] = []
    for place in sorted(below, key=len):
        if any(place.startswith(group.place) for group in found):
            continue
        if any(below[place].keys() <= names for names in parameters):
            found.append(_Group(place, below[place]))
    return found


def _choose(
    group: _Group,
    params: Mapping[str, np.ndarray],
    storage: Storage,
    wanted: Counter[Any],
    num_heads: int | None,
    has_statistics: bool,
    shown: str,
) -> _Found:
    """Choose the kind of a layer among those that are stored with these names and ranks."""
    found: dict[str, _Found] = {}
    for layer in storage.layers.values():
        if group.names.keys() <= layer.parameters.keys():
            leaves = _leaves_of(group, params, layer, num_heads)
            if leaves is not None and (layer.kind == BATCH_NORM) >= has_statistics:
                found.setdefault(layer.kind, _Found(layer.kind, leaves))
    fitting = {kind: one for kind, one in found.items() if wanted[_signature(one, params)]}
    options = fitting or found
    if len(options) > 1:
        by_name = [kind for kind in options if _sounds_like(group.place, kind)]
        options = {kind: options[kind] for kind in by_name} if len(by_name) == 1 else options
    if len(options) > 1 and fitting:
        raise TriglotError(
            f"{shown}: {group.place.rstrip('./') or 'the array'} may be {' or '.join(options)}, "
            "and the target has both with these shapes: give the network of the file, --source "
            "my_file:net."
        )
    return next(iter(options.values()), _Found("", {}))


def _sounds_like(place: str, kind: str) -> bool:
    """Check whether a layer's name contains a usual one for its kind."""
    return kind in USUAL and re.search(USUAL[kind], place.lower()) is not None


def _leaves_of(
    group: _Group, params: Mapping[str, np.ndarray], layer: Layer, num_heads: int | None
) -> dict[str, Leaf] | None:
    """Describe a layer's arrays by its rules; None if these do not fit the shapes."""
    place = normalize_separators(group.place)
    leaves: dict[str, Leaf] = {}
    for inside, name in group.names.items():
        rank = params[name].ndim
        stand_in = SimpleNamespace(num_spatial_dims=rank - 2, transpose_kernel=False)
        if num_heads is not None:
            stand_in.num_heads = num_heads
        try:
            leaf = layer.parameters[inside](stand_in, params[name].shape)
            jax.eval_shape(leaf.encode, params[name])
        except (UnknownLayout, AttributeError, TypeError, ValueError):
            return None
        if layer.kind in (CONVOLUTION, TRANSPOSED) and rank < 3 and inside in KERNELS:
            return None
        names = tuple(f"{place}/{own}".strip("/") for own in leaf.names)
        leaves[name] = Leaf(names, leaf.encode, leaf.decode, leaf.note, leaf.layer or layer.kind)
    return leaves


def _signature(found: _Found, params: Mapping[str, np.ndarray]) -> Any:
    shapes: dict[str, Any] = {}
    for name, leaf in found.leaves.items():
        arrays = jax.eval_shape(leaf.encode, params[name])
        shapes |= {own: array.shape for own, array in zip(leaf.names, arrays, strict=True)}
    by_name = {own: leaf for leaf in found.leaves.values() for own in leaf.names}
    return found.kind, _common(shapes, by_name)


def _signatures(target: Mapping[str, Parameter]) -> Counter[Any]:
    """Count the target's layers by kind, and the names and shapes of their arrays."""
    layers: dict[tuple[str, str], list[Parameter]] = {}
    for one in target.values():
        layers.setdefault((place_of(one)[0], one.leaf.layer), []).append(one)
    return Counter(
        (kind, _common({one.name: one.shape for one in found}, {o.name: o.leaf for o in found}))
        for (_, kind), found in layers.items()
    )


def _common(shapes: Mapping[str, Any], leaves: Mapping[str, Leaf]) -> Any:
    """Describe a layer by what all libraries have of it."""
    extra = {*second_biases(leaves), *inner_biases(leaves)}
    return tuple(sorted((n.rpartition("/")[2], shapes[n]) for n in shapes if n not in extra))


def _num_heads(target: Mapping[str, Parameter]) -> int | None:
    """Read the number of heads, which files do not hold, off the target's attention layers."""
    found = {
        one.shape[-2]
        for name, one in target.items()
        if one.leaf.layer == ATTENTION and name.endswith("query/kernel")
    }
    return found.pop() if len(found) == 1 else None


def _end(name: str, storage: Storage) -> str | None:
    """Find the end of a running statistic's name; None for another array."""
    flat = f"/{name.replace('.', '/')}"
    found = next((end for end in storage.statistics if flat.endswith(f"/{end}")), None)
    # Flax's are in a collection, since a parameter may be called `mean` too.
    return found if storage.statistics_in in flat else None


def _statistic(name: str, storage: Storage) -> Statistic | None:
    """Describe a running statistic by its name in the file."""
    end = _end(name, storage)
    if end is None or (what := storage.statistics[end]) is None:
        return None
    before = name[: -len(end)]
    place = before.partition("batch_stats/")[2] or before
    return Statistic(f"{normalize_separators(place)}/{what}".strip("/"))


def _unknown(name: str, shape: Sequence[int], library: str) -> Leaf:
    canonical = normalize_separators(name)
    if not several_axes(tuple(shape)):
        return Leaf((canonical,))
    reason = f"no layer of {library} that is listed has parameters of these names and ranks"
    return Leaf((canonical,), layer=f"{library} a function", unknown=reason)
