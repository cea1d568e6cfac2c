"""Biases of recurrent cells that one library has and another lacks.

PyTorch's cells and Keras's GRU add two biases in a gate where others have one: their sum is
translated, and the second becomes 0. Flax NNX's GRU has no bias inside the product with the reset
gate, where others have one: it must be 0.

In a training both biases of a gate are updated, so their sum changes twice as fast as one bias. So
they are joined only where the other network has one.
"""

from collections.abc import Mapping
from typing import TypeVar

import jax
import jax.core
import jax.numpy as jnp

from ...core.errors import TriglotError
from ...core.network import Leaf
from ..cells import INNER_BIAS, LSTM, RESET_AFTER, SIMPLE_CELL
from .mapping import Target

T = TypeVar("T")
Leaves = Mapping[str, Leaf]  # of a network, by canonical name


def second_biases(leaves: Leaves) -> dict[str, str]:
    """Name the biases that a cell adds to others, which are the values.

    >>> cell = Leaf(("cell/i/bias", "cell/recurrent/i/bias", "cell/input/i/kernel"), layer=LSTM)
    >>> second_biases(dict.fromkeys(cell.names, cell))
    {'cell/recurrent/i/bias': 'cell/i/bias'}
    """
    biases = {}
    for name, leaf in leaves.items():
        place, _, inside = name.rpartition("recurrent/")
        first = place + inside
        is_bias = first != name and inside.rpartition("/")[2] == "bias"
        if not is_bias or leaf.layer not in (LSTM, RESET_AFTER, SIMPLE_CELL):
            continue
        is_inner = leaf.layer == RESET_AFTER and name.endswith(INNER_BIAS)
        if not is_inner and first in leaves and leaves[first].layer == leaf.layer:
            biases[name] = first
    return biases


def inner_biases(leaves: Leaves) -> list[str]:
    """Name the biases of GRUs inside the product with the reset gate."""
    return [
        name
        for name, leaf in leaves.items()
        if leaf.note == RESET_AFTER and name.endswith(INNER_BIAS)
    ]


def without_extra_biases(
    one: Mapping[str, T], other: Mapping[str, T], leaves: tuple[Leaves, Leaves]
) -> tuple[dict[str, T], dict[str, T]]:
    """Leave out the biases of cells that only one of two networks has.

    Args:
      one, other: what is to be paired, by canonical name.
      leaves: of both networks.
    """
    left: list[Mapping[str, T]] = [one, other]
    is_variant = [RESET_AFTER in {leaf.note for leaf in side.values()} for side in leaves]
    for find in (second_biases, inner_biases):
        extra = [set(find(side)) for side in leaves]
        # A GRU that applies the reset gate before the product is another function.
        if len(extra[0]) != len(extra[1]) and (find is second_biases or all(is_variant)):
            left = [
                {name: side[name] for name in side if name not in names}
                for side, names in zip(left, extra, strict=True)
            ]
    return dict(left[0]), dict(left[1])


def sum_biases(
    named: Mapping[str, jax.Array], leaves: Leaves, pairs: Mapping[str, Target], networks: str
) -> dict[str, jax.Array]:
    """Add second biases without a counterpart to the first.

    Args:
      named: canonical arrays of the source.
      leaves: of the source.
      pairs: the target's parameters by the source's names.
      networks: for the message.

    Raises:
      TriglotError: if another bias without a counterpart is not 0.
    """
    summed = dict(named)
    for name, first in second_biases(leaves).items():
        if name not in pairs:
            summed[first] = summed[first] + summed[name]
    for name in inner_biases(leaves):
        if name not in pairs and (isinstance(named[name], jax.core.Tracer) or named[name].any()):
            shown = leaves[name].display_name(name)
            raise TriglotError(
                f"{networks}: {shown!r}, inside the product with the reset gate, is not known to "
                "be 0, and the second's GRU has no such bias: no weights make them equal. Give the "
                "second a cell that has it."
            )
    return summed


def zero_biases(
    shapes: Mapping[str, jax.ShapeDtypeStruct], leaves: Leaves, pairs: Mapping[str, Target]
) -> dict[str, jax.Array]:
    """Make the target's second and inner biases that no parameter of the source is paired with."""
    reached = {pair.name for pair in pairs.values()}
    open_names = [n for n in (*second_biases(leaves), *inner_biases(leaves)) if n not in reached]
    return {name: jnp.zeros(shapes[name].shape, shapes[name].dtype) for name in open_names}
