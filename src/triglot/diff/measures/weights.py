"""The same weights in two networks."""

from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from ...core.network import Codec, Leaf, Network, Variables
from ...core.types import PyTree
from .. import host
from ..pairing.parameters import Pairing
from ..types import codec_of

NOISE = 1024  # noise is a multiple of 1 / 1024: a layout that adds 1 to it does not round
MAX_NOISE = 128


def canonical(network: Network, variables: Variables) -> dict[str, np.ndarray]:
    """Return a network's parameters by canonical name."""
    return host.call(codec_of(network).encode, variables.params)


def with_noise(arrays: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Add noise to the arrays that an initializer fills with a constant, such as biases.

    With all biases 0 and all scales 1, a network that lacks one computes the same outputs.

    Args:
      arrays: canonical arrays by name.
      seed: the seed of the noise, which is within [-1/8, 1/8].
    """
    random = np.random.default_rng(seed)
    noisy = {}
    for name in sorted(arrays):
        array = arrays[name]
        constant = array.size and np.all(array == array.reshape(-1)[0])
        noise = random.integers(-MAX_NOISE, MAX_NOISE + 1, array.shape) / NOISE
        noisy[name] = (array + noise).astype(array.dtype) if constant else array
    return noisy


def replace_parameters(
    network: Network, variables: Variables, new_values: Mapping[str, np.ndarray]
) -> Variables:
    """Replace some of a network's parameters, given by canonical name.

    They are cast to the network's dtypes and reshaped to its shapes.
    """
    codec = codec_of(network)

    def replace_arrays(params: PyTree, new_values: Mapping[str, jax.Array]) -> PyTree:
        arrays = codec.encode(params)
        for name, array in new_values.items():
            arrays[name] = array.astype(arrays[name].dtype).reshape(arrays[name].shape)
        return codec.decode(arrays)

    params = jax.tree.map(
        jnp.asarray, host.call(replace_arrays, variables.params, dict(new_values))
    )
    return Variables(params=params, state=variables.state)


def with_transposed(network: Network, names: set[str]) -> Network:
    """Transpose the canonical form of some matrices, so that equal ones mean equal weights.

    Only arrays that hold one canonical array can be transposed; others are left as they are.
    """
    if not names:
        return network
    codec = codec_of(network)

    def transpose(leaf: Leaf) -> Leaf:
        if len(leaf.names) != 1 or leaf.names[0] not in names:
            return leaf
        return replace(
            leaf,
            encode=lambda array: (jnp.swapaxes(leaf.encode(array)[0], -1, -2),),
            decode=lambda array: leaf.decode(jnp.swapaxes(array, -1, -2)),
        )

    return replace(network, codec=Codec(codec.treedef, tuple(map(transpose, codec.leaves))))


def shared_values(
    pairing: Pairing, arrays: Mapping[str, np.ndarray], *, from_other: bool
) -> dict[str, np.ndarray]:
    """Choose the value of each pair from one side's parameters.

    Values are rounded to the coarser dtype of the two sides, so that both hold them exactly.

    Args:
      pairing: the pairing; its transposed pairs are already equal in canonical form.
      arrays: canonical arrays of the side that gives the values.
      from_other: whether that is the second side.

    Returns:
      Arrays by the names that both sides share.
    """
    values: dict[str, np.ndarray] = {}
    copies: dict[str, np.ndarray] = {}  # of an array that the other side shares
    for name, pair in pairing.by_name().items():
        source, target = (pair.other, pair.one) if from_other else (pair.one, pair.other)
        array = copies.setdefault(target, arrays[source])
        dtypes = pairing.one[pair.one].dtype, pairing.other[pair.other].dtype
        coarse = max(dtypes, key=lambda dtype: float(jnp.finfo(dtype).eps))
        values[name] = array.astype(coarse).astype(array.dtype)
    return values
