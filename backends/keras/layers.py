"""Keras's layers: how their arrays are stored, and what they compute."""

from dataclasses import replace

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
    Normalized,
    Rule,
    Words,
    compute,
    define,
    gates,
    norm,
    num_spatial_axes,
    refuse,
    require_rank,
    stored,
    turned_window,
    window,
)
from ..layers.storage import Storage
from . import formulas

GRU_GATES = ("z", "r", "n")


def _layers() -> dict[str, Layer]:
    attention = {"output_dense/kernel": stored("out/kernel", 3)}
    attention |= {"output_dense/bias": stored("out/bias", 1)}
    for part in PROJECTIONS:
        attention |= {
            f"{part}_dense/kernel": stored(f"{part}/kernel", 3),
            f"{part}_dense/bias": stored(f"{part}/bias", 2),
        }
    lstm = {
        "kernel": gates("input", cells.LSTM_GATES),
        "recurrent_kernel": gates("recurrent", cells.LSTM_GATES),
        "bias": gates("bias", cells.LSTM_GATES),
    }
    gru = {
        "kernel": gru_part("input"),
        "recurrent_kernel": gru_part("recurrent"),
        "bias": gru_part("bias"),
        # Of the built-in network's subclass; Keras's own cell has it in its bias.
        "bias_n": stored(cells.INNER_BIAS, 1, note=cells.RESET_AFTER),
    }
    simple = {
        "kernel": stored("input/kernel", 2),
        "recurrent_kernel": stored("recurrent/kernel", 2),
        "bias": stored("bias", 1),
    }
    affine = {"gamma": SCALE, "beta": BIAS}
    normed = {"gamma": norm("scale"), "beta": norm("bias")}
    dense = {"kernel": stored("kernel", 2), "bias": stored("bias", 1)}
    embedding = {"embeddings": stored("embedding", 2)}
    convolution = {"kernel": window(), "bias": BIAS}
    transposed = {"kernel": turned_window, "bias": BIAS}
    return {
        **compute(formulas.FUNCTIONS),
        **define(kinds.DENSE, "Dense", dense, formula=formulas.dense),
        **define(kinds.EMBEDDING, "Embedding", embedding, formula=formulas.embedding),
        **define(
            kinds.CONVOLUTION, "Conv1D Conv2D Conv3D", convolution, formula=formulas.convolution
        ),
        **define(
            kinds.CONVOLUTION,
            "DepthwiseConv1D DepthwiseConv2D",
            {"kernel": depthwise_window, "bias": BIAS},
            formula=formulas.convolution,
        ),
        **define(
            kinds.TRANSPOSED,
            "Conv1DTranspose Conv2DTranspose Conv3DTranspose",
            transposed,
            formula=formulas.transposed_convolution,
        ),
        **define(kinds.BATCH_NORM, "BatchNormalization", affine, formula=formulas.batch_norm),
        **define(kinds.GROUP_NORM, "GroupNormalization", affine, formula=formulas.group_norm),
        **define(kinds.LAYER_NORM, "LayerNormalization", normed, formula=formulas.layer_norm),
        **define(
            kinds.RMS_NORM,
            "RMSNormalization",
            {"scale": norm("scale")},
            formula=formulas.rms_norm,
        ),
        **define(kinds.ATTENTION, "MultiHeadAttention", attention),
        **define(cells.LSTM, "LSTMCell", lstm),
        **define(cells.RESET_AFTER, "GRUCell", gru),
        **define(cells.SIMPLE_CELL, "SimpleRNNCell", simple),
        **refuse("EinsumDense", kinds.EINSUM),
        "SpectralNormalization": Layer(wraps=spectral_norm),
        **refuse("PReLU", "it has a slope for each of its inputs, elsewhere one number"),
        **refuse("ConvLSTM1D ConvLSTM2D ConvLSTM3D", "its gates are in another order"),
        **refuse(
            "AdditiveAttention Attention GroupedQueryAttention ReversibleEmbedding "
            "SeparableConv1D SeparableConv2D STFTSpectrogram",
            kinds.ONLY_HERE,
        ),
        **refuse(
            "FlaxLayer TFSMLayer TorchModuleWrapper",
            "it wraps what another library made",
        ),
    }


def spectral_norm(place: Words, module: Module) -> Normalized:
    """Describe the layer in `keras.layers.SpectralNormalization`, whose place is the wrapper's.

    It divides the kernel in training only. On other backends than JAX a call in training overwrites
    the kernel with the result; on JAX, Keras's own training drops what is assigned to a parameter,
    and so does triglot.
    """
    kernel = "kernel" if hasattr(module.layer, "kernel") else "embeddings"
    return Normalized(module.layer, kernel, None, place, spectral=True)


def depthwise_window(layer: Module, shape: tuple[int, ...]) -> Leaf:
    """Store the kernel of a depthwise convolution as `[*window, in, outputs per input]`."""
    require_rank(shape, num_spatial_axes(layer) + 2)

    def encode(kernel: jax.Array) -> jax.Array:
        return kernel.reshape(*kernel.shape[:-2], 1, -1)

    def decode(kernel: jax.Array) -> jax.Array:
        return kernel.reshape(*kernel.shape[:-2], *shape[-2:])

    return Leaf.one("kernel", encode, decode)


def gru_part(part: str) -> Rule:
    """Store a part of Keras's GRU: the kernels of `input` or `recurrent`, or the `bias`.

    With the reset gate after the product there are two biases, `[2, 3 * size]`.
    """

    def rule(layer: Module, shape: tuple[int, ...]) -> Leaf:
        convention = cells.RESET_AFTER if layer.reset_after else cells.KEEPS_BY_UPDATE
        if part != "bias" or len(shape) == 1:
            leaf = gates(part, GRU_GATES, convention)(layer, shape)
        else:
            require_rank(shape, 2)
            both = [cells.names_of(name, GRU_GATES) for name in ("bias", "recurrent biases")]
            leaf = Leaf((*both[0], *both[1]), _rows_of_gates, _joined_rows, convention)
        return replace(leaf, layer=convention)

    return rule


def _rows_of_gates(array: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(gate for row in (0, 1) for gate in jnp.split(array[..., row, :], 3, axis=-1))


def _joined_rows(*gates: jax.Array) -> jax.Array:
    rows = [jnp.concatenate(gates[start : start + 3], axis=-1) for start in (0, 3)]
    return jnp.stack(rows, axis=-2)


STORAGE = Storage(layers=_layers(), statistics={"moving_mean": "mean", "moving_variance": "var"})
