"""What Keras's layers compute, by their configuration."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..layers import formulas
from ..layers.formulas import ACTIVATIONS, Array, Arrays, Formula, Settings, each, elementwise

# As the argument `activation` names them.
NAMED: dict[str, Callable[[Any], Any]] = {
    **{name: ACTIVATIONS[name] for name in ("relu", "tanh", "sigmoid", "silu", "selu", "softplus")},
    "linear": lambda x: x,
    "gelu": ACTIVATIONS["gelu (exact)"],
    "softmax": jax.nn.softmax,
    "elu": jax.nn.elu,
    "leaky_relu": lambda x: jax.nn.leaky_relu(x, 0.2),
}


def dense(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `Dense`."""
    return NAMED[s["activation"]](formulas.dense(p, x[0]))


def embedding(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `Embedding`."""
    return p["embedding"][x[0]]


def convolution(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `Conv1D` to `Conv3D`, `DepthwiseConv1D` and `DepthwiseConv2D`."""
    if s["data_format"] != "channels_last" or s["padding"] not in ("same", "valid"):
        raise NotImplementedError("another form of convolution")
    is_depthwise = "depth_multiplier" in s
    y = formulas.convolution(
        p,
        x[0],
        strides=s["strides"],
        pads=s["padding"].upper(),
        dilation=s["dilation_rate"],
        groups=x[0].shape[-1] if is_depthwise else s["groups"],
    )
    return NAMED[s["activation"]](y)


def transposed_convolution(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `Conv1DTranspose` to `Conv3DTranspose`."""
    if s["data_format"] != "channels_last":
        raise NotImplementedError("another form of convolution")
    sizes = s["kernel_size"], s["strides"], s["dilation_rate"]
    more = each(s["output_padding"], len(s["strides"]))
    y = formulas.transposed_convolution(
        p,
        x[0],
        strides=s["strides"],
        pads=[_pads(s["padding"], *axis) for axis in zip(*sizes, more, strict=True)],
        dilation=s["dilation_rate"],
        groups=1,
    )
    return NAMED[s["activation"]](y)


def _pads(padding: str, size: int, stride: int, dilation: int, more: int | None) -> tuple[int, int]:
    """Return the zeros before and behind the spread input, so that the output has Keras's size.

    That is `inputs * stride` for `same`, and `(inputs - 1) * stride + max(reach, stride)` for
    `valid`; `more` replaces what this adds to `(inputs - 1) * stride`.
    """
    reach = (size - 1) * dilation + 1
    if padding == "valid":
        return reach - 1, reach - 1 + (max(reach, stride) - reach if more is None else more)
    total = stride + reach - 2 if more is None else reach + reach % 2 - 2 + more
    before = min(-(-total // 2), reach - 1)
    return before, total - before


def batch_norm(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `BatchNormalization`."""
    if s["training"]:  # whether it uses the batch depends on the call
        raise NotImplementedError("training")
    if s["axis"] not in (-1, x[0].ndim - 1, [-1], [x[0].ndim - 1]):
        raise NotImplementedError("another axis")
    return formulas.batch_norm(p, x[0], s["epsilon"], by_batch=False)


def layer_norm(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `LayerNormalization`."""
    return formulas.affine(p, formulas.standardize(x[0], _last(s, x[0]), s["epsilon"]))


def rms_norm(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `RMSNormalization`."""
    return formulas.affine(p, formulas.rms_scale(x[0], _last(s, x[0]), s["epsilon"]))


def _last(s: Settings, x: Any) -> int:
    if each(s["axis"], 1) not in ((-1,), (x.ndim - 1,)):
        raise NotImplementedError("several axes")
    return -1


def group_norm(s: Settings, p: Arrays, x: Sequence[Array]) -> jax.Array:
    """Compute `GroupNormalization`."""
    if s["axis"] not in (-1, x[0].ndim - 1):
        raise NotImplementedError("another axis")
    groups = x[0].shape[-1] if s["groups"] == -1 else s["groups"]
    return formulas.group_norm(p, x[0], groups, s["epsilon"])


# Layers without arrays.
FUNCTIONS: dict[str, Formula] = {
    "ReLU": elementwise("relu"),
    "LeakyReLU": lambda s, p, x: jax.nn.leaky_relu(x[0], s["negative_slope"]),
    "ELU": lambda s, p, x: jax.nn.elu(x[0], s["alpha"]),
    "Softmax": lambda s, p, x: jax.nn.softmax(x[0], s["axis"]),
    "Activation": lambda s, p, x: NAMED[s["activation"]](x[0]),
    "Flatten": lambda s, p, x: x[0].reshape(x[0].shape[0], -1),
    "GlobalAveragePooling2D": lambda s, p, x: jnp.mean(x[0], (1, 2)),
}
