"""The first operation of two backward passes that differs."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ...core.network import Variables
from ...core.types import PyTree
from ..measures.subject import Subject
from ..programs import first_large_difference, record_both
from ..types import Difference


def first_backward_difference(
    one: Subject, other: Subject, *, train: bool, key: jax.Array
) -> Difference | None:
    """Align the traced gradients of two networks, and find the first operation that differs.

    The loss is a sum of the outputs with fixed weights, so that its own derivative is no operation.

    Args:
      one, other: networks with a codec, and their weights; at most 3 examples are used.
      train: training mode or evaluation.
      key: of the networks' random draws.

    Returns:
      None if the gradients are equal.
    """
    sides = _backward(one), _backward(other)
    return first_large_difference(*record_both(*sides, one.inputs, train=train, key=key, wide=True))


def _backward(side: Subject) -> Subject:
    """Return a network whose outputs are the gradients of shared parameters by name."""
    network = side.network

    def apply(variables: Variables, inputs: PyTree, **options: Any) -> tuple[Any, PyTree]:
        def loss(params: PyTree) -> Any:
            own = Variables(params=params, state=variables.state)
            outputs, state = network.apply(own, inputs, **options)
            leaves = jax.tree.leaves(outputs)
            return _weighted([leaves[index] for _, index in side.outputs]), state

        (_, state), gradients = network.value_and_grad(loss)(variables.params)
        return side.named_gradients(gradients), state

    return replace(side, network=replace(network, apply=apply))


def _weighted(outputs: list[jax.Array]) -> Any:
    total = jnp.zeros(())
    for leaf in outputs:
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            weights = jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32)).reshape(leaf.shape)
            total = total + jnp.sum(leaf.astype(jnp.float32) * weights)
    return total
