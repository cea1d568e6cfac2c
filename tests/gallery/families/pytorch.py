"""Ports of PyTorch modules: BERT, a generator of images, Inception's block."""

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import torch
from flax import nnx

from triglot.core.specs import Box

from ..pair import Bug, Pair

tn = torch.nn


class TorchBertLayer(tn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.query, self.key = tn.Linear(width, width), tn.Linear(width, width)
        self.value, self.dense = tn.Linear(width, width), tn.Linear(width, width)
        self.norm = tn.LayerNorm(width, eps=1e-12)
        self.intermediate, self.output = tn.Linear(width, 4 * width), tn.Linear(4 * width, width)
        self.output_norm = tn.LayerNorm(width, eps=1e-12)
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (each(x).reshape(split) for each in (self.query, self.key, self.value))
        logits = torch.einsum("bqhd,bkhd->bhqk", q, k) / (width // self.heads) ** 0.5
        y = torch.einsum("bhqk,bkhd->bqhd", logits.softmax(-1), v).reshape(x.shape)
        x = self.norm(x + self.dense(y))  # counterpart: norm_before_sum
        y = tn.functional.gelu(self.intermediate(x))  # counterpart: bert_gelu
        return self.output_norm(x + self.output(y))


class TorchBert(tn.Module):
    """Devlin et al. 2018."""

    def __init__(self, width=16, heads=2, depth=2, vocabulary=40, length=8):
        super().__init__()
        self.words, self.types = tn.Embedding(vocabulary, width), tn.Embedding(2, width)
        self.positions = tn.Embedding(length, width)
        for table in (self.words, self.types, self.positions):
            tn.init.normal_(table.weight, std=0.02)
        self.norm = tn.LayerNorm(width, eps=1e-12)
        self.layers = tn.ModuleList(TorchBertLayer(width, heads) for _ in range(depth))
        self.pooler = tn.Linear(width, width)

    def forward(self, tokens, types):
        positions = torch.arange(tokens.shape[1])
        x = self.words(tokens) + self.positions(positions) + self.types(types)
        x = self.norm(x)  # counterpart: bert_epsilon
        for layer in self.layers:
            x = layer(x)
        return x, torch.tanh(self.pooler(x[:, 0]))


def torch_bert(**size):
    return lambda: TorchBert(**size)


class LinenBert(nn.Module):
    width: int = 16
    heads: int = 2
    depth: int = 2
    vocabulary: int = 40
    length: int = 8
    bug: str = ""

    @nn.compact
    def __call__(self, tokens, types):
        x = nn.Embed(self.vocabulary, self.width, name="words")(tokens)
        x = x + nn.Embed(self.length, self.width, name="positions")(jnp.arange(tokens.shape[1]))
        x = x + nn.Embed(2, self.width, name="types")(types)
        epsilon = 1e-6 if self.bug == "bert_epsilon" else 1e-12  # planted: bert_epsilon
        x = nn.LayerNorm(epsilon, name="norm")(x)  # planted: bert_epsilon
        for index in range(self.depth):
            x = self.layer(x, f"layers_{index}")
        return x, jnp.tanh(nn.Dense(self.width, name="pooler")(x[:, 0]))

    def layer(self, x, name):
        def dense(outputs, part):
            return nn.Dense(outputs, name=f"{name}_{part}")

        size = self.width // self.heads
        split = (*x.shape[:2], self.heads, size)
        q, k, v = (dense(self.width, each)(x).reshape(split) for each in ("query", "key", "value"))
        logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) / size**0.5
        y = jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(logits), v).reshape(x.shape)
        y, norm = dense(self.width, "dense")(y), nn.LayerNorm(1e-12, name=f"{name}_norm")
        early = self.bug == "norm_before_sum"
        x = x + norm(y) if early else norm(x + y)  # planted: norm_before_sum
        y = dense(4 * self.width, "intermediate")(x)
        y = nn.gelu(y, approximate=self.bug == "bert_gelu")  # planted: bert_gelu
        return nn.LayerNorm(1e-12, name=f"{name}_output_norm")(x + dense(self.width, "output")(y))


class TorchGenerator(tn.Module):
    """Radford et al. 2015, with nearest upsampling and group norms."""

    def __init__(self, latents=6, width=16):
        super().__init__()
        self.project = tn.Linear(latents, 4 * 4 * 2 * width)
        self.blocks = tn.Sequential(
            tn.Upsample(scale_factor=2, mode="nearest"),  # counterpart: bilinear
            tn.Conv2d(2 * width, width, 3, padding=1),
            tn.GroupNorm(4, width),  # counterpart: groups
            tn.LeakyReLU(0.2),  # counterpart: slope
            tn.Upsample(scale_factor=2, mode="nearest"),
            tn.Conv2d(width, 3, 3, padding=1),
            tn.Tanh(),
        )

    def forward(self, z):
        x = self.project(z).reshape(len(z), -1, 4, 4)  # counterpart: channels_last_view
        return self.blocks(x).permute(0, 2, 3, 1)  # counterpart: bilinear, slope, groups


def torch_generator(**size):
    return lambda: TorchGenerator(**size)


