"""Layouts of single parameters: how a library stores what the canonical form names.

A `Rule` takes the layer that owns an array and the array's shape, and returns a `Leaf` whose names
are relative to the layer. Conversions address axes from the end, so that leading axes, of an
ensemble or of seeds, are kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ...core.network import Leaf
from .. import cells

DENSE = "a dense layer"

Rule: TypeAlias = Callable[[Any, tuple[int, ...]], Leaf]


class UnknownLayout(Exception):
    """The layer is listed, but not with this shape or configuration; its message says why."""


@dataclass(frozen=True)
class Layer:
    """One type of layer in one library.

    Attributes:
      kind: what it computes, as messages call it; arrays of different kinds are not paired.
      parameters: rules by the library's name of the parameter, relative to the layer.
      refused: why it is not translated; empty for a layer that is.
    """

    kind: str = ""
    parameters: dict[str, Rule] = field(default_factory=dict)
    refused: str = ""


def several_axes(shape: tuple[int, ...]) -> bool:
    """Check whether a shape has more than one axis longer than 1.

    >>> several_axes((1, 3, 1)), several_axes((2, 3))
    (False, True)
    """
    return sum(size != 1 for size in shape) > 1


def _require_rank(shape: tuple[int, ...], rank: int) -> None:
    if len(shape) != rank:
        raise UnknownLayout(
            f"it is stored with {len(shape)} axes instead of {rank}, as layers are that a "
            "transformation stacks"
        )


def stored(name: str, rank: int, *conversions: Callable[..., jax.Array], note: str = "") -> Rule:
    """Store an array of `rank` axes, in the canonical layout unless `conversions` are given.

    Args:
      name: its canonical name.
      rank: the number of axes.
      conversions: to the canonical layout, and back.
      note: see `Leaf`.
    """

    def rule(layer: Any, shape: tuple[int, ...]) -> Leaf:
        del layer
        _require_rank(shape, rank)
        return Leaf.one(name, *conversions, note=note)

    return rule


def swapped(name: str) -> Rule:
    """Store a matrix as `[out, in]`, which is canonically `[in, out]`."""
    return stored(name, 2, _swap, _swap)


def vector(name: str) -> Rule:
    """Store a vector, with or without axes of size 1 around its own: `[n]`, `[n, 1, 1]`."""

    def rule(layer: Any, shape: tuple[int, ...]) -> Leaf:
        del layer
        if several_axes(shape):
            raise UnknownLayout("it has several axes, whose order libraries do not agree on")
        if len(shape) == 1:
            return Leaf.one(name)
        return Leaf.one(
            name,
            lambda array: array.reshape(*array.shape[: array.ndim - len(shape)], prod(shape)),
            lambda array: array.reshape(*array.shape[:-1], *shape),
        )

    return rule


def norm(name: str) -> Rule:
    """Store the scale or bias of a normalization over the last axis, or over one axis alone."""

    def rule(layer: Any, shape: tuple[int, ...]) -> Leaf:
        for attribute in ("axis", "reduction_axes", "feature_axes", "param_axis"):
            if getattr(layer, attribute, -1) not in (-1, (-1,), [-1]):
                raise UnknownLayout("the layer normalizes or scales other axes than the last")
        return vector(name)(layer, shape)

    return rule


def window(
    name: str = "kernel", *, outputs_first: bool = False, channels_swapped: bool = False
) -> Rule:
    """Store the kernel of a convolution, canonically `[*window, in, out]`.

    Args:
      name: its canonical name.
      outputs_first: stored as `[out, in, *window]`.
      channels_swapped: stored as `[*window, out, in]`.
    """

    def rule(layer: Any, shape: tuple[int, ...]) -> Leaf:
        rank = _num_spatial_axes(layer) + 2
        _require_rank(shape, rank)
        if outputs_first:
            first, last = (-rank, 1 - rank), (-1, -2)
            return Leaf.one(
                name,
                lambda kernel: jnp.moveaxis(kernel, first, last),
                lambda kernel: jnp.moveaxis(kernel, last, first),
            )
        return Leaf.one(name, _swap, _swap) if channels_swapped else Leaf.one(name)

    return rule


def torch_slope(layer: Any, shape: tuple[int, ...]) -> Leaf:
    """Store the slope of PyTorch's PReLU, `[1]`, which is canonically a number."""
    del layer
    if shape != (1,):
        raise UnknownLayout("it has a slope for each channel")
    return Leaf.one(
        "negative_slope",
        lambda slope: slope.reshape(slope.shape[:-1]),
        lambda slope: slope.reshape(*slope.shape, 1),
    )


def torch_transposed_window(layer: Any, shape: tuple[int, ...]) -> Leaf:
    """Store the kernel of PyTorch's transposed convolution: `[in, out, *window]`, reversed."""
    spatial = _num_spatial_axes(layer)
    _require_rank(shape, spatial + 2)
    if layer.groups != 1:
        raise UnknownLayout("it has groups, whose channels libraries store in different ways")
    first, last, window_axes = (-spatial - 2, -spatial - 1), (-2, -1), tuple(range(-spatial, 0))

    def encode(kernel: jax.Array) -> jax.Array:
        return jnp.moveaxis(jnp.flip(kernel, window_axes), first, last)

    def decode(kernel: jax.Array) -> jax.Array:
        return jnp.flip(jnp.moveaxis(kernel, last, first), window_axes)

    return Leaf.one("kernel", encode, decode)


