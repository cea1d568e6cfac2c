"""Adapters of libraries whose modules are objects that hold their arrays: Flax NNX, Equinox.

A constructor takes random numbers; a module's layers are found on the way to each of its arrays.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import jax

from ..core.network import Codec, Network
from . import calling
from .layers.describe import describe, walk
from .naming import words_of


def constructor(
    module: Any, argument: str, convert: Callable[[jax.Array], Any]
) -> Callable[[jax.Array], Any]:
    """Return the function of a key that constructs a module.

    Args:
      module: its class or another constructor.
      argument: its parameter for random numbers, given by position if it has none of that name.
      convert: makes the argument from a key.
    """
    by_name = argument in calling.parameters(module)
    # Users' constructors compute constants (`float(jnp.sqrt(d))`), which fails while tracing. The
    # zoo's have only those of initializers, which would be 50 small programs.
    is_ours = getattr(module, "__module__", "").startswith(f"{__package__}.zoo.")
    constants = nullcontext if is_ours else jax.ensure_compile_time_eval

    def construct(key: jax.Array) -> Any:
        with constants():
            given = convert(key)
            return module(**{argument: given}) if by_name else module(given)

    return construct


def lift(
    backend: str,
    name: str,
    abstract: Any,
    params: Any,
    initial_carry: calling.InitialCarry | None,
    *,
    init: Callable[..., Any],
    apply: Callable[..., Any],
    value_and_grad: Callable[..., Any],
    is_layer: Callable[[Any], bool],
    is_parameter: Callable[[Any], bool] | None = None,
    leaf_names: Mapping[str, str] | None = None,
    random_start: bool = True,
) -> Network:
    """Build the network of a module.

    Args:
      backend: the library's name.
      name: the network's name.
      abstract: the module, its arrays being abstract.
      params: its trainable arrays, as in `Variables`.
      initial_carry: of a recurrent module.
      init: see `Network`.
      apply: see `Network`.
      value_and_grad: the library's own, with `has_aux`.
      is_layer: whether an attribute of the module is a module, and not a container of them.
      is_parameter: whether a node of `params` is an array in the library's own wrapper.
      leaf_names: canonical last parts (`kernel`, `bias`) of parameters, by the library's names.
      random_start: see `Network`.
    """
    leaves = [
        describe(backend, words_of(path), walk(abstract, path, is_layer), leaf.shape, leaf_names)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params, is_leaf=is_parameter)
    ]
    return calling.lifted(
        name,
        backend,
        init,
        apply,
        initial_carry,
        codec=Codec.named(params, leaves),
        value_and_grad=lambda loss: value_and_grad(loss, has_aux=True),
        random_start=random_start,
    )