def haiku_generator(latents=6, width=16, bug=""):
    def upsampled(x):
        size = (len(x), 2 * x.shape[1], 2 * x.shape[2], x.shape[3])
        method = "bilinear" if bug == "bilinear" else "nearest"  # planted: bilinear
        return jax.image.resize(x, size, method)  # planted: bilinear

    def network(z):
        x = hk.Linear(4 * 4 * 2 * width)(z)
        if bug == "channels_last_view":
            x = x.reshape(len(z), 4, 4, -1)  # planted: channels_last_view
        else:
            x = x.reshape(len(z), -1, 4, 4).transpose(0, 2, 3, 1)
        x = hk.Conv2D(width, 3)(upsampled(x))  # planted: channels_last_view, bilinear
        x = hk.GroupNorm(8 if bug == "groups" else 4)(x)  # planted: groups
        x = jax.nn.leaky_relu(x, 0.01 if bug == "slope" else 0.2)  # planted: slope
        return jnp.tanh(hk.Conv2D(3, 3)(upsampled(x)))

    return network


class TorchInception(tn.Module):
    """Szegedy et al. 2015: four branches, one of them pools."""

    def __init__(self, width=8):
        super().__init__()
        self.stem, self.single = tn.Conv2d(3, width, 3, padding=1), tn.Conv2d(width, width, 1)
        self.reduce, self.triple = tn.Conv2d(width, 4, 1), tn.Conv2d(4, width, 3, padding=1)
        self.pool = tn.AvgPool2d(3, 1, 1)  # counterpart: without_padding, max_branch
        self.project, self.out = tn.Conv2d(width, width, 1), tn.Linear(3 * width, 4)

    def forward(self, image):
        x = self.stem(image.permute(0, 3, 1, 2)).relu()
        branches = [self.single(x), self.triple(self.reduce(x).relu()), self.project(self.pool(x))]
        x = torch.cat(branches, 1).relu()  # counterpart: pool_first
        return self.out(x.mean((2, 3)))


class NNXInception(nnx.Module):
    def __init__(self, width, bug, rngs):
        self.stem = nnx.Conv(3, width, (3, 3), rngs=rngs)
        self.single = nnx.Conv(width, width, (1, 1), rngs=rngs)
        self.reduce = nnx.Conv(width, 4, (1, 1), rngs=rngs)
        self.triple = nnx.Conv(4, width, (3, 3), rngs=rngs)
        self.project = nnx.Conv(width, width, (1, 1), rngs=rngs)
        self.out = nnx.Linear(3 * width, 4, rngs=rngs)
        self.bug = bug

    def __call__(self, image):
        x = nnx.relu(self.stem(image))
        if self.bug == "max_branch":
            pooled = nnx.max_pool(x, (3, 3), padding="SAME")  # planted: max_branch
        else:
            counted = self.bug != "without_padding"  # planted: without_padding
            pooled = nnx.avg_pool(x, (3, 3), padding="SAME", count_include_pad=counted)
        branches = [self.single(x), self.triple(nnx.relu(self.reduce(x))), self.project(pooled)]
        if self.bug == "pool_first":
            branches = branches[::-1]  # planted: pool_first
        x = nnx.relu(jnp.concatenate(branches, -1))  # planted: pool_first
        return self.out(x.mean((1, 2)))


def nnx_inception(width=8, bug=""):
    return lambda rngs: NNXInception(width, bug, rngs)


def text(length=8, vocabulary=40, **_):
    size = min(length, 64)
    return Box((size,), "int32", 0, vocabulary - 1), Box((size,), "int32", 0, 1)


PAIRS = (
    Pair(
        name="bert",
        source="Devlin et al. 2018",
        libraries=("torch", "linen"),
        one=torch_bert,
        other=LinenBert,
        inputs=text,
        bugs=(
            Bug("bert_epsilon", ("norm_epsilon",), "Linen's epsilon 1e-6 for 1e-12"),
            Bug("bert_gelu", ("activation",), "GELU by tanh, not the exact one"),
            Bug("norm_before_sum", ("operation_order",), "normalizes the branch, not the sum"),
        ),
        sizes={
            "base": {"width": 768, "heads": 12, "depth": 12, "vocabulary": 30522, "length": 512}
        },
    ),
    Pair(
        name="generator",
        source="Radford et al. 2015",
        libraries=("torch", "haiku"),
        one=torch_generator,
        other=haiku_generator,
        inputs=Box((6,)),
        bugs=(
            Bug("channels_last_view", ("flatten_order",), "reshapes to [4, 4, C], not [C, 4, 4]"),
            Bug("bilinear", ("upsampling", "bilinear_resize"), "bilinear for nearest upsampling"),
            Bug("slope", ("activation",), "leaky ReLU with slope 0.01 for 0.2"),
            Bug("groups", ("norm_kind",), "8 groups for 4"),
        ),
    ),
    Pair(
        name="inception",
        source="Szegedy et al. 2015",
        libraries=("torch", "nnx"),
        one=lambda: TorchInception,
        other=nnx_inception,
        inputs=Box((8, 8, 3)),
        bugs=(
            Bug(
                "without_padding", ("pooling",), "means of the pixels inside, as TensorFlow has it"
            ),
            Bug("max_branch", ("pooling",), "max-pools where the original averages"),
            Bug(
                "pool_first",
                ("concatenation",),
                "joins the branches the other way round",
            ),
        ),
    ),
)
