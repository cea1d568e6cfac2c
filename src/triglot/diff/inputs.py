"""Batches of inputs, and their description in words."""

import re

import jax
import jax.numpy as jnp
import numpy as np

from ..backends.calling import Inputs
from ..core.errors import TriglotError, shown
from ..core.network import Network, Variables
from ..core.specs import Box, Dict, Discrete, Spec, sample
from ..core.types import PyTree

ELEMENTS_PER_VALUE = 64  # elements for each value


def parse_input(text: str) -> Box:
    """Read one input: `DTYPE:SHAPE` or `DTYPE:SHAPE:LOW..HIGH`.

    Without a dtype it is float32, without a shape a scalar. Without bounds, floats are drawn from
    [-1, 1], unsigned integers from their whole range, and signed ones from 0 and 1, which every
    embedding accepts.

    >>> parse_input("uint8:84,84,4")
    Box(shape=(84, 84, 4), dtype='uint8', low=0, high=255, whole=False)
    >>> parse_input("int32:16:0..99").high
    99

    Raises:
      TriglotError: if the text has another form.
    """
    dtype, _, shape_and_bounds = (
        text.partition(":") if text[:1].isalpha() else ("float32", "", text)
    )
    shape, _, bounds = shape_and_bounds.partition(":")
    try:
        kind = np.dtype(jnp.dtype(dtype))
        sizes = tuple(int(size) for size in re.split("[,x]", shape) if size)
        low, high = _bounds(kind, bounds)
        return Box(sizes, kind.name, low, high)
    except (TypeError, ValueError):
        raise TriglotError(
            f"input {shown(text)} must have the form DTYPE:SHAPE, such as float32:84,84,4, or "
            "DTYPE:SHAPE:LOW..HIGH, such as int32:16:0..99."
        ) from None


def _bounds(kind: np.dtype, text: str) -> tuple[float, float]:
    if text:
        low, high = text.split("..")
        number = float if kind.kind == "f" else int
        return number(low), number(high)
    if kind.kind == "u":
        return 0, int(np.iinfo(kind).max)
    if kind.kind in "ib":
        return 0, 1
    return -float("inf"), float("inf")


def batch_of(inputs: Inputs, size: int, key: jax.Array) -> PyTree:
    """Draw a batch `[size, ...]` of inputs; a tuple of batches for several.

    Every integer value occurs, such as a padding token. If there are more values than half the
    elements, the lowest ones occur, since special tokens have low numbers.
    """
    specs = inputs if isinstance(inputs, tuple) else (inputs,)
    batches = tuple(
        _with_each_value(
            spec,
            jax.vmap(lambda k, spec=spec: sample(spec, k))(jax.random.split(spec_key, size)),
            spec_key,
        )
        for spec, spec_key in zip(specs, jax.random.split(key, len(specs)), strict=True)
    )
    return batches if isinstance(inputs, tuple) else batches[0]


def _with_each_value(spec: Spec, batch: PyTree, key: jax.Array) -> PyTree:
    """Put each value of a spec of integers at a random place of a batch."""
    if isinstance(spec, Dict):
        return {name: _with_each_value(child, batch[name], key) for name, child in spec.items}
    if isinstance(spec, Discrete):
        low, high = 0, spec.num_values - 1
    elif isinstance(spec, Box) and np.issubdtype(spec.dtype, np.integer):
        bounds = spec.bounds()
        if not batch.size or any(np.any(bound != bound.flat[0]) for bound in bounds):
            return batch
        low, high = (int(bound.flat[0]) for bound in bounds)
    else:
        return batch
    num_values = high - low + 1
    if low < 0 or batch.size >= ELEMENTS_PER_VALUE * num_values:
        return batch  # no tokens, or each occurs by chance
    count = num_values if num_values <= batch.size else batch.size // 2
    places = jax.random.permutation(jax.random.fold_in(key, 1), batch.size)[:count]
    values = jnp.asarray(low + np.arange(count), batch.dtype)
    return batch.ravel().at[places].set(values).reshape(batch.shape)


def carry_of(network: Network, variables: Variables, size: int, key: jax.Array) -> PyTree:
    """Draw a carry `[size, ...]` of a recurrent network.

    Leaves of equal shapes get equal values, so that two networks whose carries are arranged
    differently start from the same one.
    """

    def draw(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.zeros(leaf.shape, leaf.dtype)
        return jax.random.uniform(key, leaf.shape, leaf.dtype, -1, 1)

    return jax.tree.map(draw, jax.eval_shape(lambda v: network.initial_carry(v, size), variables))
