"""Arithmetic on arrays of environments: a choice for each, and averages that may be of nothing."""

import jax
import jax.numpy as jnp

from .types import PyTree


def divide_or_nan(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
    """Divide; where the denominator is 0, there is nothing to tell.

    Args:
      numerator, denominator: float, of one shape.

    Returns:
      Float of that shape; NaN where there is nothing, but 0 under `jax_debug_nans`, which takes
      every NaN for a mistake.
    """
    debug_nans = jax.config.jax_debug_nans  # pyright: ignore[reportAttributeAccessIssue]
    nothing = 0.0 if debug_nans else jnp.nan
    there = denominator != 0
    return jnp.where(there, numerator / jnp.where(there, denominator, 1.0), nothing)


def where_rows(mask: jax.Array, tree: PyTree, other: PyTree) -> PyTree:
    """Take the rows `[N, ...]` of `tree` where `mask` `[N]` is True, and of `other` elsewhere."""

    def where(first: jax.Array, second: jax.Array) -> jax.Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (first.ndim - 1)), first, second)

    return jax.tree.map(where, tree, other)
