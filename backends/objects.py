"""Adapters of libraries whose modules are objects that hold their arrays: Flax NNX, Equinox.

A constructor takes random numbers; a module's layers are found on the way to each of its arrays.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax.tree_util import KeyPath

from ..core.network import Codec
from ..core.types import Params
from .calling import parameters
from .layers.describe import walk
from .layers.rules import Module
from .layers.stacks import Array, describe_all
from .libraries import find
from .naming import words_of

BATCH_AXIS = "batch"  # the name of the axis over which Equinox's modules are vmapped


def constructor(
    module: Any, argument: str, convert: Callable[[jax.Array], Any]
) -> Callable[[jax.Array], Any]:
    """Return the function of a key that constructs a module.

    Args:
      module: its class or another constructor.
      argument: its parameter for random numbers, given by position if it has none of that name.
      convert: makes the argument from a key.
    """
    by_name, constants = argument in parameters(module), constants_of(module)

    def construct(key: jax.Array) -> Any:
        with constants():
            converted = convert(key)
            return module(**{argument: converted}) if by_name else module(converted)

    return construct


def constants_of(function: object) -> Callable[[], AbstractContextManager[object]]:
    """Return the context in which a function that makes arrays from a key is called.

    Users' constructors compute constants (`float(jnp.sqrt(d))`), which fails while tracing. The
    built-in ones have only those of initializers, which would be 50 small programs.
    """
    module = getattr(function, "__module__", "")
    is_ours = module.startswith(f"{__package__}.") and module.endswith(".zoo")
    return nullcontext if is_ours else jax.ensure_compile_time_eval


def slashed(path: KeyPath) -> str:
    """Write a path with slashes: `layers/0/kernel`."""
    return "/".join(words_of(path))


def codec_of(
    backend: str,
    module: Module,
    params: Params,
    is_layer: Callable[[object], bool],
    *,
    spell: Callable[[KeyPath], str] = slashed,
    is_parameter: Callable[[object], bool] | None = None,
) -> Codec:
    """Describe the parameters of a module by the layers on the way to each of them.

    Args:
      backend: the library's name.
      module: its arrays may be abstract.
      params: its trainable arrays, as in `Variables`.
      is_layer: whether an attribute of the module is a module, and not a container of them.
      spell: writes the path of an array as the library does; by default with slashes between names.
      is_parameter: whether a node of `params` is an array in the library's own wrapper.
    """
    library = find(backend)
    leaves = jax.tree_util.tree_leaves_with_path(params, is_leaf=is_parameter)
    paths = [path for path, _ in leaves]
    arrays = [
        Array(words_of(path), walk(module, path, is_layer), leaf.shape) for path, leaf in leaves
    ]
    return Codec.named(params, describe_all(library, arrays), [spell(path) for path in paths])
