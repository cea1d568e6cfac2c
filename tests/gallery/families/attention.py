"""Attention: Perceiver, a transformer with the norms after the sums, mixtures of experts."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

from triglot.core.specs import Box

from ..pair import Bug, Pair


class LinenPerceiver(nn.Module):
    """Jaegle et al. 2021: a few latents ask the pixels, with one head."""

    latents: int = 4
    width: int = 16
    depth: int = 2

    @nn.compact
    def __call__(self, pixels):
        shape = (self.latents, self.width)
        z = self.param("latents", nn.initializers.normal(0.5), shape)
        z = jnp.broadcast_to(z, (len(pixels), *shape))
        for _ in range(self.depth):
            query = nn.Dense(self.width)(nn.LayerNorm()(z))
            x = nn.LayerNorm()(pixels)
            key, value = nn.Dense(self.width)(x), nn.Dense(self.width)(x)
            logits = jnp.einsum("bqd,bkd->bqk", query, key)
            weights = nn.softmax(logits / self.width**0.5)  # counterpart: softmax_queries, unscaled
            z = z + nn.Dense(self.width)(jnp.einsum("bqk,bkd->bqd", weights, value))
            z = z + nn.Dense(self.width)(nn.gelu(nn.Dense(2 * self.width)(nn.LayerNorm()(z))))
        return nn.Dense(5)(z.mean(1))  # counterpart: mean_features


class EquinoxPerceiverBlock(eqx.Module):
    norms: list[eqx.nn.LayerNorm]
    layers: list[eqx.nn.Linear]
    bug: str = eqx.field(static=True)

    def __init__(self, width, channels, bug, key):
        keys = jax.random.split(key, 6)
        self.norms = [eqx.nn.LayerNorm(each, 1e-6) for each in (width, channels, width)]
        sizes = [(width, width), (channels, width), (channels, width), (width, width)]
        sizes += [(width, 2 * width), (2 * width, width)]
        layers = zip(sizes, keys, strict=True)
        self.layers = [eqx.nn.Linear(*size, key=each) for size, each in layers]
        self.bug = bug

    def __call__(self, z, pixels):
        query, key, value, out, expand, project = map(jax.vmap, self.layers)
        normed, read, normed2 = map(jax.vmap, self.norms)
        x = read(pixels)
        logits = query(normed(z)) @ key(x).T
        if self.bug != "unscaled":
            logits = logits / z.shape[-1] ** 0.5
        axis = 0 if self.bug == "softmax_queries" else -1  # planted: softmax_queries
        weights = jax.nn.softmax(logits, axis)  # planted: softmax_queries, unscaled
        z = z + out(weights @ value(x))
        return z + project(jax.nn.gelu(expand(normed2(z))))


class EquinoxPerceiver(eqx.Module):
    latents: jax.Array
    blocks: list[EquinoxPerceiverBlock]
    head: eqx.nn.Linear
    bug: str = eqx.field(static=True)

    def __init__(self, latents, width, depth, bug, key):
        keys = jax.random.split(key, depth + 2)
        self.latents = 0.5 * jax.random.normal(keys[0], (latents, width))
        self.blocks = [EquinoxPerceiverBlock(width, 6, bug, each) for each in keys[2:]]
        self.head = eqx.nn.Linear(width, 5, key=keys[1])
        self.bug = bug

    def __call__(self, pixels):
        z = self.latents
        for block in self.blocks:
            z = block(z, pixels)
        pooled = z.sum(0) if self.bug == "mean_features" else z.mean(0)  # planted: mean_features
        return self.head(pooled)


def equinox_perceiver(latents=4, width=16, depth=2, bug=""):
    return lambda key: EquinoxPerceiver(latents, width, depth, bug, key)


def haiku_post_norm(width=16, heads=2, depth=2):
    """Vaswani et al. 2017, the encoder, with positions by sine and cosine."""

    def attention(x, index):
        init = hk.initializers.VarianceScaling()
        layer = hk.MultiHeadAttention(heads, width // heads, w_init=init, name=f"attention_{index}")
        return layer(x, x, x)

    def norm(x):
        return hk.LayerNorm(-1, True, True)(x)

    def network(x):
        x = hk.Linear(width, name="embed")(x)
        x = x + sinusoids(x.shape[1], width)  # counterpart: positions_from_one, interleaved
        for index in range(depth):
            x = norm(x + attention(x, index))  # counterpart: pre_norm
            y = jax.nn.relu(hk.Linear(4 * width, name=f"expand_{index}")(x))
            x = norm(x + hk.Linear(width, name=f"project_{index}")(y))  # counterpart: norm_tokens
        return hk.Linear(5, name="out")(x)

    return network


def sinusoids(length, width):
    """Sine in the first half of the features, cosine in the second."""
    frequencies = 1e4 ** (-jnp.arange(0, width, 2) / width)
    angles = jnp.arange(length)[:, None] * frequencies
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


class LinenPostNorm(nn.Module):
    width: int = 16
    heads: int = 2
    depth: int = 2
    bug: str = ""

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width)(x)
        x = x + self.positions(x.shape[1])  # planted: positions_from_one, interleaved
        for _ in range(self.depth):
            attention = nn.MultiHeadDotProductAttention(self.heads)
            if self.bug == "pre_norm":
                x = x + attention(nn.LayerNorm(1e-5)(x))  # planted: pre_norm
            else:
                x = nn.LayerNorm(1e-5)(x + attention(x))
            y = nn.Dense(self.width)(nn.relu(nn.Dense(4 * self.width)(x)))
            axes = (-2, -1) if self.bug == "norm_tokens" else -1  # planted: norm_tokens
            x = nn.LayerNorm(1e-5, reduction_axes=axes)(x + y)  # planted: norm_tokens
        return nn.Dense(5)(x)

    def positions(self, length):
        first = 1 if self.bug == "positions_from_one" else 0  # planted: positions_from_one
        steps = jnp.arange(first, first + length)[:, None]  # planted: positions_from_one
        angles = steps / 1e4 ** (jnp.arange(0, self.width, 2) / self.width)
        if self.bug == "interleaved":
            both = jnp.stack([jnp.sin(angles), jnp.cos(angles)], -1)  # planted: interleaved
            return both.reshape(length, self.width)  # planted: interleaved
        return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


class LinenSoftExperts(nn.Module):
    """Shazeer et al. 2017, all experts computed: `top` of them are weighted."""

    experts: int = 4
    top: int = 0
    width: int = 16

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width, name="embed")(x)
        logits = nn.Dense(self.experts, use_bias=False, name="gate")(x)
        if self.top:
            least = jnp.sort(logits, -1)[..., -self.top, None]  # counterpart: softmax_first
            logits = jnp.where(logits < least, -jnp.inf, logits)  # counterpart: softmax_first
        gates = nn.softmax(logits)  # counterpart: softmax_tokens, softmax_first
        init = nn.initializers.lecun_normal(batch_axis=0)
        first = self.param("first", init, (self.experts, self.width, 2 * self.width))
        second = self.param("second", init, (self.experts, 2 * self.width, self.width))
        y = nn.silu(jnp.einsum("btd,edh->bteh", x, first))  # counterpart: swish_relu
        y = jnp.einsum("bteh,ehd->bted", y, second)
        x = x + jnp.einsum("bted,bte->btd", y, gates)  # counterpart: no_residual
        return nn.Dense(5, name="out")(x)


def linen_top_experts(experts=4, width=16):
    return LinenSoftExperts(experts, 2, width)


class NNXExperts(nnx.Module):
    def __init__(self, experts, top, width, bug, rngs):
        init = nnx.initializers.lecun_normal(batch_axis=0)
        shapes = (experts, width, 2 * width), (experts, 2 * width, width)
        self.embed = nnx.Linear(5, width, rngs=rngs)
        self.first = nnx.Param(init(rngs.params(), shapes[0]))
        self.second = nnx.Param(init(rngs.params(), shapes[1]))
        self.gate = nnx.Linear(width, experts, use_bias=False, rngs=rngs)
        self.out = nnx.Linear(width, 5, rngs=rngs)
        self.top, self.bug = top, bug

    def __call__(self, x):
        x = self.embed(x)
        logits = self.gate(x)
        if self.bug == "softmax_first":
            logits = nnx.softmax(logits)  # planted: softmax_first
        if self.top:
            _, chosen = jax.lax.top_k(logits, self.top)
            is_chosen = nnx.one_hot(chosen, logits.shape[-1]).sum(-2) > 0
            fill = 0.0 if self.bug == "zero_mask" else -jnp.inf  # planted: zero_mask
            logits = jnp.where(is_chosen, logits, fill)  # planted: zero_mask, softmax_first
        axis = 1 if self.bug == "softmax_tokens" else -1  # planted: softmax_tokens
        gates = nnx.softmax(logits, axis)  # planted: softmax_tokens, softmax_first
        if self.bug == "stopped_gate":
            gates = jax.lax.stop_gradient(gates)  # planted: stopped_gate
        activation = nnx.relu if self.bug == "swish_relu" else nnx.silu
        y = activation(jnp.einsum("btd,edh->bteh", x, self.first[...]))  # planted: swish_relu
        y = jnp.einsum("bteh,ehd->bted", y, self.second[...])
        y = jnp.einsum("bted,bte->btd", y, gates)
        return self.out(y if self.bug == "no_residual" else x + y)  # planted: no_residual


def nnx_soft_experts(experts=4, width=16, bug=""):
    return lambda rngs: NNXExperts(experts, 0, width, bug, rngs)


def nnx_top_experts(experts=4, width=16, bug=""):
    return lambda rngs: NNXExperts(experts, 2, width, bug, rngs)


PAIRS = (
    Pair(
        name="perceiver",
        source="Jaegle et al. 2021",
        libraries=("linen", "equinox"),
        one=LinenPerceiver,
        other=equinox_perceiver,
        inputs=Box((9, 6)),
        bugs=(
            Bug(
                "softmax_queries",
                ("softmax_axis",),
                "softmax over the latents, not over the pixels",
            ),
            Bug("unscaled", ("attention_scale",), "logits without 1 / sqrt(d)"),
            Bug(
                "mean_features",
                ("pooling", "constant"),
                "sums the latents instead of their mean",
            ),
        ),
    ),
    Pair(
        name="post_norm",
        source="Vaswani et al. 2017",
        libraries=("haiku", "linen"),
        one=haiku_post_norm,
        other=LinenPostNorm,
        inputs=Box((6, 5)),
        bugs=(
            Bug("pre_norm", ("operation_order",), "normalizes before attention, not after the sum"),
            Bug("norm_tokens", ("norm_axis",), "normalizes over tokens, too"),
            Bug("positions_from_one", ("position_embedding",), "counts positions from 1"),
            Bug(
                "interleaved",
                ("position_embedding", "flatten_order"),
                "alternates sine and cosine, where the original has two halves",
            ),
        ),
    ),
    Pair(
        name="soft_experts",
        source="Shazeer et al. 2017",
        libraries=("linen", "nnx"),
        one=LinenSoftExperts,
        other=nnx_soft_experts,
        inputs=Box((6, 5)),
        bugs=(
            Bug("softmax_tokens", ("softmax_axis",), "softmax over tokens, not over experts"),
            Bug("swish_relu", ("activation",), "ReLU for SiLU"),
            Bug(
                "no_residual",
                ("residual_source", "operation_missing"),
                "leaves out the sum with the input",
            ),
        ),
    ),
    Pair(
        name="top_experts",
        source="Shazeer et al. 2017",
        libraries=("linen", "nnx"),
        one=linen_top_experts,
        other=nnx_top_experts,
        inputs=Box((6, 5)),
        bugs=(
            Bug(
                "softmax_first",
                ("operation_order", "operation_missing"),
                "applies a softmax before the best are chosen, and again after",
            ),
            Bug("zero_mask", ("attention_mask", "constant"), "masks logits with 0, not with -inf"),
            Bug(
                "stopped_gate",
                ("stop_gradient", "not_trainable"),
                "stops the gradient of the gates",
            ),
        ),
    ),
)
