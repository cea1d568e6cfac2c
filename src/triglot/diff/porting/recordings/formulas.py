"""What the layers of PyTorch and Keras compute, by their recorded settings.

A recorded module whose settings are known is computed again in float64, so that the port is
compared with it up to rounding, and by the causes that two traced programs have.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...programs.catalogue.activations import NAMED

Arrays: TypeAlias = Mapping[str, Any]
Settings: TypeAlias = Mapping[str, Any]
Formula: TypeAlias = Callable[[Settings, Arrays, Sequence[Any]], Any]
GELU, GELU_TANH = "gelu (exact)", "gelu (tanh approximation)"
# Activations of both libraries by class, as `triglot diff` names them.
PLAIN = {
    "ReLU": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "SiLU": "silu", "Mish": "mish",
    "ReLU6": "relu6", "SELU": "selu", "Hardswish": "hard silu", "Hardsigmoid": "hard sigmoid",
}  # fmt: skip
WITH_SETTINGS: Mapping[str, Callable[[Settings], Callable[[Any], Any]]] = {
    "GELU": lambda s: NAMED[GELU_TANH if s.get("approximate") == "tanh" else GELU],
    "Softplus": lambda s: lambda x: jax.nn.softplus(x * s["beta"]) / s["beta"],
    "LeakyReLU": lambda s: (
        lambda x: jax.nn.leaky_relu(x, s["negative_slope"] if "negative_slope" in s else s["alpha"])
    ),
    "ELU": lambda s: lambda x: jax.nn.elu(x, s["alpha"]),
    "Softmax": lambda s: lambda x: jax.nn.softmax(x, s.get("dim", s.get("axis", -1))),
}
# As the argument `activation` of Keras names them.
KERAS_NAMED = {
    **{name: NAMED[name] for name in ("relu", "tanh", "sigmoid", "silu", "selu", "softplus")},
    "linear": lambda x: x, "gelu": NAMED[GELU], "softmax": jax.nn.softmax, "elu": jax.nn.elu,
    "leaky_relu": lambda x: jax.nn.leaky_relu(x, 0.2),
}  # fmt: skip


def formula_of(library: str, kind: str) -> Formula | None:
    """Return the function of `(settings, arrays, inputs)` of a class; None if it is not known."""
    if kind in PLAIN:
        return lambda s, p, x: NAMED[PLAIN[kind]](x[0])
    if kind in WITH_SETTINGS:
        return lambda s, p, x: WITH_SETTINGS[kind](s)(x[0])
    return (TORCH if library == "torch" else KERAS).get(kind)


def linear(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    product = x[0] @ p["weight"].T
    return product + p["bias"] if "bias" in p else product


def convolution(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    rank = p["weight"].ndim - 2
    if s["padding_mode"] != "zeros":
        raise NotImplementedError(s["padding_mode"])
    pads = s["padding"]
    pads = pads.upper() if isinstance(pads, str) else [(each, each) for each in pads]
    letters = "DHW"[3 - rank :]
    axes = ("NC" + letters, "OI" + letters, "NC" + letters)
    y = jax.lax.conv_general_dilated(
        x[0], p["weight"], s["stride"], pads, rhs_dilation=s["dilation"],
        dimension_numbers=axes, feature_group_count=s["groups"],
    )  # fmt: skip
    return y + p["bias"].reshape([-1] + [1] * rank) if "bias" in p else y


def batch_norm(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    shape = [1, -1] + [1] * (x[0].ndim - 2)
    if s["training"] or "running_mean" not in p:
        axes = (0, *range(2, x[0].ndim))
        mean = jnp.mean(x[0], axes, keepdims=True)
        var = jnp.mean(jnp.square(x[0] - mean), axes, keepdims=True)
    else:
        mean, var = p["running_mean"].reshape(shape), p["running_var"].reshape(shape)
    y = (x[0] - mean) * jax.lax.rsqrt(var + s["eps"])
    return _affine(p, y, shape)


def layer_norm(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    axes = tuple(range(-len(s["normalized_shape"]), 0))
    centred = x[0] - jnp.mean(x[0], axes, keepdims=True)
    var = jnp.mean(jnp.square(centred), axes, keepdims=True)
    return _affine(p, centred * jax.lax.rsqrt(var + s["eps"]), s["normalized_shape"])


def rms_norm(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    eps = s["eps"] if s["eps"] is not None else float(np.finfo(np.float32).eps)
    axes = tuple(range(-len(s["normalized_shape"]), 0))
    y = x[0] * jax.lax.rsqrt(jnp.mean(jnp.square(x[0]), axes, keepdims=True) + eps)
    return _affine(p, y, s["normalized_shape"])


def group_norm(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    grouped = x[0].reshape([x[0].shape[0], s["num_groups"], -1])
    centred = grouped - jnp.mean(grouped, -1, keepdims=True)
    var = jnp.mean(jnp.square(centred), -1, keepdims=True)
    y = (centred * jax.lax.rsqrt(var + s["eps"])).reshape(x[0].shape)
    return _affine(p, y, [1, -1] + [1] * (x[0].ndim - 2))


def _affine(p: Arrays, y: Any, shape: Sequence[int]) -> Any:
    y = y * p["weight"].reshape(shape) if "weight" in p else y
    return y + p["bias"].reshape(shape) if "bias" in p else y


def pool(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    """Compute torch's `MaxPool2d` and `AvgPool2d`."""
    is_max = "return_indices" in s
    rank = x[0].ndim - 2
    size, stride, padding = (_each(s[key], rank) for key in ("kernel_size", "stride", "padding"))
    if s["ceil_mode"] or set(_each(s.get("dilation", 1), rank)) != {1}:
        raise NotImplementedError("ceil_mode")
    pads = [(0, 0), (0, 0), *((each, each) for each in padding)]
    window, strides = (1, 1, *size), (1, 1, *stride)
    if is_max:
        return jax.lax.reduce_window(x[0], -jnp.inf, jax.lax.max, window, strides, pads)
    total = jax.lax.reduce_window(x[0], 0.0, jax.lax.add, window, strides, pads)
    if s["count_include_pad"] or not any(padding):
        return total / float(np.prod(size))
    ones = jnp.ones_like(x[0])
    return total / jax.lax.reduce_window(ones, 0.0, jax.lax.add, window, strides, pads)


