"""Type aliases shared by the whole package, the decorator of its pytrees, and their leaves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeAlias, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from .errors import TriglotError, kind_of

PyTree: TypeAlias = Any
"""Any nesting of tuples, lists, dictionaries and registered dataclasses of arrays."""
PyTreeDef: TypeAlias = Any  # the structure of a pytree; jaxlib has no stubs for it
KeyImpl: TypeAlias = Any  # the generator of keys, as `jax.random.key_impl` returns it

# Names of what a tree holds; a type checker sees `Any`, since every part has its own structure.
Params: TypeAlias = PyTree  # the trainable arrays of a network
OptState: TypeAlias = PyTree  # the state of an optimizer
Obs: TypeAlias = PyTree
"""One observation or more, as a `Spec` describes it."""
Carry: TypeAlias = PyTree
"""What a recurrent policy keeps between steps, `[N, ...]`; `()` without."""
EnvState: TypeAlias = PyTree  # the state of an environment
AnyAgentState: TypeAlias = PyTree  # the state of an agent; that of `AgentBase` is an `AgentState`
AnyConfig: TypeAlias = Any  # a `Config` of an algorithm, or the `OptionValues` of several
AnyHyperparams: TypeAlias = Any  # its `Hyperparams`, likewise; a pytree
# A JAX random key, shape [].
Key: TypeAlias = jax.Array
Metrics: TypeAlias = dict[str, jax.Array]
"""Scalar metrics by name, each of shape `[]` inside one update."""


class LibraryArray(Protocol):
    """What the array types of all libraries have."""

    def __add__(self, other: Self, /) -> Self: ...
    def __mul__(self, other: Self, /) -> Self: ...


ArrayT = TypeVar("ArrayT", bound=LibraryArray)
_Class = TypeVar("_Class", bound=type)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def pytree_dataclass(cls: _Class) -> _Class:
    """Make a class an immutable dataclass that JAX handles as a pytree."""
    return jax.tree_util.register_dataclass(dataclass(frozen=True, kw_only=True)(cls))


def by_path(tree: PyTree) -> dict[str, Any]:
    """Return the leaves by their paths, joined by dots; the path of a bare leaf is ""."""
    return {path_of(keys): leaf for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def path_of(keys: jax.tree_util.KeyPath) -> str:
    """Join the keys of a leaf, as JAX gives them, by dots."""
    return jax.tree_util.keystr(keys, simple=True, separator=".")


def types_by_path(tree: PyTree) -> dict[str, str]:
    """Describe the dtype and the shape of each leaf, by its path."""
    return {path: f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in by_path(tree).items()}


def type_differences(tree: PyTree, other: PyTree) -> dict[str, tuple[str, str]]:
    """Describe the leaves whose types differ between two trees, by path; one may be `absent`."""
    types, other_types = types_by_path(tree), types_by_path(other)
    pairs = {
        path: (types.get(path, "absent"), other_types.get(path, "absent"))
        for path in {**types, **other_types}
    }
    return {path: (left, right) for path, (left, right) in pairs.items() if left != right}


def abstract_key() -> jax.ShapeDtypeStruct:
    """Describe a typed key, for tracing; making a key compiles programs."""
    return jax.eval_shape(jax.random.key, 0)


def is_key(leaf: jax.Array | np.ndarray | jax.ShapeDtypeStruct) -> bool:
    """Check whether an array holds typed random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def as_key(key: object) -> Key:
    """Return one random key; one of the older form, uint32 of `jax.random.PRNGKey`, is converted.

    Both forms of a key draw the same numbers.

    Raises:
      TriglotError: if it is no key, or several.
    """
    if isinstance(key, jax.Array | np.ndarray):
        if is_key(key):
            if key.shape == ():
                return key  # pyright: ignore[reportReturnType]
            raise TriglotError(
                f"key must be one random key, got keys of shape {list(key.shape)}: give one, "
                "such as key[0]; triglot.train splits it into one for each seed."
            )
        if key.dtype == jnp.uint32 and key.ndim == 1:
            try:
                return jax.random.wrap_key_data(jnp.asarray(key))
            except (TypeError, ValueError):  # data of another generator, or no key at all
                pass
    seed = int(key) if isinstance(key, int | np.integer) and not isinstance(key, bool) else 0
    raise TriglotError(
        f"key must be a random key of JAX, got {kind_of(key)}: give jax.random.key({seed})."
    )


def on_data(function: Callable[[jax.Array], jax.Array], leaf: jax.Array) -> jax.Array:
    """Apply a function of plain arrays; of typed keys, it gets and returns the data."""
    if not is_key(leaf):
        return function(leaf)
    data = function(jax.random.key_data(leaf))
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
