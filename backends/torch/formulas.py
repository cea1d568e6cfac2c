"""What PyTorch's layers compute, by their attributes."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..layers import formulas
from ..layers.formulas import (
    ACTIVATIONS,
    Array,
    Arrays,
    Formula,
    Settings,
    channels_first,
    channels_last,
    each,
    elementwise,
)


def linear(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `Linear`."""
    return formulas.dense(p, x[0])


def embedding(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `Embedding`."""
    if s["max_norm"] is not None:
        raise NotImplementedError("max_norm")
    return p["embedding"][x[0]]


def convolution(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `Conv1d` to `Conv3d`."""
    if s["padding_mode"] != "zeros":
        raise NotImplementedError(s["padding_mode"])
    pads = s["padding"]
    y = formulas.convolution(
        p,
        channels_last(x[0]),
        strides=s["stride"],
        pads=pads.upper() if isinstance(pads, str) else [(n, n) for n in pads],
        dilation=s["dilation"],
        groups=s["groups"],
    )
    return channels_first(y)


def transposed_convolution(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `ConvTranspose1d` to `ConvTranspose3d`."""
    if len(x) > 1:
        raise NotImplementedError("output_size")
    reach = [(size - 1) * step for size, step in zip(s["kernel_size"], s["dilation"], strict=True)]
    y = formulas.transposed_convolution(
        p,
        channels_last(x[0]),
        strides=s["stride"],
        pads=[
            (n - pad, n - pad + more)
            for n, pad, more in zip(reach, s["padding"], s["output_padding"], strict=True)
        ],
        dilation=s["dilation"],
        groups=s["groups"],
    )
    return channels_first(y)


def batch_norm(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `BatchNorm1d` to `BatchNorm3d`."""
    by_batch = s["training"] or "mean" not in p
    return channels_first(formulas.batch_norm(p, channels_last(x[0]), s["eps"], by_batch=by_batch))


def layer_norm(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `LayerNorm`."""
    axes = tuple(range(-len(s["normalized_shape"]), 0))
    return formulas.affine(_of_shape(s, p), formulas.standardize(x[0], axes, s["eps"]))


def rms_norm(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `RMSNorm`."""
    epsilon = s["eps"] if s["eps"] is not None else float(np.finfo(np.float32).eps)
    axes = tuple(range(-len(s["normalized_shape"]), 0))
    return formulas.affine(_of_shape(s, p), formulas.rms_scale(x[0], axes, epsilon))


def _of_shape(s: Settings, p: Arrays) -> Arrays:
    """Give the scale and bias the normalized shape; of several axes, none is canonical."""
    names = {"scale": "weight", "bias": "bias"}
    arrays = {
        name: p[name] if name in p else p.get(torch_name) for name, torch_name in names.items()
    }
    return {n: a.reshape(s["normalized_shape"]) for n, a in arrays.items() if a is not None}


def group_norm(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `GroupNorm`."""
    y = formulas.group_norm(p, channels_last(x[0]), s["num_groups"], s["eps"])
    return channels_first(y)


def pool(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `MaxPool1d`, `MaxPool2d` and `AvgPool2d`."""
    rank = x[0].ndim - 2
    size, stride, padding = (each(s[key], rank) for key in ("kernel_size", "stride", "padding"))
    if s["ceil_mode"] or set(each(s.get("dilation", 1), rank)) != {1}:
        raise NotImplementedError("ceil_mode")
    y = formulas.pool(
        channels_last(x[0]),
        size,
        stride,
        [(n, n) for n in padding],
        is_max="return_indices" in s,
        padded=s.get("count_include_pad", False) or not any(padding),
    )
    return channels_first(y)


def average_all(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `AdaptiveAvgPool2d` with an output of size 1."""
    if set(each(s["output_size"], 1)) != {1}:
        raise NotImplementedError("output_size")
    return jnp.mean(x[0], tuple(range(2, x[0].ndim)), keepdims=True)


def flatten(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `Flatten`."""
    first, last = s.get("start_dim", 1), s.get("end_dim", -1) % x[0].ndim
    return x[0].reshape([*x[0].shape[:first], -1, *x[0].shape[last + 1 :]])


def attention(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `MultiheadAttention` of queries, keys and values, and perhaps a mask."""
    if not s["batch_first"] or "bias_k" in p or len(x) not in (3, 4):
        raise NotImplementedError("another form of attention")
    if len(x) == 4 and x[3].shape != (x[0].shape[1], x[1].shape[1]):
        raise NotImplementedError("another mask")
    return formulas.attention(p, *x)


def gelu(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `GELU`."""
    is_tanh = s.get("approximate") == "tanh"
    return ACTIVATIONS["gelu (tanh approximation)" if is_tanh else "gelu (exact)"](x[0])


def _of_number(function: Callable[[Any, Settings], Any]) -> Formula:
    return lambda s, p, x: function(x[0], s)


# Layers without arrays.
FUNCTIONS: dict[str, Formula] = {
    **{
        kind: elementwise(name)
        for kind, name in {
            "ReLU": "relu",
            "Tanh": "tanh",
            "Sigmoid": "sigmoid",
            "SiLU": "silu",
            "Mish": "mish",
            "ReLU6": "relu6",
            "SELU": "selu",
            "Hardswish": "hard silu",
            "Hardsigmoid": "hard sigmoid",
        }.items()
    },
    "GELU": gelu,
    "Softplus": _of_number(lambda x, s: jax.nn.softplus(x * s["beta"]) / s["beta"]),
    "LeakyReLU": _of_number(lambda x, s: jax.nn.leaky_relu(x, s["negative_slope"])),
    "ELU": _of_number(lambda x, s: jax.nn.elu(x, s["alpha"])),
    "Softmax": _of_number(lambda x, s: jax.nn.softmax(x, s.get("dim", -1))),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d", "AvgPool2d"), pool),
    "AdaptiveAvgPool2d": average_all,
    "Flatten": flatten,
}
