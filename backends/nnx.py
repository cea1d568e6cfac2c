"""Flax NNX's modules as `Network`s: `nnx.split` and `nnx.merge`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..core.architecture import NetworkSpec
from ..core.errors import require
from ..core.network import Codec, Leaf, Network, Variables
from .naming import canonical_name


def from_nnx(constructor: Callable[[Any], Any], *, name: str | None = None) -> Network:
    """Lift an NNX module to a `Network`.

    Args:
      constructor: takes `nnx.Rngs` and returns the module, which is called on a batch of
        observations `[B, ...]`.
      name: how errors and reports call it.

    Returns:
      The network; `params` is an `nnx.State` of `nnx.Param`s, `state` one of every other
      variable but random streams, which `apply` rebuilds from its `key`.

    Raises:
      MissingExtra: if Flax is not installed.
    """
    nnx = require("flax.nnx", "flax")

    def construct(key: jax.Array) -> Any:
        # Constructors compute constants (`float(jnp.sqrt(d))`), which fails while tracing.
        with jax.ensure_compile_time_eval():
            return constructor(nnx.Rngs(key))

    def split(module: Any) -> tuple[Any, Any, Any, Any]:
        return nnx.split(module, nnx.Param, nnx.RngState, ...)

    abstract = nnx.eval_shape(lambda: construct(jax.random.key(0)))
    graphdef, params, streams, _ = split(abstract)

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
        # A merged module shares its Variables with the states it came from: copy, so that an
        # eager call leaves its arguments alone.
        module = nnx.merge(graphdef, variables.params, seeded(key), variables.state, copy=True)
        if train:
            module.train()
        else:
            module.eval()
        outputs = module(inputs)
        return outputs, split(module)[3]

    paths = [path[:-1] for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    return Network(
        name=name or type(abstract).__name__,
        backend="nnx",
        init=init,
        apply=apply,
        value_and_grad=lambda loss: nnx.value_and_grad(loss, has_aux=True),
        codec=Codec.named(params, [Leaf(canonical_name(path, {})) for path in paths]),
    )


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a described network from NNX's own layers."""
    require("flax.nnx", "flax")
    from .zoo.nnx import make

    return from_nnx(make(spec), name=name)
