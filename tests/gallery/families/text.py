"""Text: GPT-2, a model with tied embeddings, a convolutional classifier."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

from triglot.backends.keras.importing import import_keras
from triglot.core.specs import Box

from ..pair import Bug, Pair

keras = import_keras()
kl = keras.layers


class EquinoxGPTBlock(eqx.Module):
    ln_1: eqx.nn.LayerNorm
    c_attn: eqx.nn.Linear
    c_proj: eqx.nn.Linear
    ln_2: eqx.nn.LayerNorm
    c_fc: eqx.nn.Linear
    mlp_proj: eqx.nn.Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width, heads, key):
        keys = jax.random.split(key, 4)
        self.ln_1, self.ln_2 = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        self.c_attn = eqx.nn.Linear(width, 3 * width, key=keys[0])
        self.c_proj = eqx.nn.Linear(width, width, key=keys[1])
        self.c_fc = eqx.nn.Linear(width, 4 * width, key=keys[2])
        self.mlp_proj = eqx.nn.Linear(4 * width, width, key=keys[3])
        self.heads = heads

    def __call__(self, x):
        length, width = x.shape
        qkv = jax.vmap(self.c_attn)(jax.vmap(self.ln_1)(x))
        split = (length, self.heads, width // self.heads)
        q, k, v = (each.reshape(split) for each in jnp.split(qkv, 3, -1))  # counterpart: heads
        logits = jnp.einsum("qhd,khd->hqk", q, k)
        logits = logits / jnp.sqrt(width // self.heads)  # counterpart: scale_width
        mask = jnp.tril(jnp.ones((length, length), bool))  # counterpart: mask_offset
        logits = jnp.where(mask, logits, -jnp.inf)  # counterpart: mask_offset, scale_width
        y = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(logits), v).reshape(length, width)
        x = x + jax.vmap(self.c_proj)(y)  # counterpart: transposed
        y = jax.nn.gelu(jax.vmap(self.c_fc)(jax.vmap(self.ln_2)(x)))  # counterpart: gelu_exact
        return x + jax.vmap(self.mlp_proj)(y)


class EquinoxGPT(eqx.Module):
    """Radford et al. 2019."""

    wte: jax.Array
    wpe: jax.Array
    blocks: list[EquinoxGPTBlock]
    ln_f: eqx.nn.LayerNorm

    def __init__(self, width, heads, depth, vocabulary, length, key):
        keys = jax.random.split(key, depth + 2)
        self.wte = 0.02 * jax.random.normal(keys[0], (vocabulary, width))
        self.wpe = 0.02 * jax.random.normal(keys[1], (length, width))
        self.blocks = [EquinoxGPTBlock(width, heads, each) for each in keys[2:]]
        self.ln_f = eqx.nn.LayerNorm(width)

    def __call__(self, tokens):
        x = self.wte[tokens] + self.wpe[: len(tokens)]  # counterpart: positions_plus_one
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.ln_f)(x) @ self.wte.T  # counterpart: untied


def equinox_gpt(width=16, heads=2, depth=2, vocabulary=40, length=8):
    return lambda key: EquinoxGPT(width, heads, depth, vocabulary, length, key)


def jax_gpt(width=16, heads=2, depth=2, vocabulary=40, length=8, bug=""):
    """GPT-2 as functions of a dictionary of parameters."""

    def init(key):
        keys = iter(jax.random.split(key, 4 * depth + 3))

        def normal(*shape):
            return 0.02 * jax.random.normal(next(keys), shape)

        def linear(inputs, outputs):
            return {"w": normal(inputs, outputs), "b": jnp.zeros(outputs)}

        def norm():
            return {"g": jnp.ones(width), "b": jnp.zeros(width)}

        params: dict[str, Any] = {
            "wte": normal(vocabulary, width),
            "wpe": normal(length, width),
        }
        params["blocks"] = [
            {
                "ln_1": norm(),
                "attn": {"c_attn": linear(width, 3 * width), "c_proj": linear(width, width)},
                "ln_2": norm(),
                "mlp": {"c_fc": linear(width, 4 * width), "c_proj": linear(4 * width, width)},
            }
            for _ in range(depth)
        ]
        params["ln_f"] = norm()
        if bug == "untied":
            params["lm_head"] = normal(vocabulary, width)
        return params

    def dense(p, x):
        return x @ p["w"] + p["b"]

    def layer_norm(p, x):
        mean = x.mean(-1, keepdims=True)
        variance = x.var(-1, keepdims=True)
        return p["g"] * (x - mean) / jnp.sqrt(variance + 1e-5) + p["b"]

    def attention(p, x):
        size = width // heads
        qkv = dense(p["c_attn"], x)
        if bug == "heads":
            parts = qkv.reshape(*x.shape[:2], heads, 3, size)  # planted: heads
            q, k, v = parts[..., 0, :], parts[..., 1, :], parts[..., 2, :]  # planted: heads
        else:
            q, k, v = (e.reshape(*x.shape[:2], heads, size) for e in jnp.split(qkv, 3, -1))
        over = width if bug == "scale_width" else size  # planted: scale_width
        logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) / over**0.5  # planted: scale_width
        offset = 1 if bug == "mask_offset" else 0  # planted: mask_offset
        mask = jnp.tril(jnp.ones(logits.shape[-2:], bool), offset)  # planted: mask_offset
        weights = jax.nn.softmax(jnp.where(mask, logits, -jnp.inf))  # planted: mask_offset
        y = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
        y = y.reshape(x.shape)
        if bug == "transposed":
            return y @ p["c_proj"]["w"].T + p["c_proj"]["b"]  # planted: transposed
        return dense(p["c_proj"], y)

    def apply(params, tokens):
        first = 1 if bug == "positions_plus_one" else 0  # planted: positions_plus_one
        positions = params["wpe"][first : first + tokens.shape[1]]  # planted: positions_plus_one
        x = params["wte"][tokens] + positions  # planted: positions_plus_one
        for p in params["blocks"]:
            x = x + attention(p["attn"], layer_norm(p["ln_1"], x))
            y = dense(p["mlp"]["c_fc"], layer_norm(p["ln_2"], x))
            y = jax.nn.gelu(y, approximate=bug != "gelu_exact")  # planted: gelu_exact
            x = x + dense(p["mlp"]["c_proj"], y)
        head = params["lm_head" if bug == "untied" else "wte"]  # planted: untied
        return layer_norm(params["ln_f"], x) @ head.T  # planted: untied

    return init, apply


def haiku_bigram(width=16, vocabulary=40):
    """Press & Wolf 2017: the embedding gives the logits, too."""

    def network(tokens):
        embed = hk.Embed(vocabulary, width)
        x = embed(tokens) * width**0.5  # counterpart: embed_unscaled
        x = hk.LayerNorm(-1, True, True)(x + jnp.tanh(hk.Linear(width)(x)))  # counterpart: half
        logits = x @ embed.embeddings.T  # counterpart: two_tables
        return 30.0 * jnp.tanh(logits / 30.0)  # counterpart: soft_cap

    return network


class LinenBigram(nn.Module):
    width: int = 16
    vocabulary: int = 40
    bug: str = ""

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(self.vocabulary, self.width)
        x = embed(tokens)
        if self.bug != "embed_unscaled":
            x = x * self.width**0.5  # planted: embed_unscaled
        dtype = jnp.bfloat16 if self.bug == "half" else None  # planted: half
        y = jnp.tanh(nn.Dense(self.width, dtype=dtype)(x))  # planted: half
        x = nn.LayerNorm(1e-5)(x + y.astype(x.dtype))  # planted: embed_unscaled
        head = nn.Embed(self.vocabulary, self.width) if self.bug == "two_tables" else embed
        logits = head.attend(x)  # planted: two_tables
        cap = 50.0 if self.bug == "soft_cap" else 30.0  # planted: soft_cap
        return cap * jnp.tanh(logits / cap)  # planted: soft_cap


def keras_text_cnn(width=16, filters=8, vocabulary=40, length=8):
    """Kim 2014: convolutions of several widths, each pooled over time."""
    inputs = keras.Input((length - 1,), dtype="int32")
    x = kl.Embedding(vocabulary, width)(inputs)
    pooled = []
    for size in (2, 3, 4):
        y = kl.Conv1D(filters, size, activation="relu")(x)
        pooled.append(kl.GlobalMaxPooling1D()(y))  # counterpart: pool_average, same_width
    x = kl.Concatenate()(pooled)  # counterpart: reversed_widths
    return keras.Model(inputs, kl.Dense(3, activation="softmax")(x))  # counterpart: log_softmax


class NNXTextCNN(nnx.Module):
    def __init__(self, width, filters, vocabulary, bug, rngs):
        padding = "SAME" if bug == "same_width" else "VALID"  # planted: same_width
        self.embed = nnx.Embed(vocabulary, width, rngs=rngs)
        self.convs = nnx.List(
            nnx.Conv(width, filters, (size,), padding=padding, rngs=rngs) for size in (2, 3, 4)
        )
        self.out = nnx.Linear(3 * filters, 3, rngs=rngs)
        self.bug = bug

    def __call__(self, tokens):
        x = self.embed(tokens)
        maps = [nnx.relu(conv(x)) for conv in self.convs]  # planted: same_width
        if self.bug == "pool_average":
            pooled = [y.mean(1) for y in maps]  # planted: pool_average
        else:
            pooled = [y.max(1) for y in maps]
        if self.bug == "reversed_widths":
            pooled = pooled[::-1]  # planted: reversed_widths
        x = self.out(jnp.concatenate(pooled, -1))  # planted: reversed_widths
        last = nnx.log_softmax if self.bug == "log_softmax" else nnx.softmax
        return last(x)  # planted: log_softmax


def nnx_text_cnn(width=16, filters=8, vocabulary=40, length=8, bug=""):
    return lambda rngs: NNXTextCNN(width, filters, vocabulary, bug, rngs)


def tokens(length=8, vocabulary=40, **_):
    """Return the spec of a text that is shorter than the table of positions."""
    return Box((min(length - 1, 63),), "int32", 0, vocabulary - 1)


GPT_BUGS = {
    "heads": (("attention_heads",), "splits heads first, then queries, keys and values"),
    "scale_width": (("attention_scale",), "divides logits by the root of the whole width"),
    "mask_offset": (("causal_mask_offset", "attention_mask"), "shows each token the next one"),
    "gelu_exact": (("activation",), "exact GELU for that by tanh"),
    "positions_plus_one": (("position_embedding",), "counts positions from 1"),
    "transposed": (("kernel_layout",), "transposes the matrix of the output"),
    "untied": (
        ("weight_sharing", "unpaired_parameter"),
        "has a matrix of its own for the logits",
    ),
}
PAIRS = (
    Pair(
        name="gpt2",
        source="Radford et al. 2019",
        libraries=("equinox", "jax"),
        one=equinox_gpt,
        other=jax_gpt,
        inputs=tokens,
        bugs=tuple(
            Bug(name=name, causes=causes, planted=planted)
            for name, (causes, planted) in GPT_BUGS.items()
        ),
        sizes={
            "small": {"width": 768, "heads": 12, "depth": 12, "vocabulary": 50257, "length": 1024}
        },
    ),
    Pair(
        name="tied_lm",
        source="Press & Wolf 2017",
        libraries=("haiku", "linen"),
        one=haiku_bigram,
        other=LinenBigram,
        inputs=tokens,
        bugs=(
            Bug(
                "embed_unscaled",
                ("constant", "operation_missing"),
                "embeddings without the factor sqrt(width)",
            ),
            Bug("two_tables", ("weight_sharing",), "a second table gives the logits"),
            Bug("half", ("dtype",), "multiplies in bfloat16"),
            Bug("soft_cap", ("constant",), "caps logits at 50, not at 30"),
        ),
    ),
    Pair(
        name="text_cnn",
        source="Kim 2014",
        libraries=("keras", "nnx"),
        one=keras_text_cnn,
        other=nnx_text_cnn,
        inputs=tokens,
        bugs=(
            Bug("same_width", ("padding",), "SAME for VALID, before the maximum over time"),
            Bug("pool_average", ("pooling",), "averages over time"),
            Bug(
                "reversed_widths",
                ("concatenation",),
                "joins the widest filters first",
            ),
            Bug("log_softmax", ("activation", "operation_missing"), "log-softmax for softmax"),
        ),
    ),
)
