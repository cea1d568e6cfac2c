"""Equal singular vectors in two networks with spectral normalization.

A layer with spectral normalization divides its kernel by an estimate of its largest singular value,
from vectors that power iterations improve. Two networks start with different random vectors.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...core.network import Variables
from ..pairing.parameters import Pairing
from ..types import codec_of
from .subject import Subject, Subjects
from .weights import canonical


class Vectors(NamedTuple):
    """The singular vectors of one layer in the flattened state.

    Attributes:
      place: canonical name of the layer.
      u: index of the vector of the outputs.
      v: index of the vector of the inputs; None if none is stored.
      size: number of outputs.
    """

    place: str
    u: int
    v: int | None
    size: int


def share_vectors(subjects: Subjects, pairing: Pairing, seed: int) -> Subjects:
    """Give the paired layers of two networks equal random singular vectors.

    The vectors are not converged, so that another number of power iterations shows. A vector of the
    inputs is the product of the kernel with that of the outputs.
    """
    layers = [_vectors_of(subject) for subject in subjects]
    changed: tuple[dict[int, np.ndarray], dict[int, np.ndarray]] = ({}, {})
    random = np.random.default_rng(seed)
    for pair in _pair_layers(layers[0], layers[1], pairing):
        u = random.standard_normal(pair[0].size).astype(np.float32)
        u /= np.linalg.norm(u)
        for subject, vectors, arrays in zip(subjects, pair, changed, strict=True):
            arrays[vectors.u] = u
            if vectors.v is not None:
                arrays[vectors.v] = _right_vector(subject, vectors.place, u)
    first, second = (
        _replace_state(subject, arrays) for subject, arrays in zip(subjects, changed, strict=True)
    )
    return first, second


def _vectors_of(subject: Subject) -> list[Vectors]:
    """List the layers with spectral normalization, in the order of the state."""
    leaves = jax.tree.leaves(subject.variables.state)
    indices: dict[str, int] = {}
    for index, statistic in enumerate(subject.network.statistics):
        if statistic is not None:
            indices[statistic.name] = index
    return [
        Vectors(place, index, indices.get(f"{place}/v"), leaves[index].size)
        for place, last, index in ((*_split(name), index) for name, index in indices.items())
        if last == "u"
    ]


def _split(name: str) -> tuple[str, str]:
    place, _, last = name.rpartition("/")
    return place, last


def _pair_layers(
    first: list[Vectors], second: list[Vectors], pairing: Pairing
) -> list[tuple[Vectors, Vectors]]:
    """Pair layers by their kernels, and those that are left by size and order."""
    kernels = {_split(pair.one)[0]: _split(pair.other)[0] for pair in pairing.pairs}
    places = {vectors.place: vectors for vectors in second}
    pairs = [
        (vectors, places[kernels[vectors.place]])
        for vectors in first
        if kernels.get(vectors.place) in places
    ]
    unpaired = [
        [v for v in side if all(v not in pair for pair in pairs)] for side in (first, second)
    ]
    if [v.size for v in unpaired[0]] == [v.size for v in unpaired[1]]:
        pairs += zip(unpaired[0], unpaired[1], strict=True)
    return pairs


def _right_vector(subject: Subject, place: str, u: np.ndarray) -> np.ndarray:
    """Multiply the kernel of a layer with the vector of its outputs, in the library's order."""
    name = f"{place}/kernel"
    kernel = np.asarray(canonical(subject.network, subject.variables)[name], np.float64)
    product = kernel @ u
    product /= np.linalg.norm(product)
    columns = np.broadcast_to(product[..., None], kernel.shape)
    stored = np.asarray(codec_of(subject.network).by_name[name].decode(jnp.asarray(columns)))
    return stored.reshape(len(stored), -1)[0]


def _replace_state(subject: Subject, arrays: Mapping[int, np.ndarray]) -> Subject:
    """Replace some arrays of the state."""
    if not arrays:
        return subject
    leaves, treedef = jax.tree.flatten(subject.variables.state)
    for index, array in arrays.items():
        leaves[index] = jnp.asarray(array.reshape(leaves[index].shape), leaves[index].dtype)
    variables = Variables(params=subject.variables.params, state=treedef.unflatten(leaves))
    return replace(subject, variables=variables)
