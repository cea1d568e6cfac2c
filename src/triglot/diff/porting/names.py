"""A network's arrays under the names that its library writes into files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ...backends.libraries import storage_of
from ...backends.naming import normalize_separators, words_of
from ...core.errors import TriglotError, check_path
from ...core.network import Network, Statistic, Variables, check_network
from .files import ORDERED, read_weights


@dataclass(frozen=True)
class Place:
    """One array of a network.

    Attributes:
      name: the library's own, such as `params/Dense_0/kernel` or `layers.0.weight`.
      array: the shape and dtype of the array.
      statistic: the running statistic that it is; None for another array.
    """

    name: str
    array: jax.ShapeDtypeStruct
    statistic: Statistic | None = None


def places_of(network: Network) -> list[Place]:
    """List a network's arrays in the order in which its `Variables` flatten."""
    abstract = jax.eval_shape(network.init, jax.random.key(0))
    params, state = map(jax.tree_util.tree_leaves_with_path, (abstract.params, abstract.state))
    file_name = storage_of(network.backend).file_name
    places = [Place(file_name("params", words_of(path), None), leaf) for path, leaf in params]
    kinds = network.statistics or (None,) * len(state)
    for (path, leaf), kind in zip(state, kinds, strict=True):
        places.append(Place(file_name("state", words_of(path), kind), leaf, kind))
    return places


def named_arrays(variables: Variables, network: Network) -> dict[str, np.ndarray]:
    """Name the arrays of variables as the network's library does."""
    leaves = jax.tree.leaves(variables)
    places = places_of(network)
    return {place.name: np.asarray(leaf) for place, leaf in zip(places, leaves, strict=True)}


def load_weights(path: str | Path, network: Network, *, trust: bool = False) -> Variables:
    """Read a file into a network of the library that wrote it.

    Args:
      path: a file that `triglot translate` or the library wrote; see `files.read_weights`.
      network: the one that was saved.
      trust: read a pickle, which may run code.

    Returns:
      Its variables; `start_from(network, variables)` starts a training with them.

    Raises:
      TriglotError: if the file cannot be read, or is of another network.
    """
    check_path("path", path)
    check_network("network", network)
    path = Path(path)
    return variables_from(read_weights(path, trust=trust), network, path)[0]


def variables_from(
    arrays: Mapping[str, np.ndarray], network: Network, path: Path
) -> tuple[Variables, list[str]]:
    """Put named arrays into a network of the same library.

    Args:
      arrays: the result of `files.read_weights`. Prefixes that all names share are left out where
        the network's names have none.
      network: the network; counters that the file lacks keep their initial values.
      path: the path of the file, for messages.

    Returns:
      The variables, and the names of arrays that the network has no place for.

    Raises:
      TriglotError: if the network has an array that the file lacks, or of another shape.
    """
    places = places_of(network)
    file_names = _in_order(arrays, places) if path.suffix == ORDERED else _by_name(arrays, places)
    initial, structure = jax.tree.flatten(network.init(jax.random.key(0)))
    counters = {p.name for p in places if p.statistic is not None and p.statistic.counts}
    missing = [p for p in places if p.name not in file_names and p.name not in counters]
    if missing:
        listed = ", ".join(f"{p.name} {list(p.array.shape)}" for p in missing[:4])
        unused = [
            f"{name} {list(array.shape)}" for name, array in _unused(arrays, file_names).items()
        ]
        unused_note = (
            f" The network does not use {', '.join(unused[:4])} of the file." if unused else ""
        )
        raise TriglotError(
            f"{path} lacks {len(missing)} of the {len(places)} arrays of {network.name!r} "
            f"({listed}).{unused_note} Is it the network that was saved?"
        )
    leaves = []
    for place, initial_leaf in zip(places, initial, strict=True):
        array = (
            arrays[file_names[place.name]] if place.name in file_names else np.asarray(initial_leaf)
        )
        if array.shape != place.array.shape:
            raise TriglotError(
                f"{path}: {file_names[place.name]} is {list(array.shape)}, and {place.name} of "
                f"{network.name!r} is {list(place.array.shape)}: the sizes differ."
            )
        leaves.append(jnp.asarray(array, place.array.dtype))
    return jax.tree.unflatten(structure, leaves), list(_unused(arrays, file_names))


def _unused(
    arrays: Mapping[str, np.ndarray], file_names: Mapping[str, str]
) -> dict[str, np.ndarray]:
    used = set(file_names.values())
    return {name: array for name, array in arrays.items() if name not in used}


def _by_name(arrays: Mapping[str, np.ndarray], places: Sequence[Place]) -> dict[str, str]:
    """Find the file's name of each place; prefixes of either side may lack on the other."""
    place_names = {normalize_separators(place.name): place.name for place in places}
    array_names = {normalize_separators(name): name for name in arrays}
    best: dict[str, str] = {}
    for shortened in (place_names, _without_first(place_names)):
        remaining = array_names
        while remaining:
            common = {shortened[name]: remaining[name] for name in shortened if name in remaining}
            best = max(best, common, key=len)
            shorter = _without_first(remaining)
            remaining = shorter if shorter != remaining else {}
    return best


def _without_first(names: Mapping[str, str]) -> dict[str, str]:
    """Leave out the first word of names that have several, such as `params` or `model`."""
    return {name.partition("/")[2] or name: original for name, original in names.items()}


def _in_order(arrays: Mapping[str, np.ndarray], places: Sequence[Place]) -> dict[str, str]:
    """Pair arrays without names by their order and shape; numbers between them are constants."""
    file_names: dict[str, str] = {}
    remaining: list[tuple[str, np.ndarray]] = list(arrays.items())
    for place in places:
        for index, (name, array) in enumerate(remaining):
            if array.shape == place.array.shape and array.dtype == place.array.dtype:
                file_names[place.name] = name
                remaining = remaining[index + 1 :]
                break
    return file_names
