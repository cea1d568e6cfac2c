"""Convolutional networks of images: MobileNet, ConvNeXt, FiLM."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from triglot.backends.keras.importing import import_keras
from triglot.core.specs import Box

from ..pair import Bug, Pair

keras = import_keras()
kl = keras.layers

STRIDES = (1, 2, 1, 2)


def keras_mobilenet(widths=(8, 16, 16, 32), strides=STRIDES, classes=10, image=16):
    """Howard et al. 2017, as a functional model."""
    inputs = keras.Input((image, image, 3))
    x = kl.Conv2D(widths[0], 3, 2, padding="same", use_bias=False)(inputs)
    x = kl.ReLU(6.0)(kl.BatchNormalization()(x))
    for width, stride in zip(widths, strides, strict=True):
        x = kl.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x)
        x = kl.ReLU(6.0)(kl.BatchNormalization()(x))
        x = kl.Conv2D(width, 1, use_bias=False)(x)
        x = kl.ReLU(6.0)(kl.BatchNormalization()(x))
    return keras.Model(inputs, kl.Dense(classes)(kl.GlobalAveragePooling2D()(x)))


class LinenMobileNet(nn.Module):
    widths: tuple[int, ...] = (8, 16, 16, 32)
    strides: tuple[int, ...] = STRIDES
    classes: int = 10
    image: int = 16
    bug: str = ""

    @nn.compact
    def __call__(self, x, train: bool):
        epsilon = 1e-5 if self.bug == "keras_epsilon" else 1e-3  # planted: keras_epsilon

        def activated(x):
            x = nn.BatchNorm(not train, momentum=0.99, epsilon=epsilon)(x)  # planted: keras_epsilon
            return nn.relu(x) if self.bug == "relu6" else nn.relu6(x)  # planted: relu6

        def conv(x, width, stride, size, groups=1):
            symmetric = self.bug == "torch_padding" and size == 3
            padding = ((1, 1), (1, 1)) if symmetric else "SAME"
            layer = nn.Conv(
                width,
                (size, size),
                (stride, stride),
                padding,  # planted: torch_padding
                feature_group_count=groups,
                use_bias=False,
            )
            return layer(x)  # planted: torch_padding

        x = activated(conv(x, self.widths[0], 2, 3))
        for width, stride in zip(self.widths, self.strides, strict=True):
            x = activated(conv(x, x.shape[-1], stride, 3, x.shape[-1]))
            x = activated(conv(x, width, 1, 1))
        return nn.Dense(self.classes)(x.mean((1, 2)))


class LinenConvNeXtBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        width = x.shape[-1]
        y = nn.Conv(width, (7, 7), feature_group_count=width)(x)
        y = nn.LayerNorm()(y)  # counterpart: next_epsilon
        y = nn.Dense(width)(nn.gelu(nn.Dense(4 * width)(y), False))  # counterpart: gelu
        gamma = self.param("gamma", nn.initializers.constant(0.1), (width,))
        return x + gamma * y  # counterpart: layer_scale


class LinenConvNeXt(nn.Module):
    """Liu et al. 2022."""

    widths: tuple[int, ...] = (8, 16)
    depths: tuple[int, ...] = (1, 1)
    classes: int = 10
    image: int = 32

    @nn.compact
    def __call__(self, x):
        for stage, (width, depth) in enumerate(zip(self.widths, self.depths, strict=True)):
            if stage:
                x = nn.Conv(width, (2, 2), (2, 2))(nn.LayerNorm()(x))
            else:
                x = nn.LayerNorm()(nn.Conv(width, (4, 4), (4, 4))(x))
            for _ in range(depth):
                x = LinenConvNeXtBlock()(x)
        return nn.Dense(self.classes)(nn.LayerNorm()(x.mean((1, 2))))


class NNXConvNeXtBlock(nnx.Module):
    def __init__(self, width, bug, rngs):
        self.depthwise = nnx.Conv(width, width, (7, 7), feature_group_count=width, rngs=rngs)
        epsilon = 1e-3 if bug == "next_epsilon" else 1e-6  # planted: next_epsilon
        self.norm = nnx.LayerNorm(width, epsilon=epsilon, rngs=rngs)
        self.expand = nnx.Linear(width, 4 * width, rngs=rngs)
        self.project = nnx.Linear(4 * width, width, rngs=rngs)
        if bug != "layer_scale":
            self.gamma = nnx.Param(jnp.full((width,), 0.1))
        self.bug = bug

    def __call__(self, x):
        y = self.norm(self.depthwise(x))  # planted: next_epsilon
        y = jax.nn.gelu(self.expand(y), approximate=self.bug == "gelu")  # planted: gelu
        y = self.project(y)
        return x + (y if self.bug == "layer_scale" else self.gamma * y)  # planted: layer_scale


class NNXConvNeXt(nnx.Module):
    def __init__(self, widths, depths, classes, bug, rngs):
        self.downsample, self.norms, self.stages = nnx.List(), nnx.List(), nnx.List()
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            inputs, size = (widths[stage - 1], 2) if stage else (3, 4)
            self.downsample.append(nnx.Conv(inputs, width, (size, size), (size, size), rngs=rngs))
            self.norms.append(nnx.LayerNorm(inputs if stage else width, rngs=rngs))
            self.stages.append(nnx.List(NNXConvNeXtBlock(width, bug, rngs) for _ in range(depth)))
        self.norm = nnx.LayerNorm(widths[-1], rngs=rngs)
        self.head = nnx.Linear(widths[-1], classes, rngs=rngs)

    def __call__(self, x):
        for stage, blocks in enumerate(self.stages):
            conv, norm = self.downsample[stage], self.norms[stage]
            x = conv(norm(x)) if stage else norm(conv(x))
            for block in blocks:
                x = block(x)
        return self.head(self.norm(x.mean((1, 2))))


def nnx_convnext(widths=(8, 16), depths=(1, 1), classes=10, image=32, bug=""):
    return lambda rngs: NNXConvNeXt(widths, depths, classes, bug, rngs)


class LinenFiLM(nn.Module):
    """A residual CNN whose features a question scales and shifts."""

    width: int = 16
    blocks: int = 2

    @nn.compact
    def __call__(self, image, question):
        x = nn.relu(nn.Conv(self.width, (3, 3))(image))
        for _ in range(self.blocks):
            film = nn.Dense(2 * self.width)(question)
            gamma, beta = jnp.split(film[:, None, None], 2, -1)  # counterpart: swapped
            x = nn.relu(nn.Conv(self.width, (1, 1))(x))
            y = nn.GroupNorm(4)(nn.Conv(self.width, (3, 3))(x))
            y = (1 + gamma) * y + beta  # counterpart: gamma, swapped
            x = x + nn.relu(y)  # counterpart: relu_after_sum
        return nn.Dense(10)(x.max((1, 2)))


class EquinoxFiLMBlock(eqx.Module):
    film: eqx.nn.Linear
    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm
    bug: str = eqx.field(static=True)

    def __init__(self, width, bug, key):
        keys = jax.random.split(key, 3)
        self.film = eqx.nn.Linear(7, 2 * width, key=keys[0])
        self.first = eqx.nn.Conv2d(width, width, 1, key=keys[1])
        self.second = eqx.nn.Conv2d(width, width, 3, padding=1, key=keys[2])
        self.norm = eqx.nn.GroupNorm(4, width, eps=1e-6)
        self.bug = bug

    def __call__(self, x, question):
        gamma, beta = jnp.split(self.film(question)[:, None, None], 2)
        if self.bug == "swapped":
            gamma, beta = beta, gamma  # planted: swapped
        x = jax.nn.relu(self.first(x))
        y = self.norm(self.second(x))
        scale = gamma if self.bug == "gamma" else 1 + gamma  # planted: gamma, swapped
        y = scale * y + beta  # planted: gamma, swapped
        if self.bug == "relu_after_sum":
            return jax.nn.relu(x + y)  # planted: relu_after_sum
        return x + jax.nn.relu(y)


class EquinoxFiLM(eqx.Module):
    stem: eqx.nn.Conv2d
    blocks: list[EquinoxFiLMBlock]
    out: eqx.nn.Linear

    def __init__(self, width, blocks, bug, key):
        keys = jax.random.split(key, blocks + 2)
        self.stem = eqx.nn.Conv2d(3, width, 3, padding=1, key=keys[0])
        self.blocks = [EquinoxFiLMBlock(width, bug, each) for each in keys[2:]]
        self.out = eqx.nn.Linear(width, 10, key=keys[1])

    def __call__(self, image, question):
        x = jax.nn.relu(self.stem(jnp.moveaxis(image, -1, 0)))
        for block in self.blocks:
            x = block(x, question)
        return self.out(x.max((1, 2)))


def equinox_film(width=16, blocks=2, bug=""):
    return lambda key: EquinoxFiLM(width, blocks, bug, key)


PAIRS = (
    Pair(
        name="mobilenet",
        source="Howard et al. 2017",
        libraries=("keras", "linen"),
        one=keras_mobilenet,
        other=LinenMobileNet,
        inputs=lambda image=16, **_: Box((image, image, 3), "float32", 0.0, 255.0),
        bugs=(
            Bug("keras_epsilon", ("norm_epsilon",), "epsilon 1e-5, not Keras' 1e-3"),
            Bug("relu6", ("activation", "clip_range"), "ReLU for ReLU6"),
            Bug(
                "torch_padding",
                ("padding",),
                "pads by 1 on both sides where SAME with stride 2 pads one",
            ),
        ),
        sizes={
            "mobilenet": {
                "widths": (64, 128, 128, 256, 256, *(512,) * 6, 1024, 1024),
                "strides": (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1),
                "classes": 1000,
                "image": 224,
            }
        },
    ),
    Pair(
        name="convnext",
        source="Liu et al. 2022",
        libraries=("linen", "nnx"),
        one=LinenConvNeXt,
        other=nnx_convnext,
        inputs=lambda image=32, **_: Box((image, image, 3)),
        bugs=(
            Bug("next_epsilon", ("norm_epsilon",), "epsilon 1e-3 for 1e-6"),
            Bug("gelu", ("activation",), "GELU by tanh, not the exact one"),
            Bug(
                "layer_scale", ("missing_scale", "unpaired_parameter"), "leaves out the layer scale"
            ),
        ),
        sizes={
            "tiny": {
                "widths": (96, 192, 384, 768),
                "depths": (3, 3, 9, 3),
                "classes": 1000,
                "image": 224,
            }
        },
    ),
    Pair(
        name="film",
        source="Perez et al. 2018",
        libraries=("linen", "equinox"),
        one=LinenFiLM,
        other=equinox_film,
        inputs=(Box((8, 8, 3)), Box((7,))),
        bugs=(
            Bug("gamma", ("operation_missing", "constant"), "scales by gamma, not 1 + gamma"),
            Bug(
                "swapped",
                ("operand_order",),
                "takes the first half of the conditioning as the shift",
            ),
            Bug("relu_after_sum", ("operation_order",), "activates the sum, not the branch"),
        ),
    ),
)
