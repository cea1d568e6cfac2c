"""Transformers with relative positions: LLaMA's rotary embeddings, T5's biases."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from triglot.core.specs import Box

from ..pair import Bug, Pair


def rotate_half(x, base=1e4):
    """Turn each pair of features (i, i + half) by position times frequency; `[B, T, H, D]`."""
    half = x.shape[-1] // 2
    frequencies = base ** (-jnp.arange(half) / half)  # counterpart: rotary_base
    angles = jnp.arange(x.shape[1])[:, None] * frequencies
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = jnp.split(x, 2, -1)  # counterpart: rotary_pairs
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)  # counterpart: rotary_pairs


class LinenLlamaBlock(nn.Module):
    heads: int
    groups: int

    @nn.compact
    def __call__(self, x):
        batch, length, width = x.shape
        size = width // self.heads

        def dense(outputs, name):
            return nn.Dense(outputs, use_bias=False, name=name)

        y = nn.RMSNorm(epsilon=1e-5, name="attention_norm")(x)  # counterpart: rms_epsilon
        q = dense(width, "wq")(y).reshape(batch, length, self.heads, size)
        k = dense(self.groups * size, "wk")(y).reshape(batch, length, self.groups, size)
        v = dense(self.groups * size, "wv")(y).reshape(batch, length, self.groups, size)
        q, k = rotate_half(q), rotate_half(k)
        k, v = (jnp.repeat(each, self.heads // self.groups, 2) for each in (k, v))
        logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) / size**0.5  # counterpart: tiled_groups
        logits = jnp.where(jnp.tril(jnp.ones((length, length), bool)), logits, -jnp.inf)
        y = jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(logits), v)  # counterpart: tiled_groups
        x = x + dense(width, "wo")(y.reshape(batch, length, width))
        y = nn.RMSNorm(epsilon=1e-5, name="ffn_norm")(x)
        gate, up = dense(3 * width, "w1")(y), dense(3 * width, "w3")(y)
        return x + dense(width, "w2")(nn.silu(gate) * up)  # counterpart: gate_swap


class LinenLlama(nn.Module):
    """Touvron et al. 2023, with grouped queries."""

    width: int = 16
    heads: int = 4
    groups: int = 2
    depth: int = 2
    vocabulary: int = 40
    length: int = 8

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        for index in range(self.depth):
            x = LinenLlamaBlock(self.heads, self.groups, name=f"layers_{index}")(x)
        x = nn.RMSNorm(epsilon=1e-5, name="norm")(x)  # counterpart: centred
        return nn.Dense(self.vocabulary, use_bias=False, name="output")(x)


class RMSNorm(eqx.Module):
    weight: jax.Array
    epsilon: float = eqx.field(static=True)
    centred: bool = eqx.field(static=True)

    def __init__(self, width, epsilon=1e-5, centred=False):
        self.weight, self.epsilon, self.centred = jnp.ones(width), epsilon, centred

    def __call__(self, x):
        x = x - x.mean(-1, keepdims=True) if self.centred else x  # planted: centred
        mean = jnp.mean(jnp.square(x), -1, keepdims=True)
        return x * jax.lax.rsqrt(mean + self.epsilon) * self.weight  # planted: rms_epsilon, centred


class EquinoxLlamaBlock(eqx.Module):
    attention_norm: RMSNorm
    wq: eqx.nn.Linear
    wk: eqx.nn.Linear
    wv: eqx.nn.Linear
    wo: eqx.nn.Linear
    ffn_norm: RMSNorm
    w1: eqx.nn.Linear
    w3: eqx.nn.Linear
    w2: eqx.nn.Linear
    heads: int = eqx.field(static=True)
    groups: int = eqx.field(static=True)
    bug: str = eqx.field(static=True)

    def __init__(self, width, heads, groups, bug, key):
        keys = jax.random.split(key, 7)

        def linear(index, inputs, outputs):
            return eqx.nn.Linear(inputs, outputs, use_bias=False, key=keys[index])

        epsilon = 1e-3 if bug == "rms_epsilon" else 1e-5  # planted: rms_epsilon
        self.attention_norm, self.ffn_norm = RMSNorm(width, epsilon), RMSNorm(width)
        self.wq, self.wo = linear(0, width, width), linear(1, width, width)
        shared = groups * width // heads
        self.wk, self.wv = linear(2, width, shared), linear(3, width, shared)
        self.w1, self.w3 = linear(4, width, 3 * width), linear(5, width, 3 * width)
        self.w2 = linear(6, 3 * width, width)
        self.heads, self.groups, self.bug = heads, groups, bug

    def __call__(self, x):
        y = jax.vmap(self.attention_norm)(x)  # planted: rms_epsilon
        size = x.shape[-1] // self.heads
        q, k, v = (
            jax.vmap(each)(y).reshape(len(x), -1, size) for each in (self.wq, self.wk, self.wv)
        )
        q, k, times = self.rotated(q), self.rotated(k), self.heads // self.groups
        if self.bug == "tiled_groups":
            k, v = jnp.tile(k, (1, times, 1)), jnp.tile(v, (1, times, 1))  # planted: tiled_groups
        else:
            k, v = jnp.repeat(k, times, 1), jnp.repeat(v, times, 1)
        logits = jnp.einsum("qhd,khd->hqk", q, k) / size**0.5  # planted: tiled_groups
        mask = jnp.tril(jnp.ones((len(x), len(x)), bool))
        weights = jax.nn.softmax(jnp.where(mask, logits, -jnp.inf))
        y = jnp.einsum("hqk,khd->qhd", weights, v).reshape(x.shape)  # planted: tiled_groups
        x = x + jax.vmap(self.wo)(y)
        y = jax.vmap(self.ffn_norm)(x)
        gate, up = jax.vmap(self.w1)(y), jax.vmap(self.w3)(y)
        if self.bug == "gate_swap":
            gate, up = up, gate  # planted: gate_swap
        return x + jax.vmap(self.w2)(jax.nn.silu(gate) * up)  # planted: gate_swap

    def rotated(self, x):
        """Turn pairs of features as complex numbers."""
        half = x.shape[-1] // 2
        base = 5e5 if self.bug == "rotary_base" else 1e4  # planted: rotary_base
        angles = jnp.arange(len(x))[:, None] * base ** (-jnp.arange(half) / half)
        turns = jnp.exp(1j * angles)[:, None]  # planted: rotary_base
        if self.bug == "rotary_pairs":
            z = turns * (x[..., ::2] + 1j * x[..., 1::2])  # planted: rotary_pairs
            return jnp.stack([z.real, z.imag], -1).reshape(x.shape)  # planted: rotary_pairs
        z = turns * (x[..., :half] + 1j * x[..., half:])
        return jnp.concatenate([z.real, z.imag], -1)


class EquinoxLlama(eqx.Module):
    embed: eqx.nn.Embedding
    layers: list[EquinoxLlamaBlock]
    norm: RMSNorm
    output: eqx.nn.Linear

    def __init__(self, width, heads, groups, depth, vocabulary, bug, key):
        keys = jax.random.split(key, depth + 2)
        self.embed = eqx.nn.Embedding(vocabulary, width, key=keys[0])
        self.layers = [EquinoxLlamaBlock(width, heads, groups, bug, each) for each in keys[2:]]
        self.norm = RMSNorm(width, centred=bug == "centred")  # planted: centred
        self.output = eqx.nn.Linear(width, vocabulary, use_bias=False, key=keys[1])

    def __call__(self, tokens):
        x = jax.vmap(self.embed)(tokens)
        for layer in self.layers:
            x = layer(x)
        return jax.vmap(self.output)(jax.vmap(self.norm)(x))  # planted: centred


def equinox_llama(width=16, heads=4, groups=2, depth=2, vocabulary=40, length=8, bug=""):
    return lambda key: EquinoxLlama(width, heads, groups, depth, vocabulary, bug, key)


class LinenT5(nn.Module):
    """Raffel et al. 2020, the encoder: a bias per head and bucket of distances."""

    width: int = 16
    heads: int = 2
    depth: int = 2
    vocabulary: int = 40

    @nn.compact
    def __call__(self, tokens):
        length, size = tokens.shape[1], self.width // self.heads
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        distance = jnp.arange(length) - jnp.arange(length)[:, None]  # counterpart: sign
        buckets = jnp.clip(distance, -4, 4) + 4  # counterpart: bucket_range, sign
        bias = nn.Embed(9, self.heads)(buckets).transpose(2, 0, 1)  # counterpart: bucket_range
        for _ in range(self.depth):
            y = nn.RMSNorm()(x)
            q, k, v = (nn.DenseGeneral((self.heads, size), use_bias=False)(y) for _ in range(3))
            logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) + bias  # counterpart: t5_scaled, sign
            y = jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(logits), v)
            x = x + nn.DenseGeneral(self.width, (-2, -1), use_bias=False)(y)
            y = nn.relu(nn.Dense(4 * self.width, use_bias=False)(nn.RMSNorm()(x)))
            x = x + nn.Dense(self.width, use_bias=False)(y)
        return nn.RMSNorm()(x)


class NNXT5Block(nnx.Module):
    def __init__(self, width, heads, bug, rngs):
        size = width // heads
        self.norm1, self.norm2 = nnx.RMSNorm(width, rngs=rngs), nnx.RMSNorm(width, rngs=rngs)
        self.query, self.key, self.value = (
            nnx.LinearGeneral(width, (heads, size), use_bias=False, rngs=rngs) for _ in range(3)
        )
        self.out = nnx.LinearGeneral((heads, size), width, axis=(-2, -1), use_bias=False, rngs=rngs)
        self.expand = nnx.Linear(width, 4 * width, use_bias=False, rngs=rngs)
        self.project = nnx.Linear(4 * width, width, use_bias=False, rngs=rngs)
        self.bug = bug

    def __call__(self, x, bias):
        y = self.norm1(x)
        q, k, v = self.query(y), self.key(y), self.value(y)
        logits = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        if self.bug == "t5_scaled":
            logits = logits / jnp.sqrt(q.shape[-1])  # planted: t5_scaled
        weights = nnx.softmax(logits + bias)  # planted: sign
        x = x + self.out(jnp.einsum("bhqk,bkhd->bqhd", weights, v))
        return x + self.project(nnx.relu(self.expand(self.norm2(x))))


class NNXT5(nnx.Module):
    def __init__(self, width, heads, depth, vocabulary, bug, rngs):
        self.embed = nnx.Embed(vocabulary, width, rngs=rngs)
        self.bias = nnx.Embed(9, heads, rngs=rngs)
        self.blocks = nnx.List(NNXT5Block(width, heads, bug, rngs) for _ in range(depth))
        self.norm = nnx.RMSNorm(width, rngs=rngs)
        self.bug = bug

    def __call__(self, tokens):
        steps = jnp.arange(tokens.shape[1])
        distance = steps - steps[:, None]
        if self.bug == "sign":
            distance = -distance  # planted: sign
        most = 3 if self.bug == "bucket_range" else 4  # planted: bucket_range
        buckets = jnp.clip(distance, -most, most) + 4  # planted: bucket_range, sign
        bias = self.bias(buckets).transpose(2, 0, 1)  # planted: bucket_range, sign
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, bias)
        return self.norm(x)


def nnx_t5(width=16, heads=2, depth=2, vocabulary=40, bug=""):
    return lambda rngs: NNXT5(width, heads, depth, vocabulary, bug, rngs)


PAIRS = (
    Pair(
        name="llama",
        source="Touvron et al. 2023",
        libraries=("linen", "equinox"),
        one=LinenLlama,
        other=equinox_llama,
        inputs=lambda length=8, vocabulary=40, **_: Box((length,), "int32", 0, vocabulary - 1),
        bugs=(
            Bug(
                "rotary_pairs", ("rotary_convention",), "rotates neighbouring features, not halves"
            ),
            Bug("centred", ("norm_kind",), "subtracts the mean in the last norm"),
            Bug("rotary_base", ("constant", "rotary_convention"), "base 500,000 for 10,000"),
            Bug("tiled_groups", ("attention_heads",), "repeats keys group after group"),
            Bug("gate_swap", ("operand_order", "activation"), "activates the other half of SwiGLU"),
            Bug("rms_epsilon", ("norm_epsilon",), "epsilon 1e-3 in one norm of a block"),
        ),
        sizes={"1b": {"width": 2048, "heads": 32, "groups": 4, "depth": 22, "vocabulary": 32000}},
    ),
    Pair(
        name="t5",
        source="Raffel et al. 2020",
        libraries=("linen", "nnx"),
        one=LinenT5,
        other=nnx_t5,
        inputs=Box((12,), "int32", 0, 39),
        bugs=(
            Bug("t5_scaled", ("attention_scale",), "scales T5's logits"),
            Bug(
                "sign",
                ("position_embedding",),
                "counts distances from the key to the query",
            ),
            Bug(
                "bucket_range",
                ("clip_range", "position_embedding"),
                "clips distances at 3, not at 4",
            ),
        ),
    ),
)
