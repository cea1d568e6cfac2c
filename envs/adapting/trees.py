"""States of libraries' environments as trees of arrays."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ...core.types import PyTree, is_key


def unstacked(states: PyTree) -> list[PyTree]:
    """Split states `[T, ...]` into a list of `T`."""
    length = jax.tree.leaves(states)[0].shape[0]
    return [jax.tree.map(lambda leaf, t=t: leaf[t], states) for t in range(length)]


def as_numpy(states: PyTree) -> PyTree:
    """Convert all arrays but keys to NumPy's, which are split faster."""
    return jax.tree.map(lambda leaf: leaf if is_key(leaf) else np.asarray(leaf), states)


def strong(tree: PyTree) -> PyTree:
    """Convert Python numbers to arrays and weak types to strong ones, as a scan's carry needs."""

    def convert(leaf: ArrayLike) -> jax.Array:
        if isinstance(leaf, jax.Array) and is_key(leaf):
            return leaf
        return jnp.asarray(leaf, jnp.result_type(leaf))

    return jax.tree.map(convert, tree)
