"""What layers compute, from canonical arrays and inputs with the channels as last axis.

A recorded layer whose settings are known is computed again in float64, so that a port is compared
with it up to rounding. The folder of a library states the formula of each of its layers: it reads
the settings, and calls these.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

Array: TypeAlias = Any  # of JAX, or of NumPy
Arrays: TypeAlias = Mapping[str, Array]  # canonical arrays by their names inside of the layer
Settings: TypeAlias = Mapping[str, Any]  # plain attributes by the library's names
# `(settings, arrays, inputs) -> output`. An array without a canonical layout has the library's
# name. `NotImplementedError` and `KeyError` say that the formula does not cover these settings.
Formula: TypeAlias = Callable[[Settings, Arrays, Sequence[Array]], Array]
Pads: TypeAlias = str | Sequence[tuple[int, int]]

# Elementwise functions, as reports call them.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jax.numpy.tanh,
    "sigmoid": jax.nn.sigmoid,
    "gelu (tanh approximation)": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu (exact)": lambda x: jax.nn.gelu(x, approximate=False),
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "selu": jax.nn.selu,
    "mish": jax.nn.mish,
    "relu6": jax.nn.relu6,
    "hard tanh": jax.nn.hard_tanh,
    "hard sigmoid": jax.nn.hard_sigmoid,
    "hard silu": jax.nn.hard_silu,
    "log sigmoid": jax.nn.log_sigmoid,
    "soft sign": jax.nn.soft_sign,
    "squareplus": jax.nn.squareplus,
    "sine": jax.numpy.sin,
    "cosine": jax.numpy.cos,
    "exponential": jax.numpy.exp,
    "quick gelu (x * sigmoid(1.702 x))": lambda x: x * jax.nn.sigmoid(1.702 * x),
}


def elementwise(name: str) -> Formula:
    """Return the formula of a layer that is one of `ACTIVATIONS`."""
    return lambda s, p, x: ACTIVATIONS[name](x[0])


def dense(p: Arrays, x: Array) -> jax.Array:
    """Multiply the last axis `[in]` by the kernel and add the bias."""
    return with_bias(p, x @ kernel_of(p))


def convolution(
    p: Arrays,
    x: Array,
    *,
    strides: Sequence[int],
    pads: Pads,
    dilation: Sequence[int],
    groups: int,
) -> jax.Array:
    """Convolve `[B, *spatial, in]`; `pads` are pairs, `SAME` or `VALID`."""
    kernel = kernel_of(p)
    letters = "DHW"[5 - kernel.ndim :]
    y = jax.lax.conv_general_dilated(
        x,
        kernel,
        strides,
        pads,
        rhs_dilation=dilation,
        dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
        feature_group_count=groups,
    )
    return with_bias(p, y)


def transposed_convolution(
    p: Arrays,
    x: Array,
    *,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
) -> jax.Array:
    """Convolve `[B, *spatial, in]`, spread out by the strides; `pads` are around the spread one."""
    kernel = kernel_of(p)
    letters = "DHW"[5 - kernel.ndim :]
    y = jax.lax.conv_general_dilated(
        x,
        kernel,
        (1,) * len(letters),
        pads,
        lhs_dilation=strides,
        rhs_dilation=dilation,
        dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
        feature_group_count=groups,
    )
    return with_bias(p, y)


def kernel_of(p: Arrays) -> jax.Array:
    """Return the kernel by which a layer multiplies, of weight normalization too.

    Its scale is `[out]`, `[in, 1]` or `[]`, as it multiplies the kernel; it has a norm for each.
    """
    kernel = p["kernel"]
    if "scale" not in p:
        return kernel
    scaled = kernel.ndim - p["scale"].ndim
    axes = tuple(axis for axis in range(kernel.ndim) if p["scale"].ndim == 0 or axis != scaled)
    return p["scale"] * kernel / jnp.sqrt(jnp.sum(jnp.square(kernel), axes, keepdims=True))


def with_bias(p: Arrays, y: Array) -> jax.Array:
    """Add the bias, if there is one, to the last axis."""
    return y + p["bias"] if "bias" in p else y


def affine(p: Arrays, y: Array) -> jax.Array:
    """Scale and shift the last axis by what a normalization has of both."""
    return with_bias(p, y * p["scale"] if "scale" in p else y)


def standardize(x: Array, axes: int | tuple[int, ...], epsilon: float) -> jax.Array:
    """Subtract the mean over some axes and divide by the standard deviation."""
    centred = x - jnp.mean(x, axes, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axes, keepdims=True)
    return centred * jax.lax.rsqrt(variance + epsilon)


def batch_norm(p: Arrays, x: Array, epsilon: float, *, by_batch: bool) -> jax.Array:
    """Normalize the last axis, by the statistics of the batch or by the running ones."""
    if by_batch:
        return affine(p, standardize(x, tuple(range(x.ndim - 1)), epsilon))
    return affine(p, (x - p["mean"]) * jax.lax.rsqrt(p["var"] + epsilon))


def group_norm(p: Arrays, x: Array, groups: int, epsilon: float) -> jax.Array:
    """Normalize groups of the last axis of each example, over all other axes too."""
    grouped = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    return affine(p, standardize(grouped, (1, 3), epsilon).reshape(x.shape))


def rms_scale(x: Array, axes: int | tuple[int, ...], epsilon: float) -> jax.Array:
    """Divide by the root of the mean square over some axes."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axes, keepdims=True) + epsilon)


