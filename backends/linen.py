"""Adapter for Flax Linen, through `init` and `apply` with mutable collections."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..core.errors import TriglotError, require, user_error_context
from ..core.network import Codec, Leaf, Network, Variables
from ..core.networks.architecture import NetworkSpec
from ..core.networks.combinators import hold
from . import calling, cells
from .naming import canonical_name, prefix_of


def from_linen(
    module: Any,
    obs_spec: calling.Inputs,
    *,
    name: str | None = None,
    initial_carry: calling.InitialCarry | None = None,
) -> Network:
    """Lift a Linen module to a `Network`.

    Args:
      module: a `flax.linen.Module`, called on a batch of observations `[B, ...]`. If it takes
        `train` (or `training`, `deterministic`, `use_running_average`), it gets that flag;
        `make_rng` of any name works in training.
      obs_spec: one observation; a tuple of specs for several inputs.
      name: shown in errors and reports.
      initial_carry: for a recurrent module `(obs, carry) -> (outputs, carry)`:
        `initial_carry(num_envs)` returns the carry `[N, ...]` at an episode's start.

    Returns:
      The network; `params` is the collection of that name, `state` holds every other collection.
      Integer parameters are kept in the state.

    Raises:
      MissingExtra: if Flax is not installed.
      TriglotError: if it is not a module, or fails on these observations.
    """
    linen = require("flax.linen", "flax")
    if not isinstance(module, linen.Module):
        given = f"the class {module.__name__}" if isinstance(module, type) else repr(module)
        raise TriglotError(
            f"from_linen takes an instance of a flax.linen.Module, such as Mine(hidden=64); got "
            f"{given}."
        )
    shown = name or type(module).__name__
    names = calling.parameters(module.__call__)

    def init(key: jax.Array) -> Variables:
        inputs = calling.example_arguments(obs_spec, initial_carry)
        calling.check_arguments(f"the Linen module {shown!r}", names, inputs)
        state = dict(module.init(key, *inputs, **calling.mode_arguments(names, False)))
        return Variables(params=state.pop("params", {}), state=state)

    def apply(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        collections = {"params": variables.params, **variables.state}
        given, modes = calling.arguments(inputs), calling.mode_arguments(names, train)
        calling.check_arguments(f"the Linen module {shown!r}", names, given)
        # A single key is Linen's fallback for every stream.
        if not variables.state:
            return module.apply(collections, *given, rngs=key, **modes), variables.state
        # A module may update its collections in any call; evaluation discards the update.
        mutable = list(variables.state)
        outputs, state = module.apply(collections, *given, rngs=key, mutable=mutable, **modes)
        return outputs, state if train else variables.state

    with user_error_context(
        f"the Linen module {shown!r} failed on {calling.describe_inputs(obs_spec)}"
    ):
        params = jax.eval_shape(init, jax.random.key(0)).params
    leaves = [
        (_leaf(params, path), leaf.dtype)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    ]
    codec = Codec.named(params, [leaf for leaf, _ in leaves])
    network = calling.lifted(shown, "linen", init, apply, initial_carry, codec=codec)
    buffers = {leaf.name for leaf, dtype in leaves if not jnp.issubdtype(dtype, jnp.inexact)}
    return hold(network, buffers) if buffers else network


def _leaf(params: Any, path: Sequence[Any]) -> Leaf:
    """Name one parameter; the layers `ii`, `hf`, ... of a cell are named by gate."""
    name = canonical_name(path, {})
    if len(path) < 2:
        return Leaf.one(name)
    cell = params
    for key in path[:-2]:
        cell = cell[key.key]
    layer, kind = path[-2].key, path[-1].key
    place = prefix_of(path, 2)
    is_lstm = set(cell) == {f"{part}{gate}" for part in "ih" for gate in cells.LSTM_GATES}
    is_gru = set(cell) == {f"{part}{gate}" for part in "ih" for gate in cells.GRU_GATES}
    if not (is_lstm or is_gru):
        return Leaf.one(name)
    part, gate = ("input" if layer[0] == "i" else "recurrent"), layer[1]
    if kind == "kernel":
        (name,) = cells.kernels(place, part, gate)
    elif is_gru and part == "recurrent":
        name = cells.inner_bias(place)
    else:
        (name,) = cells.biases(place, gate)
    return Leaf.one(name, note=cells.RESET_AFTER if is_gru else "")


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from Linen's own layers."""
    require("flax", "flax")
    from .zoo.linen import make

    return cells.lift_zoo(from_linen, spec, name, make(spec), spec.obs_spec)