def flax_transposed_window(layer: Any, shape: tuple[int, ...]) -> Leaf:
    """Store the kernel of Flax's transposed convolution.

    With `transpose_kernel` it is stored as that of the convolution whose gradient it computes.
    """
    return turned_window(layer, shape) if layer.transpose_kernel else window()(layer, shape)


def turned_window(layer: Any, shape: tuple[int, ...]) -> Leaf:
    """Store the kernel of a transposed convolution as that whose gradient it computes.

    It is `[*window, out, in]`, with the window reversed.
    """
    spatial = _num_spatial_axes(layer)
    _require_rank(shape, spatial + 2)
    reversed_axes = tuple(range(-spatial - 2, -2))

    def turn(kernel: jax.Array) -> jax.Array:
        return _swap(jnp.flip(kernel, reversed_axes))

    return Leaf.one("kernel", turn, turn)


def depthwise_window(layer: Any, shape: tuple[int, ...]) -> Leaf:
    """Store the kernel of a depthwise convolution as `[*window, in, outputs per input]`."""
    _require_rank(shape, _num_spatial_axes(layer) + 2)

    def encode(kernel: jax.Array) -> jax.Array:
        return kernel.reshape(*kernel.shape[:-2], 1, -1)

    def decode(kernel: jax.Array) -> jax.Array:
        return kernel.reshape(*kernel.shape[:-2], *shape[-2:])

    return Leaf.one("kernel", encode, decode)


def _num_spatial_axes(layer: Any) -> int:
    if hasattr(layer, "num_spatial_dims"):
        return layer.num_spatial_dims
    return 1 if isinstance(layer.kernel_size, int) else len(layer.kernel_size)


def general_dense(name: str) -> Rule:
    """Store the kernel or bias of a Flax layer `[*batch, *in, *out]`, or `[*batch, *out]`.

    Over the last axis alone, with one axis of outputs, it is a dense layer.
    """

    def rule(layer: Any, shape: tuple[int, ...]) -> Leaf:
        outputs = _count(getattr(layer, "features", None) or getattr(layer, "out_features", 0))
        batch = len(getattr(layer, "batch_dims", ()) or getattr(layer, "batch_axis", ()))
        inputs = _count(layer.axis)
        _require_rank(shape, batch + outputs + (inputs if name == "kernel" else 0))
        is_dense = batch == 0 and outputs == 1 and layer.axis in (-1, (-1,), [-1])
        return replace(Leaf.one(name), layer=DENSE if is_dense else "")

    return rule


def _count(axes: int | Sequence[int]) -> int:
    return 1 if isinstance(axes, int) else len(axes)


def heads(name: str, rank: int = 2, *, axis: int = -1, outputs_first: bool = False) -> Rule:
    """Store the axis `heads * size` of an attention's array, canonically `heads, size`.

    Args:
      name: its canonical name.
      rank: the number of axes.
      axis: -1 for `[in, heads * size]` and `[heads * size]`, -2 for `[heads * size, out]`.
      outputs_first: the matrix is stored transposed.
    """
    turn = _swap if outputs_first else _keep

    def rule(layer: Any, shape: tuple[int, ...]) -> Leaf:
        _require_rank(shape, rank)

        def encode(array: jax.Array) -> jax.Array:
            array = turn(array)
            at = array.ndim + axis
            return array.reshape(*array.shape[:at], layer.num_heads, -1, *array.shape[at + 1 :])

        def decode(array: jax.Array) -> jax.Array:
            at = array.ndim + axis - 1
            return turn(array.reshape(*array.shape[:at], -1, *array.shape[at + 2 :]))

        return Leaf.one(name, encode, decode)

    return rule


def torch_projections(part: str) -> Rule:
    """Store the projections of PyTorch's attention, `[3 * heads * size, in]`, in one array.

    Args:
      part: `kernel` or `bias`.
    """
    turn, rank = (_swap, 2) if part == "kernel" else (_keep, 1)

    def rule(layer: Any, shape: tuple[int, ...]) -> Leaf:
        _require_rank(shape, rank)

        def encode(array: jax.Array) -> tuple[jax.Array, ...]:
            each = jnp.split(turn(array), 3, axis=-1)
            return tuple(one.reshape(*one.shape[:-1], layer.num_heads, -1) for one in each)

        def decode(*parts: jax.Array) -> jax.Array:
            each = [one.reshape(*one.shape[:-2], -1) for one in parts]
            return turn(jnp.concatenate(each, axis=-1))

        return Leaf(tuple(f"{name}/{part}" for name in ("query", "key", "value")), encode, decode)

    return rule


