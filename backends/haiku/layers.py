"""Haiku's layers, and how their arrays are stored."""

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
    Module,
    define,
    gates,
    heads,
    norm,
    refuse,
    require_rank,
    stored,
    vector,
    window,
)
from ..layers.storage import Storage

LSTM_GATES = ("i", "g", "f", "o")


def _layers() -> dict[str, Layer]:
    attention = {"linear/w": heads("out/kernel", axis=-2), "linear/b": stored("out/bias", 1)}
    for part in PROJECTIONS:
        attention |= {f"{part}/w": heads(f"{part}/kernel"), f"{part}/b": heads(f"{part}/bias", 1)}
    gru = {
        "w_i": gates("input", "zrn", cells.RESET_BEFORE),
        "w_h": gates("recurrent", "zrn", cells.RESET_BEFORE),
        "b": gates("bias", "zrn", cells.RESET_BEFORE),
    }
    simple = {
        "linear/w": stored("input/kernel", 2),
        "linear/b": stored("bias", 1),
        "linear_1/w": stored("recurrent/kernel", 2),
        "linear_1/b": stored("recurrent/bias", 1),
    }
    convolutional = {
        "input_to_hidden/w": window("input/kernel"),
        "input_to_hidden/b": vector("input/bias"),
        "hidden_to_hidden/w": window("recurrent/kernel"),
        "hidden_to_hidden/b": vector("recurrent/bias"),
    }
    affine = {"scale": SCALE, "offset": BIAS}
    convolutions = "Conv1D Conv2D Conv3D ConvND DepthwiseConv1D DepthwiseConv2D DepthwiseConv3D"
    transposed = "Conv1DTranspose Conv2DTranspose Conv3DTranspose ConvNDTranspose"
    return {
        **define(kinds.DENSE, "Linear", {"w": stored("kernel", 2), "b": stored("bias", 1)}),
        **define("", "Bias", {"b": BIAS}),
        **define(kinds.EMBEDDING, "Embed", {"embeddings": stored("embedding", 2)}),
        **define(kinds.CONVOLUTION, convolutions, {"w": window(), "b": BIAS}),
        **define(kinds.TRANSPOSED, transposed, {"w": window(channels_swapped=True), "b": BIAS}),
        **define(kinds.BATCH_NORM, "BatchNorm", affine),
        **define(kinds.GROUP_NORM, "GroupNorm InstanceNorm", affine),
        **define(kinds.LAYER_NORM, "LayerNorm", {"scale": norm("scale"), "offset": norm("bias")}),
        **define(kinds.RMS_NORM, "RMSNorm", {"scale": norm("scale")}),
        **define(kinds.ATTENTION, "MultiHeadAttention", attention),
        **define(cells.LSTM, "LSTM", {"linear/w": lstm_kernel, "linear/b": lstm_bias}),
        **define(cells.RESET_BEFORE, "GRU", gru),
        **define(cells.SIMPLE_CELL, "VanillaRNN", simple),
        **define(kinds.CONVOLUTIONAL_LSTM, "Conv1DLSTM Conv2DLSTM Conv3DLSTM", convolutional),
        **refuse("VectorQuantizer", kinds.ONLY_HERE),
    }


def lstm_kernel(layer: Module, shape: tuple[int, ...]) -> Leaf:
    """Store Haiku's single kernel `[in + size, 4 * size]` of inputs and hidden units."""
    del layer
    require_rank(shape, 2)
    size = shape[-1] // 4
    names = [cells.names_of(part, LSTM_GATES) for part in ("input", "recurrent")]

    def encode(array: jax.Array) -> tuple[jax.Array, ...]:
        rows = jnp.split(array, [array.shape[-2] - size], axis=-2)
        return tuple(gate for row in rows for gate in jnp.split(row, 4, axis=-1))

    def decode(*parts: jax.Array) -> jax.Array:
        rows = [jnp.concatenate(parts[start : start + 4], axis=-1) for start in (0, 4)]
        return jnp.concatenate(rows, axis=-2)

    return Leaf((*names[0], *names[1]), encode, decode)


def lstm_bias(layer: Module, shape: tuple[int, ...]) -> Leaf:
    """Store Haiku's bias `[4 * size]`, without the 1 added to the forget gate.

    The canonical bias includes that 1, so a round trip may change its last bit.
    """
    del layer
    require_rank(shape, 1)

    def encode(array: jax.Array) -> tuple[jax.Array, ...]:
        i, g, f, o = jnp.split(array, 4, axis=-1)
        return i, g, f + 1.0, o

    def decode(*parts: jax.Array) -> jax.Array:
        i, g, f, o = parts
        return jnp.concatenate([i, g, f - 1.0, o], axis=-1)

    return Leaf(cells.names_of("bias", LSTM_GATES), encode, decode)


STORAGE = Storage(
    layers=_layers(),
    leaf_names={"w": "kernel", "b": "bias", "embeddings": "embedding", "offset": "bias"},
    statistics={
        "mean_ema/average": "mean",
        "var_ema/average": "var",
        "mean_ema/counter": "count",
        "var_ema/counter": "count",
        "mean_ema/hidden": None,  # the sum that `average` is computed from
        "var_ema/hidden": None,
    },
)