def _each(size: Any, rank: int) -> tuple[int, ...]:
    return tuple(size) if isinstance(size, list | tuple) else (size,) * rank


def average_all(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    if set(_each(s["output_size"], 1)) != {1}:
        raise NotImplementedError("output_size")
    axes = tuple(range(2, x[0].ndim))
    return jnp.mean(x[0], axes, keepdims=True)


def flatten(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    first, last = s.get("start_dim", 1), s.get("end_dim", -1) % x[0].ndim
    return x[0].reshape([*x[0].shape[:first], -1, *x[0].shape[last + 1 :]])


def attention(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    """Compute torch's `MultiheadAttention` of queries, keys and values, and perhaps a mask."""
    if not s["batch_first"] or "in_proj_weight" not in p or len(x) not in (3, 4):
        raise NotImplementedError("another form of attention")
    heads, width = s["num_heads"], s["embed_dim"]
    bias = jnp.split(p["in_proj_bias"], 3) if "in_proj_bias" in p else [0.0] * 3
    kernels = jnp.split(p["in_proj_weight"], 3)
    q, k, v = (
        (each @ kernel.T + b).reshape(*each.shape[:2], heads, width // heads)
        for each, kernel, b in zip(x[:3], kernels, bias, strict=True)
    )
    logits = jnp.einsum("bqhd,bkhd->bhqk", q * (width // heads) ** -0.5, k)
    if len(x) == 4:
        if x[3].shape != logits.shape[2:]:
            raise NotImplementedError("another mask")
        masked = jnp.where(x[3], -jnp.inf, logits)
        logits = masked if x[3].dtype == jnp.bool_ else logits + x[3]
    y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(logits), v).reshape(x[0].shape)
    y = y @ p["out_proj.weight"].T
    return y + p["out_proj.bias"] if "out_proj.bias" in p else y


def keras_dense(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    y = x[0] @ p["kernel"]
    return KERAS_NAMED[s["activation"]](y + p["bias"] if "bias" in p else y)


def keras_convolution(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    if s["data_format"] != "channels_last" or s["padding"] not in ("same", "valid"):
        raise NotImplementedError("another form of convolution")
    letters = "DHW"[3 - (x[0].ndim - 2) :]
    axes = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    y = jax.lax.conv_general_dilated(
        x[0], p["kernel"], s["strides"], s["padding"].upper(), rhs_dilation=s["dilation_rate"],
        dimension_numbers=axes, feature_group_count=s["groups"],
    )  # fmt: skip
    return KERAS_NAMED[s["activation"]](y + p["bias"] if "bias" in p else y)


def keras_batch_norm(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    y = (x[0] - p["moving_mean"]) * jax.lax.rsqrt(p["moving_variance"] + s["epsilon"])
    y = y * p["gamma"] if "gamma" in p else y
    return y + p["beta"] if "beta" in p else y


def keras_layer_norm(s: Settings, p: Arrays, x: Sequence[Any]) -> Any:
    if tuple(_each(s["axis"], 1)) not in ((-1,), (x[0].ndim - 1,)):
        raise NotImplementedError("several axes")
    centred = x[0] - jnp.mean(x[0], -1, keepdims=True)
    var = jnp.mean(jnp.square(centred), -1, keepdims=True)
    y = centred * jax.lax.rsqrt(var + s["epsilon"])
    y = y * p["gamma"] if "gamma" in p else y
    return y + p["beta"] if "beta" in p else y


TORCH: dict[str, Formula] = {
    "Linear": linear,
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), convolution),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"), batch_norm),
    "LayerNorm": layer_norm,
    "RMSNorm": rms_norm,
    "GroupNorm": group_norm,
    **dict.fromkeys(("MaxPool1d", "MaxPool2d", "AvgPool2d"), pool),
    "AdaptiveAvgPool2d": average_all,
    "Flatten": flatten,
    "MultiheadAttention": attention,
}
KERAS: dict[str, Formula] = {
    "Dense": keras_dense,
    **dict.fromkeys(("Conv1D", "Conv2D", "Conv3D"), keras_convolution),
    "BatchNormalization": keras_batch_norm,
    "LayerNormalization": keras_layer_norm,
    "Flatten": flatten,
    "GlobalAveragePooling2D": lambda s, p, x: jnp.mean(x[0], (1, 2)),
    "Activation": lambda s, p, x: KERAS_NAMED[s["activation"]](x[0]),
}
