"""The same layer in every library that has it, for the tests of translation.

A `Case` builds one layer by library. `network` builds a network of several, whose layers have the
same names in all libraries. Inputs are channels-last; Equinox's layers, which take one example with
its channels first, are called accordingly.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import keras
from flax import nnx
from keras import layers as kl

from triglot import from_equinox, from_haiku, from_keras, from_linen, from_nnx
from triglot.backends.nnx.zoo import GRU as ZooGRU
from triglot.core.network import Network
from triglot.core.specs import Box


class Built(NamedTuple):
    """How one library builds a layer, given a name, `nnx.Rngs` or a key, and calls it."""

    make: Callable[[Any], Any]
    call: Callable[[Any, jax.Array], jax.Array] = lambda layer, x: layer(x)


class Case(NamedTuple):
    """A layer by library; a library's name may be followed by a variant."""

    obs_spec: Box
    built: Mapping[str, Built]


def network(library: str, obs_spec: Box, layers: Sequence[Built], *, named: bool = True) -> Network:
    """Build a network of layers, called `layers/0`, `layers/1`, ... in canonical names.

    If not `named`, Haiku and Linen name the layers themselves.
    """

    names = [f"layers_{index}" if named else None for index in range(len(layers))]

    def run(built: Sequence[Any], x: jax.Array) -> jax.Array:
        for each, layer in zip(layers, built, strict=True):
            x = each.call(layer, x)
        return x

    class Linen(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            return run([each.make(name) for name, each in zip(names, layers, strict=True)], x)

    class NNX(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.layers = nnx.List([each.make(rngs) for each in layers])

        def __call__(self, x: jax.Array) -> jax.Array:
            return run(list(self.layers), x)

    class Equinox(eqx.Module):
        layers: list[Any]

        def __init__(self, key: jax.Array) -> None:
            keys = jax.random.split(key, len(layers))
            self.layers = [each.make(own) for each, own in zip(layers, keys, strict=True)]

        def __call__(self, x: jax.Array) -> jax.Array:
            return run(self.layers, x)

    def haiku(x: jax.Array) -> jax.Array:
        return run([each.make(name) for name, each in zip(names, layers, strict=True)], x)

    class Keras(keras.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [each.make(None) for each in layers]

        def call(self, x: Any) -> Any:
            return run(self.layers, x)

    if library.split()[0] == "keras":
        return from_keras(Keras, obs_spec)
    return adapted(library.split()[0], obs_spec, haiku, Linen, NNX, Equinox)


def adapted(library: str, spec: Any, haiku: Any, linen: Any, nnx: Any, equinox: Any) -> Network:
    """Adapt one of four forms of a network: Haiku's function, or a library's class."""
    match library:
        case "haiku":
            return from_haiku(haiku, spec)
        case "linen":
            return from_linen(linen(), spec)
        case "nnx":
            return from_nnx(nnx)
        case _:
            return from_equinox(equinox)


def channels_first(layer: Any, x: jax.Array) -> jax.Array:
    return jnp.moveaxis(layer(jnp.moveaxis(x, -1, 0)), 0, -1)


def dense(n: int, m: int) -> Case:
    return Case(
        Box((n,)),
        {
            "haiku": Built(lambda name: hk.Linear(m, name=name)),
            "linen": Built(lambda name: nn.Dense(m, name=name)),
            "linen general": Built(lambda name: nn.DenseGeneral(m, name=name)),
            "nnx": Built(lambda rngs: nnx.Linear(n, m, rngs=rngs)),
            "nnx general": Built(lambda rngs: nnx.LinearGeneral(n, m, rngs=rngs)),
            "equinox": Built(lambda key: eqx.nn.Linear(n, m, key=key)),
            "keras": Built(lambda _: kl.Dense(m)),
        },
    )


def general_dense(n: int, m: int) -> Case:
    return Case(
        Box((n, 3)),
        {
            "linen": Built(lambda name: nn.DenseGeneral((m, 3), axis=(-2, -1), name=name)),
            "nnx": Built(lambda rngs: nnx.LinearGeneral((n, 3), (m, 3), axis=(-2, -1), rngs=rngs)),
        },
    )


def convolution(
    n: int,
    m: int,
    window: tuple[int, ...],
    *,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    padding: str = "VALID",
) -> Case:
    rank = len(window)
    strides, rates = (stride,) * rank, (dilation,) * rank
    haiku = {1: hk.Conv1D, 2: hk.Conv2D, 3: hk.Conv3D}[rank]
    flax: dict[str, Any] = {
        "strides": strides,
        "kernel_dilation": rates,
        "feature_group_count": groups,
        "padding": padding,
    }
    equinox = {1: eqx.nn.Conv1d, 2: eqx.nn.Conv2d, 3: eqx.nn.Conv3d}[rank]
    keras_convolution = {1: kl.Conv1D, 2: kl.Conv2D, 3: kl.Conv3D}[rank]
    own: dict[str, Any] = {"stride": strides, "padding": padding, "groups": groups}
    built = {
        "haiku": Built(
            lambda name: haiku(
                m, window, stride, dilation, padding, feature_group_count=groups, name=name
            )
        ),
        "linen": Built(lambda name: nn.Conv(m, window, **flax, name=name)),
        "nnx": Built(lambda rngs: nnx.Conv(n, m, window, **flax, rngs=rngs)),
        "equinox": Built(
            lambda key: equinox(n, m, window, dilation=rates, **own, key=key), channels_first
        ),
        "keras": Built(
            lambda _: keras_convolution(
                m,
                window,
                stride,
                padding.lower(),
                data_format="channels_last",
                dilation_rate=dilation,
                groups=groups,
            )
        ),
    }
    if groups == n and m % n == 0:
        depthwise = {1: hk.DepthwiseConv1D, 2: hk.DepthwiseConv2D, 3: hk.DepthwiseConv3D}[rank]
        built["haiku depthwise"] = Built(
            lambda name: depthwise(m // n, window, stride, dilation, padding, name=name)
        )
        if rank < 3:
            keras_depthwise = {1: kl.DepthwiseConv1D, 2: kl.DepthwiseConv2D}[rank]
            built["keras depthwise"] = Built(
                lambda _: keras_depthwise(window, stride, padding.lower(), m // n)
            )
    return Case(Box((*(7, 6, 5)[:rank], n)), built)


def transposed(
    n: int, m: int, window: tuple[int, ...], *, stride: int = 1, dilation: int = 1
) -> Case:
    rank = len(window)
    strides, rates = (stride,) * rank, (dilation,) * rank
    haiku = {1: hk.Conv1DTranspose, 2: hk.Conv2DTranspose, 3: hk.Conv3DTranspose}[rank]
    equinox = {1: eqx.nn.ConvTranspose1d, 2: eqx.nn.ConvTranspose2d, 3: eqx.nn.ConvTranspose3d}
    keras_transposed = {1: kl.Conv1DTranspose, 2: kl.Conv2DTranspose, 3: kl.Conv3DTranspose}[rank]
    flax: dict[str, Any] = {"kernel_dilation": rates, "strides": strides, "padding": "VALID"}
    built = {
        "linen": Built(lambda name: nn.ConvTranspose(m, window, **flax, name=name)),
        "linen reversed": Built(
            lambda name: nn.ConvTranspose(m, window, **flax, transpose_kernel=True, name=name)
        ),
        "nnx": Built(lambda rngs: nnx.ConvTranspose(n, m, window, **flax, rngs=rngs)),
        "nnx reversed": Built(
            lambda rngs: nnx.ConvTranspose(n, m, window, **flax, transpose_kernel=True, rngs=rngs)
        ),
        "equinox": Built(
            lambda key: equinox[rank](n, m, window, stride, dilation=dilation, key=key),
            channels_first,
        ),
        "keras": Built(lambda _: keras_transposed(m, window, stride, dilation_rate=dilation)),
    }
    if dilation == 1:  # Haiku's has none
        built["haiku"] = Built(lambda name: haiku(m, window, stride, padding="VALID", name=name))
    return Case(Box((*(4, 3, 2)[:rank], n)), built)


def grouped_transposed(n: int, m: int, window: tuple[int, ...], *, groups: int) -> Case:
    """Build a transposed convolution with a stride of 2 and groups, which Equinox alone has."""
    rank = len(window)
    equinox = {1: eqx.nn.ConvTranspose1d, 2: eqx.nn.ConvTranspose2d, 3: eqx.nn.ConvTranspose3d}
    layer = Built(
        lambda key: equinox[rank](n, m, window, 2, groups=groups, key=key), channels_first
    )
    return Case(Box((*(4, 3, 3)[:rank], n)), {"equinox": layer})


AXES = {"outputs": (-1, 0), "inputs": (-2, 1), "the kernel": (None, None)}  # of Flax, of Equinox


def weight_norm(kind: str, norms: str) -> Case:
    """Normalize the kernel of a layer, with a norm for each of its outputs or inputs, or one."""
    flax, equinox = AXES[norms]
    window = (3, 2)
    layers: dict[str, tuple[Any, Any]] = {
        "dense": (
            lambda name: nn.Dense(5, name=name),
            lambda key: eqx.nn.Linear(2, 5, key=key),
        ),
        "convolution": (
            lambda name: nn.Conv(5, window, padding="VALID", name=name),
            lambda key: eqx.nn.Conv2d(2, 5, window, key=key),
        ),
        "transposed": (
            lambda name: nn.ConvTranspose(5, window, (2, 2), padding="VALID", name=name),
            lambda key: eqx.nn.ConvTranspose2d(2, 5, window, 2, key=key),
        ),
    }
    linen, own = layers[kind]
    images = kind != "dense"
    return Case(
        Box((4, 3, 2) if images else (2,)),
        {
            "linen": Built(lambda name: nn.WeightNorm(linen(name), feature_axes=flax)),
            "equinox": Built(
                lambda key: eqx.nn.WeightNorm(own(key), axis=equinox),
                channels_first if images else lambda layer, x: layer(x),
            ),
        },
    )


def weight_norm_without_scale(n: int, m: int) -> Case:
    return Case(
        Box((n,)),
        {
            "linen": Built(lambda name: nn.WeightNorm(nn.Dense(m, name=name), use_scale=False)),
            "nnx": Built(
                lambda rngs: nnx.WeightNorm(nnx.Linear(n, m, rngs=rngs), use_scale=False, rngs=rngs)
            ),
        },
    )


def embedding(rows: int, size: int) -> Case:
    def look_up(layer: Any, x: jax.Array) -> jax.Array:
        return layer(jnp.arange(x.shape[0]) % rows) + x

    return Case(
        Box((size,)),
        {
            "haiku": Built(lambda name: hk.Embed(rows, size, name=name), look_up),
            "linen": Built(lambda name: nn.Embed(rows, size, name=name), look_up),
            "nnx": Built(lambda rngs: nnx.Embed(rows, size, rngs=rngs), look_up),
            "equinox": Built(
                lambda key: eqx.nn.Embedding(rows, size, key=key),
                lambda layer, x: layer(jax.lax.axis_index("batch") % rows) + x,
            ),
            "keras": Built(lambda _: kl.Embedding(rows, size), look_up),
        },
    )


def layer_norm(n: int) -> Case:
    flax: dict[str, Any] = {"epsilon": 1e-5, "use_fast_variance": False}
    return Case(
        Box((n,)),
        {
            "haiku": Built(lambda name: hk.LayerNorm(-1, True, True, name=name)),
            "linen": Built(lambda name: nn.LayerNorm(**flax, name=name)),
            "nnx": Built(lambda rngs: nnx.LayerNorm(n, **flax, rngs=rngs)),
            "equinox": Built(lambda key: eqx.nn.LayerNorm(n)),
            "keras": Built(lambda _: kl.LayerNormalization(epsilon=1e-5)),
        },
    )


def rms_norm(n: int) -> Case:
    return Case(
        Box((n,)),
        {
            "haiku": Built(lambda name: hk.RMSNorm(-1, name=name)),
            "linen": Built(lambda name: nn.RMSNorm(epsilon=1e-5, name=name)),
            "nnx": Built(lambda rngs: nnx.RMSNorm(n, epsilon=1e-5, rngs=rngs)),
            "equinox": Built(lambda key: eqx.nn.RMSNorm(n, use_bias=False)),
            "keras": Built(lambda _: kl.RMSNormalization(epsilon=1e-5)),
        },
    )


def group_norm(n: int, groups: int) -> Case:
    flax: dict[str, Any] = {"epsilon": 1e-5, "use_fast_variance": False}
    built = {
        "haiku": Built(lambda name: hk.GroupNorm(groups, name=name)),
        "linen": Built(lambda name: nn.GroupNorm(groups, **flax, name=name)),
        "nnx": Built(lambda rngs: nnx.GroupNorm(n, groups, **flax, rngs=rngs)),
        "equinox": Built(lambda key: eqx.nn.GroupNorm(groups, n), channels_first),
        "keras": Built(lambda _: kl.GroupNormalization(groups, epsilon=1e-5)),
        "haiku channels first": Built(
            lambda name: hk.GroupNorm(groups, data_format="channels_first", name=name),
            lambda layer, x: jnp.moveaxis(layer(jnp.moveaxis(x, -1, 1)), 1, -1),
        ),
    }
    if groups == n:
        built["haiku instance"] = Built(lambda name: hk.InstanceNorm(True, True, name=name))
        built["linen instance"] = Built(lambda name: nn.InstanceNorm(**flax, name=name))
        built["nnx instance"] = Built(lambda rngs: nnx.InstanceNorm(n, **flax, rngs=rngs))
    return Case(Box((3, 2, n)), built)


def prelu(n: int) -> Case:
    return Case(
        Box((n,)),
        {
            "linen": Built(lambda name: nn.PReLU(name=name)),
            "nnx": Built(lambda rngs: nnx.PReLU()),
            "equinox": Built(lambda key: eqx.nn.PReLU()),
        },
    )


def attention(features: int, heads: int, size: int) -> Case:
    """Attend with `heads` heads of `size` units over 3 tokens; Flax requires their product."""

    def thrice(layer: Any, x: jax.Array) -> jax.Array:
        return layer(x, x, x)

    biases: dict[str, Any] = {f"use_{n}_bias": True for n in ("query", "key", "value", "output")}
    flax: dict[str, Any] = {"qkv_features": heads * size, "out_features": features}
    return Case(
        Box((3, features)),
        {
            "haiku": Built(
                lambda name: hk.MultiHeadAttention(
                    heads,
                    size,
                    w_init=hk.initializers.RandomNormal(),
                    model_size=features,
                    name=name,
                ),
                thrice,
            ),
            "linen": Built(
                lambda name: nn.MultiHeadDotProductAttention(heads, **flax, name=name), thrice
            ),
            "nnx": Built(
                lambda rngs: nnx.MultiHeadAttention(
                    heads, features, **flax, decode=False, rngs=rngs
                ),
                thrice,
            ),
            "equinox": Built(
                lambda key: eqx.nn.MultiheadAttention(
                    heads, features, qk_size=size, vo_size=size, **biases, key=key
                ),
                thrice,
            ),
            "keras": Built(lambda _: kl.MultiHeadAttention(heads, size), thrice),
        },
    )


def lstm(n: int, size: int) -> Case:
    def flax(layer: Any, x: jax.Array) -> jax.Array:
        shape = (x.shape[0], size)
        return layer((jnp.full(shape, 0.7), jnp.full(shape, 0.3)), x)[1]

    def haiku(layer: Any, x: jax.Array) -> jax.Array:
        hidden, cell = jnp.full((x.shape[0], size), 0.3), jnp.full((x.shape[0], size), 0.7)
        return layer(x, hk.LSTMState(hidden, cell))[0]

    return Case(
        Box((n,)),
        {
            "haiku": Built(lambda name: hk.LSTM(size, name=name), haiku),
            "linen": Built(lambda name: nn.LSTMCell(size, name=name), flax),
            "linen optimized": Built(lambda name: nn.OptimizedLSTMCell(size, name=name), flax),
            "nnx": Built(lambda rngs: nnx.LSTMCell(n, size, rngs=rngs), flax),
            "nnx optimized": Built(lambda rngs: nnx.OptimizedLSTMCell(n, size, rngs=rngs), flax),
            "equinox": Built(
                lambda key: eqx.nn.LSTMCell(n, size, key=key),
                lambda layer, x: layer(x, (jnp.full((size,), 0.3), jnp.full((size,), 0.7)))[0],
            ),
            "keras": Built(
                lambda _: kl.LSTMCell(size),
                lambda layer, x: layer(
                    x, [jnp.full((x.shape[0], size), 0.3), jnp.full((x.shape[0], size), 0.7)]
                )[0],
            ),
        },
    )


def gru(n: int, size: int) -> Case:
    """The GRU that applies its reset gate after the product; Haiku's does it before."""
    return Case(
        Box((n,)),
        {
            "linen": Built(
                lambda name: nn.GRUCell(size, name=name),
                lambda layer, x: layer(jnp.full((x.shape[0], size), 0.3), x)[1],
            ),
            "nnx": Built(
                lambda rngs: ZooGRU(n, size, rngs=rngs),
                lambda layer, x: layer(x, {"hidden": jnp.full((x.shape[0], size), 0.3)})[0],
            ),
            "equinox": Built(
                lambda key: eqx.nn.GRUCell(n, size, key=key),
                lambda layer, x: layer(x, jnp.full((size,), 0.3)),
            ),
            "keras": Built(
                lambda _: kl.GRUCell(size),
                lambda layer, x: layer(x, jnp.full((x.shape[0], size), 0.3))[0],
            ),
        },
    )


def simple_cell(n: int, size: int) -> Case:
    def flax(layer: Any, x: jax.Array) -> jax.Array:
        return layer(jnp.full((x.shape[0], size), 0.3), x)[1]

    return Case(
        Box((n,)),
        {
            "haiku": Built(
                lambda name: hk.VanillaRNN(size, double_bias=False, name=name),
                lambda layer, x: layer(x, jnp.full((x.shape[0], size), 0.3))[0],
            ),
            "linen": Built(
                lambda name: nn.SimpleCell(size, activation_fn=nn.relu, name=name), flax
            ),
            "nnx": Built(
                lambda rngs: nnx.SimpleCell(n, size, activation_fn=nnx.relu, rngs=rngs), flax
            ),
            "keras": Built(
                lambda _: kl.SimpleRNNCell(size, activation="relu"),
                lambda layer, x: layer(x, jnp.full((x.shape[0], size), 0.3))[0],
            ),
        },
    )


def convolutional_lstm(n: int, m: int) -> Case:
    def carry(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        shape = (*x.shape[:-1], m)
        return jnp.full(shape, 0.3), jnp.full(shape, 0.7)

    return Case(
        Box((4, 3, n)),
        {
            "haiku": Built(
                lambda name: hk.Conv2DLSTM((4, 3), m, 3, name=name),
                lambda layer, x: layer(x, hk.LSTMState(*carry(x)))[0],
            ),
            "linen": Built(
                lambda name: nn.ConvLSTMCell(m, (3, 3), name=name),
                lambda layer, x: layer(carry(x)[::-1], x)[1],
            ),
        },
    )
