"""Adapter for Haiku, through `hk.transform_with_state`."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..core.errors import require, user_error_context
from ..core.network import Codec, Leaf, Network, Variables
from ..core.networks.architecture import NetworkSpec
from ..core.networks.combinators import hold
from . import calling, cells
from .naming import canonical_name, prefix_of

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
        names, function = calling.parameters(function.__call__), _constructing(function)
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

    cell_types: dict[str, type] = {}  # of the recurrent cells, by module name

    def note_cells(method: Any, args: Any, kwargs: Any, context: Any) -> Any:
        is_call = context.method_name == "__call__"
        if is_call and isinstance(context.module, hk.LSTM | hk.GRU):
            cell_types[context.module.module_name] = type(context.module)
        return method(*args, **kwargs)

    with (
        user_error_context(
            f"the Haiku function {shown!r} failed on {calling.describe_inputs(obs_spec)}"
        ),
        hk.intercept_methods(note_cells),
    ):
        params = jax.eval_shape(init, jax.random.key(0)).params
    leaves = [
        (_leaf(hk, path, leaf.shape, cell_types), leaf.dtype)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    ]
    codec = Codec.named(params, [leaf for leaf, _ in leaves])
    network = calling.lifted(shown, "haiku", init, apply, initial_carry, codec=codec)
    buffers = {leaf.name for leaf, dtype in leaves if not jnp.issubdtype(dtype, jnp.inexact)}
    return hold(network, buffers) if buffers else network


def _leaf(
    hk: Any, path: Sequence[Any], shape: tuple[int, ...], cell_types: dict[str, type]
) -> Leaf:
    """Name one parameter; Haiku concatenates the gates of a cell, which are named one by one."""
    module, parameter = path[0].key, path[-1].key
    name = canonical_name(path, LEAF_NAMES)
    if issubclass(cell_types.get(module, object), hk.GRU):
        place = prefix_of(path, 1)
        gates = ("z", "r", "n")
        if parameter == "b":
            return cells.concatenated(cells.biases(place, gates), cells.RESET_BEFORE)
        part = "input" if parameter == "w_i" else "recurrent"
        return cells.concatenated(cells.kernels(place, part, gates), cells.RESET_BEFORE)
    if module.endswith("/linear") and module[: -len("/linear")] in cell_types:
        place = name.rpartition("/")[0].rpartition("/")[0]
        return _lstm_bias(place) if parameter == "b" else _lstm_kernel(place, shape[-1] // 4)
    return Leaf.one(name)


HAIKU_LSTM_GATES = ("i", "g", "f", "o")


def _lstm_kernel(place: str, size: int) -> Leaf:
    """Describe Haiku's single kernel `[..., in + size, 4 * size]` of inputs and hidden units."""
    names = [cells.kernels(place, part, HAIKU_LSTM_GATES) for part in ("input", "recurrent")]

    def encode(array: jax.Array) -> tuple[jax.Array, ...]:
        rows = jnp.split(array, [array.shape[-2] - size], axis=-2)
        return tuple(gate for row in rows for gate in jnp.split(row, 4, axis=-1))

    def decode(*parts: jax.Array) -> jax.Array:
        rows = [jnp.concatenate(parts[start : start + 4], axis=-1) for start in (0, 4)]
        return jnp.concatenate(rows, axis=-2)

    return Leaf((*names[0], *names[1]), encode, decode)


def _lstm_bias(place: str) -> Leaf:
    """Describe Haiku's bias `[4 * size]`, stored without the 1 added to the forget gate.

    The canonical bias includes that 1, so a round trip may change its last bit.
    """

    def encode(array: jax.Array) -> tuple[jax.Array, ...]:
        i, g, f, o = jnp.split(array, 4, axis=-1)
        return i, g, f + 1.0, o

    def decode(*parts: jax.Array) -> jax.Array:
        i, g, f, o = parts
        return jnp.concatenate([i, g, f - 1.0, o], axis=-1)

    return Leaf(cells.biases(place, HAIKU_LSTM_GATES), encode, decode)


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from Haiku's own layers."""
    require("haiku", "haiku")
    from .zoo.haiku import make

    return cells.lift_zoo(from_haiku, spec, name, make(spec), spec.obs_spec)


def _constructing(module: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Wrap a module's class: Haiku requires modules to be built inside the transformed function."""
    return lambda *inputs, **modes: module()(*inputs, **modes)