def pool(
    x: Array,
    size: Sequence[int],
    strides: Sequence[int],
    pads: Pads,
    *,
    is_max: bool,
    padded: bool,
) -> jax.Array:
    """Pool `[B, *spatial, channels]`; with `padded`, an average counts the zeros around."""
    window, steps = (1, *size, 1), (1, *strides, 1)
    if not isinstance(pads, str):
        pads = [(0, 0), *pads, (0, 0)]
    if is_max:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, steps, pads)
    total = jax.lax.reduce_window(x, 0.0, jax.lax.add, window, steps, pads)
    if padded:
        return total / float(prod(size))
    counts = jax.lax.reduce_window(jnp.ones_like(x), 0.0, jax.lax.add, window, steps, pads)
    return total / counts


def attention(p: Arrays, q: Array, k: Array, v: Array, mask: Array | None = None) -> jax.Array:
    """Attend with queries, keys and values `[B, time, in]`.

    Args:
      p: kernels `[in, heads, size]` and biases of `query`, `key` and `value`; those of `out`.
      q, k, v: inputs.
      mask: added to the logits `[query, key]`; of bool, where no attention is allowed.
    """
    q, k, v = (
        jnp.einsum("bti,ihd->bthd", x, p[f"{part}/kernel"]) + p.get(f"{part}/bias", 0.0)
        for x, part in ((q, "query"), (k, "key"), (v, "value"))
    )
    logits = jnp.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k)
    if mask is not None:
        is_hidden = mask.dtype == jnp.bool_
        logits = jnp.where(mask, -jnp.inf, logits) if is_hidden else logits + mask
    y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(logits), v)
    return jnp.einsum("bqhd,hdo->bqo", y, p["out/kernel"]) + p.get("out/bias", 0.0)


def each(size: Any, rank: int) -> tuple[int, ...]:
    """Return the number of each spatial axis, of which a setting may give one for all."""
    return tuple(size) if isinstance(size, list | tuple) else (size,) * rank


def channels_last(x: Array) -> jax.Array:
    """Move the channels of `[B, channels, *spatial]` to the end."""
    return jnp.moveaxis(x, 1, -1)


def channels_first(x: Array) -> jax.Array:
    """Move the channels of `[B, *spatial, channels]` behind the batch."""
    return jnp.moveaxis(x, -1, 1)