def gates(part: str, names: Sequence[str], note: str = "", *, outputs_first: bool = False) -> Rule:
    """Store the arrays of a recurrent cell's gates in one array, along its last axis.

    Args:
      part: the kernels of `input` or `recurrent`, the `bias`es, or the `recurrent biases`.
      names: the gates in the order of the library.
      note: see `Leaf`.
      outputs_first: the kernels are stored as `[gates * size, in]`.
    """
    turn, axis = (_swap, -2) if outputs_first else (_keep, -1)

    def encode(array: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(map(turn, jnp.split(array, len(names), axis=axis)))

    def decode(*parts: jax.Array) -> jax.Array:
        return jnp.concatenate(list(map(turn, parts)), axis=axis)

    def rule(layer: Any, shape: tuple[int, ...]) -> Leaf:
        del layer
        _require_rank(shape, 1 if part in ("bias", "recurrent biases") else 2)
        return Leaf(cells.names_of(part, names), encode, decode, note)

    return rule


def inside(place: str, rule: Rule) -> Rule:
    """Store the array of a layer that a layer holds under a place of its own."""

    def placed(layer: Any, shape: tuple[int, ...]) -> Leaf:
        leaf = rule(layer, shape)
        return replace(leaf, names=tuple(f"{place}/{name}" for name in leaf.names))

    return placed


HAIKU_LSTM_GATES = ("i", "g", "f", "o")


def haiku_lstm_kernel(layer: Any, shape: tuple[int, ...]) -> Leaf:
    """Store Haiku's single kernel `[in + size, 4 * size]` of inputs and hidden units."""
    del layer
    _require_rank(shape, 2)
    size = shape[-1] // 4
    names = [cells.names_of(part, HAIKU_LSTM_GATES) for part in ("input", "recurrent")]

    def encode(array: jax.Array) -> tuple[jax.Array, ...]:
        rows = jnp.split(array, [array.shape[-2] - size], axis=-2)
        return tuple(gate for row in rows for gate in jnp.split(row, 4, axis=-1))

    def decode(*parts: jax.Array) -> jax.Array:
        rows = [jnp.concatenate(parts[start : start + 4], axis=-1) for start in (0, 4)]
        return jnp.concatenate(rows, axis=-2)

    return Leaf((*names[0], *names[1]), encode, decode)


def haiku_lstm_bias(layer: Any, shape: tuple[int, ...]) -> Leaf:
    """Store Haiku's bias `[4 * size]`, without the 1 added to the forget gate.

    The canonical bias includes that 1, so a round trip may change its last bit.
    """
    del layer
    _require_rank(shape, 1)

    def encode(array: jax.Array) -> tuple[jax.Array, ...]:
        i, g, f, o = jnp.split(array, 4, axis=-1)
        return i, g, f + 1.0, o

    def decode(*parts: jax.Array) -> jax.Array:
        i, g, f, o = parts
        return jnp.concatenate([i, g, f - 1.0, o], axis=-1)

    return Leaf(cells.names_of("bias", HAIKU_LSTM_GATES), encode, decode)


KERAS_GRU_GATES = ("z", "r", "n")


def keras_gru(part: str) -> Rule:
    """Store a part of Keras's GRU: the kernels of `input` or `recurrent`, or the `bias`.

    With the reset gate after the product there are two biases, `[2, 3 * size]`.
    """

    def rule(layer: Any, shape: tuple[int, ...]) -> Leaf:
        convention = cells.RESET_AFTER if layer.reset_after else cells.KEEPS_BY_UPDATE
        if part != "bias" or len(shape) == 1:
            leaf = gates(part, KERAS_GRU_GATES, convention)(layer, shape)
        else:
            _require_rank(shape, 2)
            both = [cells.names_of(each, KERAS_GRU_GATES) for each in ("bias", "recurrent biases")]
            leaf = Leaf((*both[0], *both[1]), _rows_of_gates, _joined_rows, convention)
        return replace(leaf, layer=convention)

    return rule


def _rows_of_gates(array: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(gate for row in (0, 1) for gate in jnp.split(array[..., row, :], 3, axis=-1))


def _joined_rows(*gates: jax.Array) -> jax.Array:
    rows = [jnp.concatenate(gates[start : start + 3], axis=-1) for start in (0, 3)]
    return jnp.stack(rows, axis=-2)


def each_gate(cell_gates: Sequence[str], note: str = "") -> dict[str, Rule]:
    """List the parameters of a cell with dense layers `i` + gate of the inputs, `h` + gate.

    Args:
      cell_gates: the gates.
      note: the convention of a GRU, whose biases are in the layers of the inputs, and in the
        recurrent layer of its last gate; an LSTM's are in the recurrent layers.
    """
    bias_layer = "i" if note else "h"
    rules: dict[str, Rule] = {}
    for gate in cell_gates:
        rules |= {
            f"i{gate}/kernel": gates("input", [gate], note),
            f"h{gate}/kernel": gates("recurrent", [gate], note),
            f"{bias_layer}{gate}/bias": gates("bias", [gate], note),
        }
    if note:
        rules[f"h{cell_gates[-1]}/bias"] = stored(cells.INNER_BIAS, 1, note=note)
    return rules


def _keep(array: jax.Array) -> jax.Array:
    return array


def _swap(array: jax.Array) -> jax.Array:
    return jnp.swapaxes(array, -1, -2)
