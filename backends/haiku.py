"""Adapter for Haiku, through `hk.transform_with_state`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..core.errors import require, user_error_context
from ..core.network import Codec, Leaf, Network, Variables
from ..core.networks.architecture import NetworkSpec
from ..core.networks.combinators import hold
from . import calling, cells
from .layers.describe import CallLog, describe

LEAF_NAMES = {"w": "kernel", "b": "bias", "embeddings": "embedding", "offset": "bias"}


def from_haiku(
    function: Any,
    obs_spec: calling.Inputs,
    *,
    name: str | None = None,
    initial_carry: calling.InitialCarry | None = None,
) -> Network:
    """Lift a Haiku function or module to a `Network`.

    Args:
      function: a function that builds modules and applies them to a batch of observations
        `[B, ...]`; a subclass of `hk.Module` with a constructor without arguments; or the result
        of `hk.transform` or `hk.transform_with_state`. If it takes `is_training` (or `train`, or
        `deterministic`), it gets that flag; `hk.next_rng_key()` works in training.
      obs_spec: one observation; a tuple of specs for several inputs.
      name: shown in errors and reports.
      initial_carry: for a recurrent function `(obs, carry) -> (outputs, carry)`:
        `initial_carry(num_envs)` returns the carry `[N, ...]` at an episode's start.

    Returns:
      The network; `params` and `state` are Haiku's own dictionaries. Integer parameters are kept in
      the state.

    Raises:
      MissingExtra: if Haiku is not installed.
      TriglotError: if the function fails on these observations.
    """
    hk = require("haiku", "haiku")
    shown = name or getattr(function, "__name__", type(function).__name__)
    names = calling.parameters(function)
    if isinstance(function, type) and issubclass(function, hk.Module):
        names, function = calling.method_parameters(function, "__call__"), _constructing(function)
    if isinstance(function, hk.Transformed):
        function = hk.with_empty_state(function)
    if not isinstance(function, hk.TransformedWithState):
        function = hk.transform_with_state(function)
    transformed = function

    def init(key: jax.Array) -> Variables:
        inputs = calling.example_arguments(obs_spec, initial_carry)
        calling.check_arguments(f"the Haiku function {shown!r}", names, inputs)
        # hk.BatchNorm creates its running averages in training only.
        modes = calling.mode_arguments(names, True)
        # hk.initializers.Orthogonal multiplies a matrix by a vector, an error in strict mode.
        with jax.numpy_rank_promotion("allow"):
            params, state = transformed.init(key, *inputs, **modes)
        return Variables(params=params, state=state)

    def apply(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        given = calling.arguments(inputs)
        calling.check_arguments(f"the Haiku function {shown!r}", names, given)
        modes = calling.mode_arguments(names, train)
        outputs, state = transformed.apply(variables.params, variables.state, key, *given, **modes)
        # A Haiku function may update its state in any call; evaluation discards the update.
        return outputs, state if train else variables.state

    calls = CallLog()

    def log_call(method: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if context.method_name == "__init__":  # the module has no name yet
            return method(*args, **kwargs)
        with calls.calling(tuple(context.module.module_name.split("/")), context.module):
            return method(*args, **kwargs)

    with (
        user_error_context(
            f"the Haiku function {shown!r} failed on {calling.describe_inputs(obs_spec)}"
        ),
        hk.intercept_methods(log_call),
    ):
        params = jax.eval_shape(init, jax.random.key(0)).params

    def describe_one(path: Any, shape: tuple[int, ...]) -> Leaf:
        words = (*path[0].key.split("/"), path[-1].key)
        return describe("haiku", words, calls.owners(words), shape, LEAF_NAMES)

    leaves = [
        (describe_one(path, leaf.shape), leaf.dtype)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    ]
    codec = Codec.named(params, [leaf for leaf, _ in leaves])
    network = calling.lifted(shown, "haiku", init, apply, initial_carry, codec=codec)
    buffers = {leaf.name for leaf, dtype in leaves if not jnp.issubdtype(dtype, jnp.inexact)}
    return hold(network, buffers) if buffers else network


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from Haiku's own layers."""
    require("haiku", "haiku")
    from .zoo.haiku import make

    return cells.lift_zoo(from_haiku, spec, name, make(spec), spec.obs_spec)


def _constructing(module: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Wrap a module's class: Haiku requires modules to be built inside the transformed function."""
    return lambda *inputs, **modes: module()(*inputs, **modes)
