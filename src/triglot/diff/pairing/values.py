"""Compare the numbers of two checkpoints, and explain arrays that differ."""

import itertools
from collections.abc import Iterator, Mapping

import jax
import numpy as np

from ...backends.libraries import storage_of
from ...backends.naming import words_of
from ...core.network import Network, Variables
from ..types import Cause, codec_of
from .parameters import Pairing

EQUAL = 1e-6  # relative to the largest number of an array
MAX_BLOCKS = 4  # gates, or query, key and value


def named_values(network: Network, variables: Variables) -> dict[str, np.ndarray]:
    """Return parameters and running statistics by canonical name, in float64."""
    encoded = codec_of(network).encode(variables.params)
    values = {name: np.asarray(array, np.float64) for name, array in encoded.items()}
    state = jax.tree.leaves(variables.state)
    for kind, array in zip(network.statistics or (), state, strict=False):
        if kind is not None and not kind.counts:
            values[kind.name] = np.asarray(array, np.float64)
    return values


def display_names(network: Network, variables: Variables) -> dict[str, str]:
    """Name parameters and running statistics as their author knows them, by canonical name."""
    names = codec_of(network).display_names
    file_name = storage_of(network.backend).file_name
    state = jax.tree_util.tree_leaves_with_path(variables.state)
    for kind, (path, _) in zip(network.statistics or (), state, strict=False):
        if kind is not None:
            names.setdefault(kind.name, file_name("state", words_of(path), kind))
    return names


def weight_causes(
    pairing: Pairing,
    networks: tuple[Network, Network],
    variables: tuple[Variables, Variables],
    labels: tuple[str, str],
) -> list[Cause]:
    """Name the paired parameters, and the running statistics of their layers, that differ."""
    first, second = (named_values(*side) for side in zip(networks, variables, strict=True))
    pairs = {pair.one: pair.other for pair in pairing.pairs}
    layers = {a.rpartition("/")[0]: b.rpartition("/")[0] for a, b in pairs.items()}
    for name in first.keys() - pairs.keys():
        layer, _, last = name.rpartition("/")
        counterpart = f"{layers.get(layer, layer)}/{last}".strip("/")
        if name not in pairing.one and counterpart in second:
            pairs[name] = counterpart
    author_names = tuple(display_names(*side) for side in zip(networks, variables, strict=True))
    paired = {name: pairs[name] for name in first if name in pairs}
    return list(
        difference_causes(first, second, paired, labels, (author_names[0], author_names[1]))
    )


def difference_causes(
    first: Mapping[str, np.ndarray],
    second: Mapping[str, np.ndarray],
    pairs: Mapping[str, str],
    labels: tuple[str, str],
    author_names: tuple[Mapping[str, str], Mapping[str, str]],
) -> Iterator[Cause]:
    """Yield a cause for each pair of arrays that hold different numbers.

    Args:
      first, second: arrays by name.
      pairs: names of the first to those of the second.
      labels: the labels of both networks.
      author_names: names of the arrays as the authors know them.
    """
    for name, counterpart in pairs.items():
        if not equal(first[name], second[counterpart]):
            cause, evidence = explain_difference(
                name, first[name], second[counterpart], first, author_names[0]
            )
            names = author_names[0].get(name, name), author_names[1].get(counterpart, counterpart)
            yield Cause(cause, f"{names[0]} ({labels[0]}); {names[1]} ({labels[1]})", evidence)


def explain_difference(
    name: str,
    expected: np.ndarray,
    array: np.ndarray,
    reference_arrays: Mapping[str, np.ndarray],
    author_names: Mapping[str, str],
) -> tuple[str, str]:
    """Explain why an array differs from the expected one: the cause and its evidence."""
    if array.size == expected.size and array.ndim != expected.ndim:
        array = array.reshape(expected.shape)
    for axes in itertools.permutations(range(array.ndim)):
        if list(axes) != sorted(axes) and equal(expected, array.transpose(axes)):
            return "kernel_layout", "the second checkpoint holds it transposed"
    for other_name, other_array in reference_arrays.items():
        if other_name != name and equal(other_array, array):
            holder = author_names.get(other_name, other_name)
            return "weights", f"the second checkpoint holds the numbers of {holder} in its place"
    for axis, count in itertools.product(range(array.ndim), range(2, MAX_BLOCKS + 1)):
        if array.shape[axis] % count:
            continue
        blocks = np.split(array, count, axis)
        for order in itertools.permutations(range(count)):
            if equal(expected, np.concatenate([blocks[i] for i in order], axis)):
                return "weights", (
                    f"the second checkpoint holds its {count} blocks along axis {axis}, such as "
                    "gates or heads, in another order"
                )
    if equal(np.sort(expected, None), np.sort(array, None)):
        return "weights", "the second checkpoint holds the same numbers in another order"
    if expected.shape != array.shape:
        return "weights", f"one is {list(expected.shape)}, the other {list(array.shape)}"
    largest = float(np.max(np.abs(expected - array)))
    scale = float(np.max(np.abs(expected))) or 1.0
    return "weights", f"the numbers differ by up to {largest:.3g} (relative {largest / scale:.2g})"


def equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether two arrays hold the same numbers up to the rounding of a conversion."""
    if first.shape != second.shape:
        return first.size == second.size and equal(first.ravel(), second.ravel())
    scale = max(float(np.max(np.abs(first), initial=0.0)), 1e-30)
    return bool(np.max(np.abs(first - second), initial=0.0) <= EQUAL * scale)
