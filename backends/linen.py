"""Flax Linen's modules as `Network`s: `init` and `apply` with mutable collections."""

from typing import Any

import jax
import jax.numpy as jnp

from ..core.architecture import NetworkSpec
from ..core.combinators import hold
from ..core.errors import TriglotError, blaming, require
from ..core.network import Codec, Leaf, Network, Variables
from .calling import InitialCarry, Inputs, arguments, example, in_words, mode_arguments, parameters
from .naming import canonical_name


def from_linen(
    module: Any,
    obs_spec: Inputs,
    *,
    name: str | None = None,
    initial_carry: InitialCarry | None = None,
) -> Network:
    """Lift a Linen module to a `Network`.

    Args:
      module: a `flax.linen.Module`, called on a batch of observations `[B, ...]`. Where it takes
        `train` (or `training`, `deterministic`, `use_running_average`), it is told; in training
        `make_rng` of any name works.
      obs_spec: one observation; a tuple of specs for several inputs.
      name: how errors and reports call it.
      initial_carry: of a recurrent module `(obs, carry) -> (outputs, carry)`: makes the carry
        `[N, ...]` for a number of environments.

    Returns:
      The network; `params` is the collection of that name, `state` holds every other collection.
      Parameters that are no floats are kept in the state.

    Raises:
      MissingExtra: if Flax is not installed.
      TriglotError: if it is no module, or fails on such observations.
    """
    linen = require("flax.linen", "flax")
    if not isinstance(module, linen.Module):
        given = f"the class {module.__name__}" if isinstance(module, type) else repr(module)
        raise TriglotError(
            f"from_linen takes an instance of a flax.linen.Module, such as Mine(hidden=64); got "
            f"{given}."
        )
    called = name or type(module).__name__
    names = parameters(module.__call__)

    def init(key: jax.Array) -> Variables:
        inputs = example(obs_spec, initial_carry)
        state = dict(module.init(key, *inputs, **mode_arguments(names, False)))
        return Variables(params=state.pop("params", {}), state=state)

    def apply(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        collections = {"params": variables.params, **variables.state}
        given, modes = arguments(inputs), mode_arguments(names, train)
        # One key serves every stream: Linen falls back to it for a name that it is not given.
        if not variables.state:
            return module.apply(collections, *given, rngs=key, **modes), variables.state
        # A module may move its collections whenever it is called; evaluation keeps them.
        mutable = list(variables.state)
        outputs, state = module.apply(collections, *given, rngs=key, mutable=mutable, **modes)
        return outputs, state if train else variables.state

    with blaming(f"the Linen module {called!r} failed on {in_words(obs_spec)}"):
        params = jax.eval_shape(init, jax.random.key(0)).params
    leaves = [
        (Leaf.one(canonical_name(path, {})), leaf.dtype)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    ]
    network = Network(
        name=called,
        backend="linen",
        init=init,
        apply=apply,
        recurrent=initial_carry is not None,
        initial_carry=lambda variables, n: initial_carry(n) if initial_carry else (),
        codec=Codec.named(params, [leaf for leaf, _ in leaves]),
    )
    buffers = {leaf.name for leaf, dtype in leaves if not jnp.issubdtype(dtype, jnp.inexact)}
    return hold(network, buffers) if buffers else network


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a described network from Linen's own layers."""
    require("flax", "flax")
    from .zoo.linen import make

    return from_linen(make(spec), spec.obs_spec, name=name)
