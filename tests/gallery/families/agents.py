"""Networks of agents: Nature CNN, IMPALA's ResNet, dueling heads."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

from triglot.core.specs import Box

from ..pair import Bug, Pair

KERNELS, STRIDES = (8, 4, 3), (4, 2, 1)


def haiku_nature(channels=(8, 16, 16), hidden=32, image=44, actions=6):
    def network(frames):
        x = frames.astype(jnp.float32) / 255.0  # counterpart: pixel_range
        for width, kernel, stride in zip(channels, KERNELS, STRIDES, strict=True):
            conv = hk.Conv2D(width, kernel, stride, padding="VALID")
            x = jax.nn.relu(conv(x))  # counterpart: same_padding, relu_missing
        x = hk.Flatten()(x)  # counterpart: channels_first_flatten
        x = jax.nn.relu(hk.Linear(hidden)(x))  # counterpart: channels_first_flatten
        return hk.Linear(actions)(x)

    return network


class EquinoxNature(eqx.Module):
    convs: list[eqx.nn.Conv2d]
    hidden: eqx.nn.Linear
    out: eqx.nn.Linear
    bug: str = eqx.field(static=True)

    def __init__(self, channels, hidden, image, actions, bug, key):
        keys = jax.random.split(key, 5)
        padding = "SAME" if bug == "same_padding" else 0  # planted: same_padding
        self.convs, inputs, size = [], 4, image
        for i, (width, kernel, stride) in enumerate(zip(channels, KERNELS, STRIDES, strict=True)):
            conv = eqx.nn.Conv2d(inputs, width, kernel, stride, padding, key=keys[i])
            self.convs.append(conv)
            size = -(-size // stride) if padding == "SAME" else (size - kernel) // stride + 1
            inputs = width
        self.hidden = eqx.nn.Linear(size * size * inputs, hidden, key=keys[3])
        self.out = eqx.nn.Linear(hidden, actions, key=keys[4])
        self.bug = bug

    def __call__(self, frames):
        most = 256.0 if self.bug == "pixel_range" else 255.0
        x = jnp.moveaxis(frames.astype(jnp.float32) / most, -1, 0)  # planted: pixel_range
        for conv in self.convs[:-1]:
            x = jax.nn.relu(conv(x))  # planted: same_padding
        x = self.convs[-1](x)  # planted: relu_missing, same_padding
        x = x if self.bug == "relu_missing" else jax.nn.relu(x)  # planted: relu_missing
        if self.bug != "channels_first_flatten":
            x = jnp.moveaxis(x, 0, -1)
        x = self.hidden(x.ravel())  # planted: channels_first_flatten
        return self.out(jax.nn.relu(x))


def equinox_nature(channels=(8, 16, 16), hidden=32, image=44, actions=6, bug=""):
    return lambda key: EquinoxNature(channels, hidden, image, actions, bug, key)


def haiku_impala(channels=(8, 16), hidden=32, image=24, actions=6):
    def block(x, width):
        y = hk.Conv2D(width, 3)(jax.nn.relu(x))
        y = hk.Conv2D(width, 3)(jax.nn.relu(y))
        return x + y  # counterpart: impala_residual

    def network(frames):
        x = frames.astype(jnp.float32) / 255.0
        for width in channels:
            x = hk.Conv2D(width, 3)(x)
            x = hk.max_pool(x, (3, 3, 1), (2, 2, 1), "SAME")  # counterpart: pool_padding, pool_mean
            for _ in range(2):
                x = block(x, width)
        x = jax.nn.relu(hk.Flatten()(x))
        x = jax.nn.relu(hk.Linear(hidden)(x))
        return hk.Linear(actions)(x), hk.Linear(1)(x)[:, 0]

    return network


class NNXBlock(nnx.Module):
    def __init__(self, width, bug, rngs):
        self.first = nnx.Conv(width, width, (3, 3), rngs=rngs)
        self.second = nnx.Conv(width, width, (3, 3), rngs=rngs)
        self.bug = bug

    def __call__(self, x):
        y = nnx.relu(x)
        residual = y if self.bug == "impala_residual" else x  # planted: impala_residual
        y = self.second(nnx.relu(self.first(y)))
        return residual + y  # planted: impala_residual


class NNXImpala(nnx.Module):
    def __init__(self, channels, hidden, image, actions, bug, rngs):
        stages, inputs = [], 3
        for width in channels:
            conv = nnx.Conv(inputs, width, (3, 3), rngs=rngs)
            stages.append(nnx.List([conv, *(NNXBlock(width, bug, rngs) for _ in range(2))]))
            inputs, image = width, -(-image // 2)
        self.stages = nnx.List(stages)
        self.hidden = nnx.Linear(image * image * inputs, hidden, rngs=rngs)
        self.policy = nnx.Linear(hidden, actions, rngs=rngs)
        self.value = nnx.Linear(hidden, 1, rngs=rngs)
        self.bug = bug

    def __call__(self, frames):
        x = frames.astype(jnp.float32) / 255.0
        pool = nnx.avg_pool if self.bug == "pool_mean" else nnx.max_pool  # planted: pool_mean
        padding: Any = ((1, 1), (1, 1)) if self.bug == "pool_padding" else "SAME"
        for conv, *blocks in self.stages:
            x = pool(conv(x), (3, 3), (2, 2), padding)  # planted: pool_padding, pool_mean
            for block in blocks:
                x = block(x)
        x = nnx.relu(self.hidden(nnx.relu(x.reshape(len(x), -1))))
        return self.policy(x), self.value(x)[:, 0]


def nnx_impala(channels=(8, 16), hidden=32, image=24, actions=6, bug=""):
    return lambda rngs: NNXImpala(channels, hidden, image, actions, bug, rngs)


class LinenDueling(nn.Module):
    hidden: tuple[int, ...] = (32, 32)
    actions: int = 5

    @nn.compact
    def __call__(self, obs):
        x = obs
        for size in self.hidden:
            x = nn.elu(nn.Dense(size)(x))  # counterpart: selu
        value = nn.Dense(1, name="value")(x)
        advantage = nn.Dense(self.actions, name="advantage")(x)
        mean = advantage.mean(-1, keepdims=True)  # counterpart: max_advantage, mean_over_batch
        return value + advantage - mean


def jax_dueling(hidden=(32, 32), actions=5, bug=""):
    def dense(key, inputs, outputs):
        w = jax.random.normal(key, (inputs, outputs)) / jnp.sqrt(jnp.float32(inputs))
        return {"w": w, "b": jnp.zeros(outputs)}

    def init(key):
        sizes = (8, *hidden)
        keys = jax.random.split(key, len(sizes) + 1)
        layers = [dense(*each) for each in zip(keys, sizes[:-1], sizes[1:], strict=False)]
        value, advantage = dense(keys[-2], sizes[-1], 1), dense(keys[-1], sizes[-1], actions)
        return {"layers": layers, "value": value, "advantage": advantage}

    def apply(params, obs):
        x, activation = obs, jax.nn.selu if bug == "selu" else jax.nn.elu
        for layer in params["layers"]:
            x = activation(x @ layer["w"] + layer["b"])  # planted: selu
        value = x @ params["value"]["w"] + params["value"]["b"]
        advantage = x @ params["advantage"]["w"] + params["advantage"]["b"]
        if bug == "max_advantage":
            return value + advantage - advantage.max(-1, keepdims=True)  # planted: max_advantage
        axis = 0 if bug == "mean_over_batch" else -1
        mean = advantage.mean(axis, keepdims=True)  # planted: mean_over_batch
        return value + advantage - mean  # planted: mean_over_batch

    return init, apply


PAIRS = (
    Pair(
        name="nature_cnn",
        source="Mnih et al. 2015",
        libraries=("haiku", "equinox"),
        one=haiku_nature,
        other=equinox_nature,
        inputs=lambda image=44, **_: Box((image, image, 4), "uint8", 0, 255),
        bugs=(
            Bug(
                "channels_first_flatten",
                ("flatten_order",),
                "flattens [C, H, W] where the original flattens [H, W, C]",
            ),
            Bug("pixel_range", ("constant",), "divides pixels by 256, not 255"),
            Bug(
                "same_padding", ("padding",), "pads the convolutions, which makes the images larger"
            ),
            Bug("relu_missing", ("activation",), "leaves out the last convolution's ReLU"),
        ),
        sizes={"nature": {"channels": (32, 64, 64), "hidden": 512, "image": 84, "actions": 18}},
    ),
    Pair(
        name="impala_cnn",
        source="Espeholt et al. 2018",
        libraries=("haiku", "nnx"),
        one=haiku_impala,
        other=nnx_impala,
        inputs=lambda image=24, **_: Box((image, image, 3), "uint8", 0, 255),
        bugs=(
            Bug("impala_residual", ("residual_source",), "adds the block's input after its ReLU"),
            Bug(
                "pool_padding",
                ("padding",),
                "pads the pooling by 1 on both sides, not as SAME with stride 2",
            ),
            Bug("pool_mean", ("pooling",), "averages where the original pools"),
        ),
        sizes={"impala": {"channels": (16, 32, 32), "hidden": 256, "image": 72, "actions": 15}},
    ),
    Pair(
        name="dueling",
        source="Wang et al. 2016",
        libraries=("linen", "jax"),
        one=LinenDueling,
        other=jax_dueling,
        inputs=Box((8,)),
        bugs=(
            Bug("selu", ("activation",), "SELU for ELU"),
            Bug(
                "max_advantage",
                ("pooling",),
                "subtracts the largest advantage, not the mean",
            ),
            Bug("mean_over_batch", ("reduction_axis",), "averages the advantages over the batch"),
        ),
    ),
)
