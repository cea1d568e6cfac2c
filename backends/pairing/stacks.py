"""Stacked layers whose counterpart is one array with all axes, such as the kernels of experts."""

import itertools
from collections import Counter
from dataclasses import replace

import jax

from ...core.network import Codec, Network
from ...core.types import abstract_key


def align_stacks(one: Network, other: Network) -> tuple[Network, Network]:
    """Name stacked arrays as wholes, where only then both networks have arrays of the same shapes.

    The arrays of stacked layers are named layer by layer. An ensemble of layers may instead have
    arrays `[members, in, out]` of a custom module as counterparts.
    """
    sides = [[network, _with_wholes(network)] for network in (one, other)]
    if any(network.codec is None for side in sides for network in side):
        return one, other
    if all(network is whole for network, whole in sides):  # nothing is stacked
        return one, other
    shapes = [[_shapes(network) for network in side] for side in sides]
    for first, second in itertools.product((0, 1), repeat=2):
        if shapes[0][first] == shapes[1][second]:
            return sides[0][first], sides[1][second]
    return one, other


def _with_wholes(network: Network) -> Network:
    """Name each stacked array as a whole."""
    if network.codec is None or all(leaf.whole is None for leaf in network.codec.leaves):
        return network
    leaves = tuple(leaf.whole or leaf for leaf in network.codec.leaves)
    return replace(network, codec=Codec(network.codec.treedef, leaves))


def _shapes(network: Network) -> Counter[tuple[int, ...]]:
    params = jax.eval_shape(network.init, abstract_key()).params
    encode = network.require_codec("parameters cannot be paired").encode
    return Counter(array.shape for array in jax.eval_shape(encode, params).values())
