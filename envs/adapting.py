"""Utilities of the adapters of environment libraries."""

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ..core.errors import TriglotError
from ..core.types import PyTree

Options: TypeAlias = tuple[tuple[str, Hashable], ...]


@contextmanager
def library_promotion() -> Iterator[None]:
    """Allow a library's code to promote dtypes and ranks.

    JAX reads these settings while tracing, so the user's strict settings hold everywhere else.
    """
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def strong(tree: PyTree) -> PyTree:
    """Convert Python numbers to arrays and weak types to strong ones, as a scan's carry needs."""

    def convert(leaf: Any) -> jax.Array:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        return jnp.asarray(leaf, jnp.result_type(leaf))

    return jax.tree.map(convert, tree)


def hashable_options(environment: str, options: Mapping[str, Any]) -> Options:
    """Convert options to sorted pairs, so that equal options give equal environments.

    Args:
      environment: the environment's name, for the message.
      options: values by name.

    Returns:
      `(name, value)` pairs, sorted by name.

    Raises:
      TriglotError: if a value cannot be hashed.
    """
    for name, value in options.items():
        try:
            hash(value)
        except TypeError:
            raise TriglotError(
                f"option {name!r} of {environment} must be a number, a string or a tuple, so that "
                f"the environment can be hashed; got a {type(value).__name__}."
            ) from None
    return tuple(sorted(options.items()))
