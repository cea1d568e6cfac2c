"""PyTorch's layers, and how their arrays are stored."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ...core.network import Leaf
from .. import cells
from ..layers import kinds
from ..layers.rules import (
    BIAS,
    PROJECTIONS,
    SCALE,
    Layer,
    Rule,
    UnknownLayout,
    define,
    gates,
    heads,
    keep,
    norm,
    num_spatial_axes,
    refuse,
    require_rank,
    stored,
    swap,
    swapped,
    window,
)
from ..layers.storage import Storage

NO_CELL = "it is what PyTorch's own cells derive from"
MAX_STACKED = 8  # layers of PyTorch's LSTM, GRU or RNN
LAZY = "its shape is known after its first call only, which makes it the plain layer"
OWN_ARRAYS = "only their author knows the layout of its arrays"


def _layers() -> dict[str, Layer]:
    attention = {
        "in_proj_weight": projections("kernel"),
        "in_proj_bias": projections("bias"),
        "out_proj/weight": heads("out/kernel", axis=-2, outputs_first=True),
        "out_proj/bias": stored("out/bias", 1),
    }
    for part, letter in zip(PROJECTIONS, "qkv", strict=True):
        attention[f"{letter}_proj_weight"] = heads(f"{part}/kernel", outputs_first=True)

    def cell(names: Sequence[str], note: str = "") -> dict[str, Rule]:
        return {
            "weight_ih": gates("input", names, note, outputs_first=True),
            "weight_hh": gates("recurrent", names, note, outputs_first=True),
            "bias_ih": gates("bias", names, note),
            "bias_hh": gates("recurrent biases", names, note),
        }

    lstm, gru = cell(cells.LSTM_GATES), cell(cells.GRU_GATES, cells.RESET_AFTER)
    # Of the zoo's subclass, whose cells have one bias; PyTorch's own have two.
    own_gru = gru | {"bias_n": stored(cells.INNER_BIAS, 1, note=cells.RESET_AFTER)}
    simple = {
        "weight_ih": swapped("input/kernel"),
        "weight_hh": swapped("recurrent/kernel"),
        "bias_ih": stored("bias", 1),
        "bias_hh": stored("recurrent/bias", 1),
    }

    def over_time(of_cell: dict[str, Rule]) -> dict[str, Rule]:
        """List the parameters of a stack of cells, in one or both directions."""
        places = [f"l{k}{way}" for k in range(MAX_STACKED) for way in ("", "_reverse")]
        return {
            f"{name}_{place}": inside(place, rule)
            for place in places
            for name, rule in of_cell.items()
        }

    affine = {"weight": SCALE, "bias": BIAS}
    normed = {"weight": norm("scale"), "bias": norm("bias")}
    dense = {"weight": swapped("kernel"), "bias": stored("bias", 1)}
    convolution = {"weight": window(outputs_first=True), "bias": BIAS}
    transposed = {"weight": transposed_window, "bias": BIAS}
    dimensions = ("1d", "2d", "3d")
    lazy = ["LazyLinear"] + [
        f"Lazy{name}{size}"
        for name in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm")
        for size in dimensions
    ]
    return {
        **define(kinds.DENSE, "Linear", dense),
        **define(kinds.EMBEDDING, "Embedding", {"weight": stored("embedding", 2)}),
        **define(kinds.CONVOLUTION, "Conv1d Conv2d Conv3d", convolution),
        **define(kinds.TRANSPOSED, "ConvTranspose1d ConvTranspose2d ConvTranspose3d", transposed),
        **define(kinds.BATCH_NORM, "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm", affine),
        **define(
            kinds.GROUP_NORM, "GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d", affine
        ),
        **define(kinds.LAYER_NORM, "LayerNorm", normed),
        **define(kinds.RMS_NORM, "RMSNorm", normed),
        **define(kinds.ATTENTION, "MultiheadAttention", attention),
        **define(kinds.PRELU, "PReLU", {"weight": slope}),
        **define(cells.LSTM, "LSTMCell", lstm),
        **define(cells.RESET_AFTER, "GRUCell", own_gru),
        **define(cells.SIMPLE_CELL, "RNNCell", simple),
        **define(cells.LSTM, "LSTM", over_time(lstm)),
        **define(cells.RESET_AFTER, "GRU", over_time(gru)),
        **define(cells.SIMPLE_CELL, "RNN", over_time(simple)),
        **refuse("RNNBase RNNCellBase", NO_CELL),
        **refuse("Bilinear EmbeddingBag", kinds.ONLY_HERE),
        **refuse("ParameterList ParameterDict", OWN_ARRAYS),
        **refuse(" ".join(lazy), LAZY),
    }


def slope(layer: Any, shape: tuple[int, ...]) -> Leaf:
    """Store the slope of PyTorch's PReLU, `[1]`, which is canonically a number."""
    del layer
    if shape != (1,):
        raise UnknownLayout("it has a slope for each channel")
    return Leaf.one(
        "negative_slope",
        lambda slope: slope.reshape(slope.shape[:-1]),
        lambda slope: slope.reshape(*slope.shape, 1),
    )


def transposed_window(layer: Any, shape: tuple[int, ...]) -> Leaf:
    """Store the kernel of PyTorch's transposed convolution: `[in, out, *window]`, reversed."""
    spatial = num_spatial_axes(layer)
    require_rank(shape, spatial + 2)
    if layer.groups != 1:
        raise UnknownLayout("it has groups, whose channels libraries store in different ways")
    first, last, window_axes = (-spatial - 2, -spatial - 1), (-2, -1), tuple(range(-spatial, 0))

    def encode(kernel: jax.Array) -> jax.Array:
        return jnp.moveaxis(jnp.flip(kernel, window_axes), first, last)

    def decode(kernel: jax.Array) -> jax.Array:
        return jnp.flip(jnp.moveaxis(kernel, last, first), window_axes)

    return Leaf.one("kernel", encode, decode)


def projections(part: str) -> Rule:
    """Store the projections of PyTorch's attention, `[3 * heads * size, in]`, in one array.

    Args:
      part: `kernel` or `bias`.
    """
    turn, rank = (swap, 2) if part == "kernel" else (keep, 1)

    def rule(layer: Any, shape: tuple[int, ...]) -> Leaf:
        require_rank(shape, rank)

        def encode(array: jax.Array) -> tuple[jax.Array, ...]:
            each = jnp.split(turn(array), 3, axis=-1)
            return tuple(one.reshape(*one.shape[:-1], layer.num_heads, -1) for one in each)

        def decode(*parts: jax.Array) -> jax.Array:
            each = [one.reshape(*one.shape[:-2], -1) for one in parts]
            return turn(jnp.concatenate(each, axis=-1))

        return Leaf(tuple(f"{name}/{part}" for name in ("query", "key", "value")), encode, decode)

    return rule


def inside(place: str, rule: Rule) -> Rule:
    """Store the array of a layer that a layer holds under a place of its own."""

    def placed(layer: Any, shape: tuple[int, ...]) -> Leaf:
        leaf = rule(layer, shape)
        return replace(leaf, names=tuple(f"{place}/{name}" for name in leaf.names))

    return placed


STORAGE = Storage(
    layers=_layers(),
    leaf_names={"weight": "kernel"},
    statistics={"running_mean": "mean", "running_var": "var", "num_batches_tracked": "count"},
)
