"""Haiku's modules as `Network`s: `hk.transform_with_state`."""

from collections.abc import Callable
from typing import Any

import jax

from ..core import specs
from ..core.architecture import NetworkSpec
from ..core.errors import require
from ..core.network import Codec, Leaf, Network, Variables
from .naming import canonical_name

LEAF_NAMES = {"w": "kernel", "b": "bias", "embeddings": "embedding"}


def from_haiku(
    function: Callable[[Any], Any], obs_spec: specs.Spec, *, name: str | None = None
) -> Network:
    """Lift a Haiku function to a `Network`.

    Args:
      function: builds modules and applies them to a batch of observations `[B, ...]`.
      obs_spec: one observation.
      name: how errors and reports call it.

    Returns:
      The network; `params` and `state` are Haiku's own dictionaries.

    Raises:
      MissingExtra: if Haiku is not installed.
    """
    hk = require("haiku", "haiku")
    transformed = hk.transform_with_state(function)

    def init(key: jax.Array) -> Variables:
        # hk.initializers.Orthogonal multiplies a matrix by a vector, which strict settings refuse.
        with jax.numpy_rank_promotion("allow"):
            params, state = transformed.init(key, specs.zeros(obs_spec, 1))
        return Variables(params=params, state=state)

    def apply(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        del train
        return transformed.apply(variables.params, variables.state, key, inputs)

    params = jax.eval_shape(init, jax.random.key(0)).params
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    return Network(
        name=name or getattr(function, "__name__", type(function).__name__),
        backend="haiku",
        init=init,
        apply=apply,
        codec=Codec.named(params, [Leaf(canonical_name(path, LEAF_NAMES)) for path in paths]),
    )


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a described network from Haiku's own layers."""
    require("haiku", "haiku")
    from .zoo.haiku import make

    return from_haiku(make(spec), spec.obs_spec, name=name)
