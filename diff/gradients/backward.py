"""The first operation of two backward passes that differs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ...core.network import Network, Variables
from ...core.types import PyTree
from ..programs import first_large_difference, record_both
from ..types import Difference, Side


def first_backward_difference(
    one: Side,
    other: Side,
    inputs: PyTree,
    outputs: Sequence[tuple[int, int]],
    *,
    train: bool,
    key: jax.Array,
) -> Difference | None:
    """Align the traced gradients of two networks, and find the first operation that differs.

    The loss is a sum of the outputs with fixed weights, so that its own derivative is no operation.

    Args:
      one, other: networks with a codec, and their weights.
      inputs: a batch of inputs `[B, ...]` for both; at most 3 examples are used.
      outputs: the indices of each shared output on both sides.
      train: training mode or evaluation.
      key: of the networks' random draws.

    Returns:
      None if the gradients are equal.

    Raises:
      TriglotError: if a network has no codec.
    """
    names = sorted(one.names.keys() & other.names.keys())
    sides = [
        replace(side, network=_backward(side, names, [pair[index] for pair in outputs]))
        for index, side in enumerate((one, other))
    ]
    tapes = record_both(sides[0], sides[1], inputs, train=train, key=key, wide=True)
    return first_large_difference(*tapes)


def _backward(side: Side, names: list[str], indices: list[int]) -> Network:
    """Return a network whose outputs are the gradients of shared parameters, in this order."""
    network, codec = side.network, side.network.codec
    assert codec is not None  # `record_both` refuses networks without one

    def apply(variables: Variables, inputs: PyTree, **options: Any) -> tuple[Any, PyTree]:
        def loss(params: PyTree) -> Any:
            own = Variables(params=params, state=variables.state)
            outputs, state = network.apply(own, inputs, **options)
            leaves = jax.tree.leaves(outputs)
            return _weighted([leaves[index] for index in indices]), state

        (_, state), gradients = network.value_and_grad(loss)(variables.params)
        encoded = codec.encode(gradients)
        offsets = codec.encode(jax.tree.map(jnp.zeros_like, gradients))
        return [encoded[side.names[n]] - offsets[side.names[n]] for n in names], state

    return replace(network, apply=apply)


def _weighted(outputs: list[jax.Array]) -> Any:
    total = jnp.zeros(())
    for leaf in outputs:
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            weights = jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32)).reshape(leaf.shape)
            total = total + jnp.sum(leaf.astype(jnp.float32) * weights)
    return total
