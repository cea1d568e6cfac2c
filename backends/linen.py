"""Adapter for Flax Linen, through `init` and `apply` with mutable collections."""

from typing import Any

import jax
import jax.numpy as jnp

from ..core.errors import TriglotError, require, user_error_context
from ..core.network import Codec, Leaf, Network, Variables
from ..core.networks.architecture import NetworkSpec
from ..core.networks.combinators import hold
from . import calling, cells
from .layers.describe import CallLog, describe
from .naming import words_of


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
    names = calling.parameters(module)

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

    calls = CallLog()

    def log_call(method: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if context.module.scope is None:
            return method(*args, **kwargs)
        with calls.calling(tuple(context.module.path), context.module):
            return method(*args, **kwargs)

    with (
        user_error_context(
            f"the Linen module {shown!r} failed on {calling.describe_inputs(obs_spec)}"
        ),
        linen.intercept_methods(log_call),
    ):
        params = jax.eval_shape(init, jax.random.key(0)).params

    def describe_one(path: Any, shape: tuple[int, ...]) -> Leaf:
        words = words_of(path)
        return describe("linen", words, calls.owners(words), shape)

    leaves = [
        (describe_one(path, leaf.shape), leaf.dtype)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    ]
    codec = Codec.named(params, [leaf for leaf, _ in leaves])
    network = calling.lifted(shown, "linen", init, apply, initial_carry, codec=codec)
    buffers = {leaf.name for leaf, dtype in leaves if not jnp.issubdtype(dtype, jnp.inexact)}
    return hold(network, buffers) if buffers else network


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from Linen's own layers."""
    require("flax", "flax")
    from .zoo.linen import make

    return cells.lift_zoo(from_linen, spec, name, make(spec), spec.obs_spec)
