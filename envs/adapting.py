"""Utilities of the adapters of environment libraries."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..core.errors import TriglotError, unknown
from ..core.specs import Bound
from ..core.types import PyTree

Options: TypeAlias = tuple[tuple[str, Hashable], ...]


@contextmanager
def library_promotion() -> Iterator[None]:
    """Allow a library's code to promote dtypes and ranks.

    JAX reads these settings while tracing, so the user's strict settings hold everywhere else.
    """
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@contextmanager
def construction() -> Iterator[None]:
    """Construct a library's environment, perhaps in the first call of a function that is traced.

    Its constants must not become tracers.
    """
    with jax.ensure_compile_time_eval(), library_promotion():
        yield


def check_name(suite: str, name: str, known: Iterable[str], excluded: Mapping[str, str]) -> None:
    """Reject names that a suite does not have, or that triglot does not support.

    Args:
      suite: the library's name.
      name: of an environment.
      known: the supported names.
      excluded: reasons by unsupported names.

    Raises:
      TriglotError: with the reason, or the nearest names.
    """
    if name in excluded:
        raise TriglotError(f"{suite}'s {name} is not supported: {excluded[name]}.")
    if name not in (names := list(known)):
        raise unknown(f"{suite} environment", name, names)


def unstacked(states: PyTree) -> list[PyTree]:
    """Split states `[T, ...]` into a list of `T`."""
    length = jax.tree.leaves(states)[0].shape[0]
    return [jax.tree.map(lambda leaf, t=t: leaf[t], states) for t in range(length)]


def bound_of(array: np.ndarray) -> Bound:
    """Convert the bounds of a box's entries: one number if they are equal."""
    flat = np.asarray(array, np.float64).ravel().tolist()
    return flat[0] if len(set(flat)) == 1 else tuple(flat)


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
