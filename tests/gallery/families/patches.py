"""Tokens of images, and how they are mixed: ViT, MLP-Mixer, FNet."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

from triglot.core.specs import Box

from ..pair import Bug, Pair


class LinenEncoderBlock(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm(1e-6)(x)  # counterpart: vit_epsilon
        x = x + nn.MultiHeadDotProductAttention(self.heads)(y)
        y = nn.Dense(4 * x.shape[-1])(nn.LayerNorm(1e-6)(x))  # counterpart: vit_epsilon
        return x + nn.Dense(x.shape[-1])(nn.gelu(y, approximate=False))


class LinenViT(nn.Module):
    """Dosovitskiy et al. 2020."""

    patch: int = 4
    width: int = 16
    depth: int = 2
    heads: int = 2
    classes: int = 10
    image: int = 12

    @nn.compact
    def __call__(self, images):
        size = (self.patch, self.patch)
        x = nn.Conv(self.width, size, size, "VALID")(images)
        x = x.reshape(len(x), -1, self.width)
        cls = self.param("cls", nn.initializers.normal(0.02), (1, 1, self.width))
        x = jnp.concatenate([jnp.tile(cls, (len(x), 1, 1)), x], 1)  # counterpart: cls_last
        shape = (1, x.shape[1], self.width)
        x = x + self.param("positions", nn.initializers.normal(0.02), shape)
        for _ in range(self.depth):
            x = LinenEncoderBlock(self.heads)(x)
        x = nn.LayerNorm(1e-6)(x)
        return nn.Dense(self.classes)(x[:, 0])  # counterpart: mean_pool


class EquinoxEncoderBlock(eqx.Module):
    norm1: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    norm2: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP

    def __init__(self, width, heads, epsilon, key):
        keys = jax.random.split(key)
        self.norm1 = eqx.nn.LayerNorm(width, epsilon)
        self.attention = eqx.nn.MultiheadAttention(
            heads,
            width,
            use_query_bias=True,
            use_key_bias=True,
            use_value_bias=True,
            use_output_bias=True,
            key=keys[0],
        )
        self.norm2 = eqx.nn.LayerNorm(width, epsilon)
        gelu = lambda x: jax.nn.gelu(x, approximate=False)  # noqa: E731
        self.mlp = eqx.nn.MLP(width, width, 4 * width, 1, gelu, key=keys[1])

    def __call__(self, x):
        y = jax.vmap(self.norm1)(x)  # planted: vit_epsilon
        x = x + self.attention(y, y, y)
        y = jax.vmap(self.norm2)(x)  # planted: vit_epsilon
        return x + jax.vmap(self.mlp)(y)


class EquinoxViT(eqx.Module):
    embed: eqx.nn.Conv2d
    cls: jax.Array
    positions: jax.Array
    blocks: list[EquinoxEncoderBlock]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear
    bug: str = eqx.field(static=True)

    def __init__(self, patch, width, depth, heads, classes, image, bug, key):
        keys = jax.random.split(key, depth + 4)
        epsilon = 1e-5 if bug == "vit_epsilon" else 1e-6  # planted: vit_epsilon
        tokens = (image // patch) ** 2 + 1
        self.embed = eqx.nn.Conv2d(3, width, patch, patch, key=keys[0])
        self.cls = 0.02 * jax.random.normal(keys[1], (1, 1, width))
        self.positions = 0.02 * jax.random.normal(keys[2], (1, tokens, width))
        self.blocks = [EquinoxEncoderBlock(width, heads, epsilon, each) for each in keys[4:]]
        self.norm = eqx.nn.LayerNorm(width, 1e-6)
        self.head = eqx.nn.Linear(width, classes, key=keys[3])
        self.bug = bug

    def __call__(self, image):
        x = self.embed(jnp.moveaxis(image, -1, 0))
        x = x.reshape(len(x), -1).T
        cls, positions = self.cls[0], self.positions[0]
        parts = [x, cls] if self.bug == "cls_last" else [cls, x]  # planted: cls_last
        x = jnp.concatenate(parts) + positions  # planted: cls_last
        for block in self.blocks:
            x = block(x)
        x = jax.vmap(self.norm)(x)
        if self.bug == "mean_pool":
            return self.head(x.mean(0))  # planted: mean_pool
        return self.head(x[-1 if self.bug == "cls_last" else 0])  # planted: cls_last, mean_pool


def equinox_vit(patch=4, width=16, depth=2, heads=2, classes=10, image=12, bug=""):
    return lambda key: EquinoxViT(patch, width, depth, heads, classes, image, bug, key)


class NNXMlp(nnx.Module):
    def __init__(self, width, hidden, rngs):
        self.expand = nnx.Linear(width, hidden, rngs=rngs)
        self.project = nnx.Linear(hidden, width, rngs=rngs)

    def __call__(self, x):
        return self.project(nnx.gelu(self.expand(x)))  # counterpart: exact_gelu, not_swapped


class NNXMixerBlock(nnx.Module):
    def __init__(self, tokens, width, rngs):
        self.norm1 = nnx.LayerNorm(width, rngs=rngs)
        self.tokens = NNXMlp(tokens, 2 * tokens, rngs)
        self.norm2 = nnx.LayerNorm(width, rngs=rngs)
        self.channels = NNXMlp(width, 2 * width, rngs)

    def __call__(self, x):
        y = jnp.swapaxes(self.norm1(x), 1, 2)  # counterpart: not_swapped
        x = x + jnp.swapaxes(self.tokens(y), 1, 2)  # counterpart: skip_normed, not_swapped
        return x + self.channels(self.norm2(x))


class NNXMixer(nnx.Module):
    """Tolstikhin et al. 2021."""

    def __init__(self, patch, width, depth, image, rngs):
        tokens = (image // patch) ** 2
        self.stem = nnx.Conv(3, width, (patch, patch), (patch, patch), rngs=rngs)
        self.blocks = nnx.List(NNXMixerBlock(tokens, width, rngs) for _ in range(depth))
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, 10, rngs=rngs)

    def __call__(self, images):
        x = self.stem(images)
        x = x.reshape(len(x), -1, x.shape[-1])
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))  # counterpart: headless


def nnx_mixer(patch=4, width=16, depth=2, image=16):
    return lambda rngs: NNXMixer(patch, width, depth, image, rngs)


def haiku_mixer(patch=4, width=16, depth=2, image=16, bug=""):
    def mlp(x, hidden, name):
        y = hk.Linear(hidden, name=f"{name}_expand")(x)  # planted: not_swapped
        y = jax.nn.gelu(y, approximate=bug != "exact_gelu")  # planted: exact_gelu
        return hk.Linear(x.shape[-1], name=f"{name}_project")(y)

    def norm(x):
        return hk.LayerNorm(-1, True, True, eps=1e-6)(x)

    def network(images):
        x = hk.Conv2D(width, patch, patch)(images)
        x = x.reshape(len(x), -1, width)
        for index in range(depth):
            y = norm(x)
            skip = y if bug == "skip_normed" else x  # planted: skip_normed
            if bug == "not_swapped":
                x = skip + mlp(y, 2 * y.shape[1], f"tokens_{index}")  # planted: not_swapped
            else:
                z = mlp(y.swapaxes(1, 2), 2 * y.shape[1], f"tokens_{index}")
                x = skip + z.swapaxes(1, 2)  # planted: skip_normed
            x = x + mlp(norm(x), 2 * width, f"channels_{index}")
        with_bias = bug != "headless"  # planted: headless
        return hk.Linear(10, with_bias, name="head")(norm(x).mean(1))  # planted: headless

    return network


class LinenFNet(nn.Module):
    """Lee-Thorp et al. 2022: a Fourier transform mixes the tokens."""

    width: int = 16
    depth: int = 2

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width)(x)
        for _ in range(self.depth):
            mixed = jnp.fft.fft2(x, axes=(-1, -2)).real  # counterpart: imaginary, one_axis
            x = nn.LayerNorm(1e-5)(x + mixed)  # counterpart: unitary, imaginary, one_axis
            y = nn.Dense(self.width)(nn.gelu(nn.Dense(2 * self.width)(x)))
            x = nn.LayerNorm(1e-5)(x + y)
        return nn.Dense(4)(x.mean(1))


def haiku_fnet(width=16, depth=2, bug=""):
    def norm(x):
        return hk.LayerNorm(-1, True, True)(x)

    def network(x):
        x = hk.Linear(width)(x)
        for _ in range(depth):
            axes = (-2,) if bug == "one_axis" else (-2, -1)  # planted: one_axis
            scaling = "ortho" if bug == "unitary" else None  # planted: unitary
            mixed = jnp.fft.fftn(x, axes=axes, norm=scaling)  # planted: one_axis, unitary
            mixed = mixed.imag if bug == "imaginary" else mixed.real  # planted: imaginary
            x = norm(x + mixed)  # planted: imaginary, one_axis, unitary
            y = hk.Linear(width)(jax.nn.gelu(hk.Linear(2 * width)(x)))
            x = norm(x + y)
        return hk.Linear(4)(x.mean(1))

    return network


PAIRS = (
    Pair(
        name="vit",
        source="Dosovitskiy et al. 2020",
        libraries=("linen", "equinox"),
        one=LinenViT,
        other=equinox_vit,
        inputs=lambda image=12, **_: Box((image, image, 3)),
        bugs=(
            Bug(
                "cls_last",
                ("concatenation", "position_embedding"),
                "puts the class token last, so that positions shift by one",
            ),
            Bug("vit_epsilon", ("norm_epsilon",), "epsilon 1e-5 for 1e-6"),
            Bug("mean_pool", ("pooling",), "averages the tokens"),
        ),
        sizes={
            "vit_s": {
                "patch": 16,
                "width": 384,
                "depth": 12,
                "heads": 6,
                "classes": 1000,
                "image": 224,
            }
        },
    ),
    Pair(
        name="mixer",
        source="Tolstikhin et al. 2021",
        libraries=("nnx", "haiku"),
        one=nnx_mixer,
        other=haiku_mixer,
        inputs=lambda image=16, **_: Box((image, image, 3)),
        bugs=(
            Bug("headless", ("missing_bias",), "no bias in the head"),
            Bug("exact_gelu", ("activation",), "exact GELU for that by tanh"),
            Bug(
                "skip_normed", ("residual_source",), "adds the norm's output, not the block's input"
            ),
            Bug(
                "not_swapped",
                ("flatten_order", "operand_source"),
                "mixes channels twice, tokens never",
            ),
        ),
    ),
    Pair(
        name="fnet",
        source="Lee-Thorp et al. 2022",
        libraries=("linen", "haiku"),
        one=LinenFNet,
        other=haiku_fnet,
        inputs=Box((6, 5)),
        bugs=(
            Bug("one_axis", ("operation_missing", "reduction_axis"), "transforms tokens only"),
            Bug("unitary", ("constant",), "divides the transform by the root of its size"),
            Bug("imaginary", ("operation_differs",), "takes the imaginary part"),
        ),
    ),
)
