"""Haiku's modules as `Network`s: `hk.transform_with_state`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..core.architecture import NetworkSpec
from ..core.combinators import hold
from ..core.errors import blaming, require
from ..core.network import Codec, Leaf, Network, Variables
from .calling import InitialCarry, Inputs, arguments, example, in_words, mode_arguments, parameters
from .naming import canonical_name

LEAF_NAMES = {"w": "kernel", "b": "bias", "embeddings": "embedding", "offset": "bias"}


def from_haiku(
    function: Any,
    obs_spec: Inputs,
    *,
    name: str | None = None,
    initial_carry: InitialCarry | None = None,
) -> Network:
    """Lift a Haiku function or module to a `Network`.

    Args:
      function: builds modules and applies them to a batch of observations `[B, ...]`; or a subclass
        of `hk.Module` that needs no arguments; or what `hk.transform` or
        `hk.transform_with_state` gave. A function or module that takes `is_training` (or `train`,
        or `deterministic`) is told; `hk.next_rng_key()` works in training.
      obs_spec: one observation; a tuple of specs for several inputs.
      name: how errors and reports call it.
      initial_carry: of a recurrent function `(obs, carry) -> (outputs, carry)`: makes the carry
        `[N, ...]` for a number of environments.

    Returns:
      The network; `params` and `state` are Haiku's own dictionaries. Parameters that are no floats
      are kept in the state.

    Raises:
      MissingExtra: if Haiku is not installed.
      TriglotError: if the function fails on such observations.
    """
    hk = require("haiku", "haiku")
    called = name or getattr(function, "__name__", type(function).__name__)
    names = parameters(function)
    if isinstance(function, type) and issubclass(function, hk.Module):
        names, function = parameters(function.__call__), _constructing(function)
    if isinstance(function, hk.Transformed):
        function = hk.with_empty_state(function)
    if not isinstance(function, hk.TransformedWithState):
        function = hk.transform_with_state(function)
    transformed = function

    def init(key: jax.Array) -> Variables:
        inputs = example(obs_spec, initial_carry)
        # hk.BatchNorm makes its running averages only where it trains.
        modes = mode_arguments(names, True)
        # hk.initializers.Orthogonal multiplies a matrix by a vector, which strict settings refuse.
        with jax.numpy_rank_promotion("allow"):
            params, state = transformed.init(key, *inputs, **modes)
        return Variables(params=params, state=state)

    def apply(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        outputs, state = transformed.apply(
            variables.params,
            variables.state,
            key,
            *arguments(inputs),
            **mode_arguments(names, train),
        )
        # A Haiku function moves its state whenever it is called; evaluation keeps it.
        return outputs, state if train else variables.state

    with blaming(f"the Haiku function {called!r} failed on {in_words(obs_spec)}"):
        params = jax.eval_shape(init, jax.random.key(0)).params
    leaves = [
        (Leaf.one(canonical_name(path, LEAF_NAMES)), leaf.dtype)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    ]
    network = Network(
        name=called,
        backend="haiku",
        init=init,
        apply=apply,
        recurrent=initial_carry is not None,
        initial_carry=lambda variables, n: initial_carry(n) if initial_carry else (),
        codec=Codec.named(params, [leaf for leaf, _ in leaves]),
    )
    buffers = {leaf.name for leaf, dtype in leaves if not jnp.issubdtype(dtype, jnp.inexact)}
    return hold(network, buffers) if buffers else network


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a described network from Haiku's own layers."""
    require("haiku", "haiku")
    from .zoo.haiku import make

    return from_haiku(make(spec), spec.obs_spec, name=name)


def _constructing(module: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Make a function of a module's class: Haiku builds modules inside the transformed function."""
    return lambda *inputs, **modes: module()(*inputs, **modes)
