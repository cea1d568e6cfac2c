"""Adapter for Flax NNX, through `nnx.split` and `nnx.merge`."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp

from ..core.errors import TriglotError, require, user_error_context
from ..core.network import Codec, Network, Variables
from ..core.networks.architecture import NetworkSpec
from . import cells
from .calling import InitialCarry, arguments, check_arguments, lifted, mode_arguments, parameters
from .layers.describe import describe, walk
from .naming import words_of


def from_nnx(
    module: Any, *, name: str | None = None, initial_carry: InitialCarry | None = None
) -> Network:
    """Lift an NNX module to a `Network`.

    Args:
      module: a class or another constructor that takes `nnx.Rngs`, as `rngs` if it has a parameter
        of that name; or a module, whose weights every training then starts from. It is called on a
        batch of observations `[B, ...]`; a tuple of inputs becomes several arguments. Its `train()`
        or `eval()` is called first; if `__call__` takes `train` (or `training`, `deterministic`,
        `use_running_average`), it gets that flag.
      name: shown in errors and reports.
      initial_carry: for a recurrent module `(obs, carry) -> (outputs, carry)`:
        `initial_carry(num_envs)` returns the carry `[N, ...]` at an episode's start.

    Returns:
      The network; `params` is an `nnx.State` of the floating-point `nnx.Param`s, `state` one of all
      other variables except random streams, which `apply` rebuilds from its `key`.

    Raises:
      MissingExtra: if Flax is not installed.
      TriglotError: if the constructor fails or returns something else than a module.
    """
    # Constructors compute constants (`float(jnp.sqrt(d))`), which fails while tracing.
    return _lift(module, name, initial_carry, constants=jax.ensure_compile_time_eval)


def _lift(
    module: Any,
    name: str | None = None,
    initial_carry: InitialCarry | None = None,
    *,
    constants: Callable[[], AbstractContextManager[Any]],
) -> Network:
    """Lift a module; `constants` is the context in which its constructor runs."""
    nnx = require("flax.nnx", "flax")
    is_built = isinstance(module, nnx.Module)
    own_name = type(module).__name__ if is_built else getattr(module, "__name__", repr(module))
    shown = name or own_name
    by_name = "rngs" in parameters(module)

    def construct(key: jax.Array) -> Any:
        if is_built:
            return module
        with constants():
            rngs = nnx.Rngs(key)
            return module(rngs=rngs) if by_name else module(rngs)

    def is_trainable(path: Any, value: Any) -> bool:
        del path
        return isinstance(value, nnx.Param) and jnp.issubdtype(value.dtype, jnp.inexact)

    def split(module: Any) -> tuple[Any, Any, Any, Any]:
        return nnx.split(module, is_trainable, nnx.RngState, ...)

    with user_error_context(f"the NNX constructor {shown!r} failed when given nnx.Rngs"):
        abstract = nnx.eval_shape(lambda: construct(jax.random.key(0)))
    if not isinstance(abstract, nnx.Module):
        raise TriglotError(
            f"from_nnx takes an nnx.Module or a function of nnx.Rngs that returns one; {shown!r} "
            f"returned a {type(abstract).__name__}."
        )
    graphdef, params, streams, _ = split(abstract)
    names = parameters(abstract)

    def init(key: jax.Array) -> Variables:
        _, params, _, state = split(construct(key))
        return Variables(params=params, state=state)

    def seeded(key: jax.Array | None) -> Any:
        key = jax.random.key(0) if key is None else key
        leaves, treedef = jax.tree.flatten(streams)
        filled = [
            jax.random.fold_in(key, index)
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            else jnp.zeros(leaf.shape, leaf.dtype)
            for index, leaf in enumerate(leaves)
        ]
        return treedef.unflatten(filled)

    def apply(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        # Without a copy the merged module shares its Variables with the arguments, and an eager
        # call would change them.
        module = nnx.merge(graphdef, variables.params, seeded(key), variables.state, copy=True)
        if train:
            module.train()
        else:
            module.eval()
        given = arguments(inputs)
        check_arguments(f"the NNX module {shown!r}", names, given)
        outputs = module(*given, **mode_arguments(names, train))
        return outputs, split(module)[3] if train else variables.state

    def is_layer(node: Any) -> bool:
        return isinstance(node, nnx.Module) and not isinstance(node, nnx.List | nnx.Dict)

    # The last key of a path is the variable's own.
    leaves = [
        describe("nnx", words_of(path[:-1]), walk(abstract, path[:-1], is_layer), leaf.shape)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    ]
    how: Any = {"random_start": not is_built, "codec": Codec.named(params, leaves)}
    how["value_and_grad"] = lambda loss: nnx.value_and_grad(loss, has_aux=True)
    return lifted(shown, "nnx", init, apply, initial_carry, **how)


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from NNX's own layers."""
    require("flax.nnx", "flax")
    from .zoo.nnx import make

    # Without the constants of initializers, which would be 50 small programs.
    lift = functools.partial(_lift, constants=nullcontext)
    return cells.lift_zoo(lift, spec, name, make(spec))
