"""Equinox's modules as `Network`s: `eqx.partition`, `eqx.combine`, `eqx.filter_value_and_grad`."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..core.architecture import NetworkSpec
from ..core.errors import require
from ..core.network import Codec, Leaf, Network, Variables
from .naming import canonical_name

BATCH_AXIS = "batch"


def from_equinox(constructor: Callable[[jax.Array], Any], *, name: str | None = None) -> Network:
    """Lift an Equinox module to a `Network`.

    Args:
      constructor: takes a key and returns the module, which is called on one observation; the
        batch is a `jax.vmap` over it with the axis name `batch`.
      name: how errors and reports call it.

    Returns:
      The network; `params` is the module with only its inexact arrays, `state` the module with
      only its other arrays. A Python number on the module is no parameter and never changes.

    Raises:
      MissingExtra: if Equinox is not installed.
    """
    eqx = require("equinox", "equinox")

    def construct(key: jax.Array) -> Any:
        # Constructors compute constants (`float(jnp.sqrt(d))`), which fails while tracing.
        with jax.ensure_compile_time_eval():
            return constructor(key)

    # The skeleton is what is no array; it is found once, without computing any array.
    abstract = eqx.filter_eval_shape(construct, jax.random.key(0))
    abstract_params, rest = eqx.partition(abstract, _is_trainable)
    _, skeleton = eqx.partition(rest, _is_array)

    def init(key: jax.Array) -> Variables:
        params, rest = eqx.partition(construct(key), _is_trainable)
        return Variables(params=params, state=eqx.filter(rest, _is_array))

    def apply(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        module = eqx.combine(variables.params, variables.state, skeleton)
        module = eqx.nn.inference_mode(module, value=not train)
        return jax.vmap(module, axis_name=BATCH_AXIS)(inputs), variables.state

    leaves = [
        _leaf(eqx, abstract, path)
        for path, _ in jax.tree_util.tree_leaves_with_path(abstract_params)
    ]
    return Network(
        name=name or type(abstract).__name__,
        backend="equinox",
        init=init,
        apply=apply,
        value_and_grad=lambda loss: eqx.filter_value_and_grad(loss, has_aux=True),
        codec=Codec.named(abstract_params, leaves),
    )


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a described network from Equinox's own layers."""
    require("equinox", "equinox")
    from .zoo.equinox import make

    return from_equinox(make(spec), name=name)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)


def _is_trainable(leaf: Any) -> bool:
    return _is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _leaf(eqx: Any, module: Any, path: Sequence[Any]) -> Leaf:
    """Name one parameter and state its layout, by the module that owns it."""
    owner = module
    for key in path[:-1]:
        owner = getattr(owner, key.name) if hasattr(key, "name") else owner[_index(key)]
    last = path[-1].name if hasattr(path[-1], "name") else ""
    is_weight = last == "weight"
    kind = "embedding" if isinstance(owner, eqx.nn.Embedding) else "kernel"
    name = canonical_name(path, {"weight": kind})
    if isinstance(owner, eqx.nn.Linear) and is_weight:
        return Leaf(name, jnp.transpose, jnp.transpose)
    if isinstance(owner, eqx.nn.Conv2d) and is_weight:
        return Leaf(name, _to_hwio, _to_oihw)
    if isinstance(owner, eqx.nn.Conv2d):
        return Leaf(name, _squeeze_bias, _expand_bias)
    return Leaf(name)


def _index(key: Any) -> Any:
    return key.idx if hasattr(key, "idx") else key.key


def _to_hwio(weight: jax.Array) -> jax.Array:
    return jnp.transpose(weight, (2, 3, 1, 0))


def _to_oihw(kernel: jax.Array) -> jax.Array:
    return jnp.transpose(kernel, (3, 2, 0, 1))


def _squeeze_bias(bias: jax.Array) -> jax.Array:
    return bias[:, 0, 0]


def _expand_bias(bias: jax.Array) -> jax.Array:
    return bias[:, None, None]
