"""What the adapters of other people's environments share."""

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ..core.errors import TriglotError

PyTree: TypeAlias = Any
Options: TypeAlias = tuple[tuple[str, Hashable], ...]


@contextmanager
def library_promotion() -> Iterator[None]:
    """Let a library mix dtypes and ranks, as it was written to do.

    The user's strict settings hold for the rest of the program: JAX reads these while it traces.
    """
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def strong(tree: PyTree) -> PyTree:
    """Make arrays of Python numbers and give every array a type of its own, as a scan needs."""

    def convert(leaf: Any) -> jax.Array:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        return jnp.asarray(leaf, jnp.result_type(leaf))

    return jax.tree.map(convert, tree)


def hashable(environment: str, options: Mapping[str, Any]) -> Options:
    """Sort options into pairs, so that equal ones make equal environments.

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
