"""One small network in each library, with its author's names, and planted differences."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

SIZE = 6
INPUTS, OUTPUTS = 4, 2


@dataclass(frozen=True)
class Setting:
    """What a test plants.

    Attributes:
      bias: whether the first layer has one.
      epsilon: of the layer normalization.
      turned: whether the square matrix is multiplied transposed.
    """

    bias: bool = True
    epsilon: float = 1e-5
    turned: bool = False


def matmul(x: Any, matrix: Any, turned: bool) -> Any:
    return x @ (matrix.T if turned else matrix)


def of_haiku(setting: Setting) -> Any:
    def network(x: jax.Array) -> jax.Array:
        x = jnp.tanh(hk.Linear(SIZE, with_bias=setting.bias, name="begin_here")(x))
        mix = hk.get_parameter("mix", (SIZE, SIZE), init=hk.initializers.RandomNormal())
        x = matmul(x, mix, setting.turned)
        x = hk.LayerNorm(-1, True, True, eps=setting.epsilon, name="normed")(x)
        return hk.Linear(OUTPUTS, name="end")(x)

    return network


class OfLinen(nn.Module):
    setting: Setting

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = jnp.tanh(nn.Dense(SIZE, use_bias=self.setting.bias, name="first_one")(x))
        mix = self.param("mix", nn.initializers.normal(), (SIZE, SIZE))
        x = matmul(x, mix, self.setting.turned)
        x = nn.LayerNorm(epsilon=self.setting.epsilon)(x)
        return nn.Dense(OUTPUTS)(x)


class OfNNX(nnx.Module):
    def __init__(self, setting: Setting, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List(
            [
                nnx.Linear(INPUTS, SIZE, use_bias=setting.bias, rngs=rngs),
                nnx.LayerNorm(SIZE, epsilon=setting.epsilon, rngs=rngs),
                nnx.Linear(SIZE, OUTPUTS, rngs=rngs),
            ]
        )
        self.mix_matrix = nnx.Param(jax.random.normal(rngs.params(), (SIZE, SIZE)))
        self.turned = setting.turned

    def __call__(self, x: jax.Array) -> jax.Array:
        first, norm, last = self.layers
        return last(norm(matmul(jnp.tanh(first(x)), self.mix_matrix[...], self.turned)))


class OfEquinox(eqx.Module):
    blocks: list[Any]
    mix: jax.Array
    turned: bool = eqx.field(static=True)

    def __init__(self, setting: Setting, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.blocks = [
            eqx.nn.Linear(INPUTS, SIZE, use_bias=setting.bias, key=keys[0]),
            eqx.nn.LayerNorm(SIZE, eps=setting.epsilon),
            eqx.nn.Linear(SIZE, OUTPUTS, key=keys[1]),
        ]
        self.mix = jax.random.normal(keys[2], (SIZE, SIZE))
        self.turned = setting.turned

    def __call__(self, x: jax.Array) -> jax.Array:
        first, norm, last = self.blocks
        return last(norm(matmul(jnp.tanh(first(x)), self.mix, self.turned)))


def of_keras(setting: Setting) -> Any:
    import keras

    class OfKeras(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first_layer = keras.layers.Dense(SIZE, use_bias=setting.bias)
            self.normalize = keras.layers.LayerNormalization(epsilon=setting.epsilon)
            self.end = keras.layers.Dense(OUTPUTS)
            self.mix = self.add_weight(
                shape=(SIZE, SIZE), initializer="random_normal", name="mix_all"
            )

        def call(self, x: Any) -> Any:
            x = keras.ops.tanh(self.first_layer(x))
            matrix = keras.ops.transpose(self.mix) if setting.turned else self.mix
            return self.end(self.normalize(keras.ops.matmul(x, matrix)))

    return OfKeras


def of_torch(setting: Setting) -> Any:
    import torch

    class OfTorch(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.Sequential(
                torch.nn.Linear(INPUTS, SIZE, bias=setting.bias), torch.nn.Tanh()
            )
            self.mix = torch.nn.Parameter(torch.randn(SIZE, SIZE))
            self.decoder = torch.nn.Sequential(
                torch.nn.LayerNorm(SIZE, eps=setting.epsilon), torch.nn.Linear(SIZE, OUTPUTS)
            )

        def forward(self, x: Any) -> Any:
            return self.decoder(matmul(self.encoder(x), self.mix, setting.turned))

    return OfTorch


def of_jax(setting: Setting) -> Any:
    shapes = {
        "in": {"w": (INPUTS, SIZE), **({"b": (SIZE,)} if setting.bias else {})},
        "mixing": {"W": (SIZE, SIZE)},
        "norm": {"gain": (SIZE,), "shift": (SIZE,)},
        "out": {"w": (SIZE, OUTPUTS), "b": (OUTPUTS,)},
    }

    def init(key: jax.Array) -> Any:
        leaves, treedef = jax.tree.flatten(shapes, is_leaf=lambda node: isinstance(node, tuple))
        keys = jax.random.split(key, len(leaves))
        return treedef.unflatten(
            [jax.random.normal(k, shape) for k, shape in zip(keys, leaves, strict=True)]
        )

    def apply(params: Any, x: jax.Array) -> jax.Array:
        x = x @ params["in"]["w"]
        if setting.bias:
            x = x + params["in"]["b"][None]
        x = matmul(jnp.tanh(x), params["mixing"]["W"], setting.turned)
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + setting.epsilon)
        norm = params["norm"]
        x = centred * scale * norm["gain"][None] + norm["shift"][None]
        return x @ params["out"]["w"] + params["out"]["b"][None]

    return init, apply


LIBRARIES: dict[str, Callable[[Setting], Any]] = {
    "haiku": of_haiku,
    "linen": OfLinen,
    "nnx": lambda setting: lambda rngs: OfNNX(setting, rngs),
    "equinox": lambda setting: lambda key: OfEquinox(setting, key),
    "keras": of_keras,
    "torch": of_torch,
    "jax": of_jax,
}
# The names that the author of each knows: of the first layer, its kernel and its bias, the square
# matrix, and the arrays of the normalization and of the last layer.
NAMES: dict[str, dict[str, str]] = {
    "haiku": {
        "first": "begin_here", "kernel": "begin_here/w", "bias": "begin_here/b", "mix": "~/mix",
        "scale": "normed/scale", "shift": "normed/offset", "last": "end/w", "last bias": "end/b",
    },
    "linen": {
        "first": "first_one", "kernel": "first_one/kernel", "bias": "first_one/bias", "mix": "mix",
        "scale": "LayerNorm_0/scale", "shift": "LayerNorm_0/bias", "last": "Dense_0/kernel",
        "last bias": "Dense_0/bias",
    },
    "nnx": {
        "first": "layers/0", "kernel": "layers/0/kernel", "bias": "layers/0/bias",
        "mix": "mix_matrix", "scale": "layers/1/scale", "shift": "layers/1/bias",
        "last": "layers/2/kernel", "last bias": "layers/2/bias",
    },
    "equinox": {
        "first": ".blocks[0]", "kernel": ".blocks[0].weight", "bias": ".blocks[0].bias",
        "mix": ".mix", "scale": ".blocks[1].weight", "shift": ".blocks[1].bias",
        "last": ".blocks[2].weight", "last bias": ".blocks[2].bias",
    },
    "keras": {
        "first": "first_layer", "kernel": "first_layer/kernel", "bias": "first_layer/bias",
        "mix": "mix_all", "scale": "normalize/gamma", "shift": "normalize/beta",
        "last": "end/kernel", "last bias": "end/bias",
    },
    "torch": {
        "first": "encoder.0", "kernel": "encoder.0.weight", "bias": "encoder.0.bias", "mix": "mix",
        "scale": "decoder.0.weight", "shift": "decoder.0.bias", "last": "decoder.1.weight",
        "last bias": "decoder.1.bias",
    },
    "jax": {
        "first": "in", "kernel": "in/w", "bias": "in/b", "mix": "mixing/W", "scale": "norm/gain",
        "shift": "norm/shift", "last": "out/w", "last bias": "out/b",
    },
}  # fmt: skip
