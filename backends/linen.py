"""Flax Linen's modules as `Network`s: `init` and `apply` with mutable collections."""

from typing import Any

import jax

from ..core import specs
from ..core.architecture import NetworkSpec
from ..core.errors import require
from ..core.network import Codec, Leaf, Network, Variables
from .naming import canonical_name


def from_linen(module: Any, obs_spec: specs.Spec, *, name: str | None = None) -> Network:
    """Lift a Linen module to a `Network`.

    Args:
      module: a `flax.linen.Module`, called on a batch of observations `[B, ...]`.
      obs_spec: one observation.
      name: how errors and reports call it.

    Returns:
      The network; `params` is the collection of that name, `state` holds every other collection.

    Raises:
      MissingExtra: if Flax is not installed.
    """
    require("flax", "flax")

    def init(key: jax.Array) -> Variables:
        state = dict(module.init(key, specs.zeros(obs_spec, 1)))
        return Variables(params=state.pop("params", {}), state=state)

    def apply(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        rngs = None if key is None else {"dropout": key}
        collections = {"params": variables.params, **variables.state}
        if not train or not variables.state:
            return module.apply(collections, inputs, rngs=rngs), variables.state
        return module.apply(collections, inputs, rngs=rngs, mutable=list(variables.state))

    params = jax.eval_shape(init, jax.random.key(0)).params
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    return Network(
        name=name or type(module).__name__,
        backend="linen",
        init=init,
        apply=apply,
        codec=Codec.named(params, [Leaf(canonical_name(path, {})) for path in paths]),
    )


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a described network from Linen's own layers."""
    require("flax", "flax")
    from .zoo.linen import make

    return from_linen(make(spec), spec.obs_spec, name=name)
