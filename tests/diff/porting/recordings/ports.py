"""Ports of the recorded models, each with bugs that are planted by name."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp


class Block(nn.Module):
    bugs: tuple[str, ...]

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        def norm(name: str, epsilon: float = 1e-5) -> nn.Module:
            return nn.BatchNorm(not train, epsilon=epsilon, momentum=0.9, name=name)

        first = norm("bn1", 1e-3 if "epsilon" in self.bugs else 1e-5)
        y = nn.Conv(8, (3, 3), use_bias=False, name="conv1")(x)
        y = first(nn.relu(y)) if "order" in self.bugs else nn.relu(first(y))
        y = norm("bn2")(nn.Conv(8, (3, 3), use_bias=False, name="conv2")(y))
        return nn.relu(x + y)


class ResNet(nn.Module):
    bugs: tuple[str, ...] = ()

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        padding = "SAME" if "padding" in self.bugs else 1
        x = nn.Conv(8, (3, 3), strides=2, padding=padding, name="stem")(x)
        x = nn.BatchNorm(not train, epsilon=1e-5, name="norm")(x)
        x = nn.gelu(x, approximate="gelu" in self.bugs)
        x = Block((), name="block_0")(x, train)
        x = Block(self.bugs, name="block_1")(x, train)
        return nn.Dense(5, name="head")(x.mean((1, 2)))


def plain(*bugs: str) -> Any:
    """Make a port in Haiku."""

    def net(x: jax.Array) -> jax.Array:
        x = hk.max_pool(jax.nn.relu(hk.Conv2D(6, 3)(x)), (2, 2, 1), (2, 2, 1), "VALID")
        x = jax.nn.silu(hk.Conv2D(8, 3, stride=2, padding="VALID")(x))
        pads = ((1, 1), (1, 1))
        counts = nn.pool(jnp.ones_like(x), 0.0, jax.lax.add, (3, 3), (1, 1), pads)
        pooled = nn.pool(x, 0.0, jax.lax.add, (3, 3), (1, 1), pads)
        pooled = pooled / counts if "pooling" in bugs else pooled / 9.0
        x = pooled if "flatten" in bugs else pooled.transpose(0, 3, 1, 2)
        x = hk.Linear(10)(x.reshape(x.shape[0], -1))
        x = x if "no activation" in bugs else jax.nn.relu(x)
        return hk.Linear(4)(x)

    return net


def each(layer: Any, x: jax.Array) -> jax.Array:
    return jax.vmap(layer)(x)


class Attention(eqx.Module):
    c_attn: eqx.nn.Linear
    c_proj: eqx.nn.Linear
    bugs: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, key: jax.Array, bugs: tuple[str, ...]) -> None:
        first, second = jax.random.split(key)
        self.c_attn = eqx.nn.Linear(16, 48, key=first)
        self.c_proj = eqx.nn.Linear(16, 16, key=second)
        self.bugs = bugs

    def __call__(self, x: jax.Array) -> jax.Array:
        time = x.shape[0]
        q, k, v = (
            part.reshape(time, 2, 8).transpose(1, 0, 2)
            for part in jnp.split(each(self.c_attn, x), 3, -1)
        )
        logits = q @ k.transpose(0, 2, 1)
        if "scale" not in self.bugs:
            logits = logits / jnp.sqrt(8)
        if "mask" not in self.bugs:
            logits = jnp.where(jnp.tril(jnp.ones((time, time), bool)), logits, -jnp.inf)
        y = (jax.nn.softmax(logits) @ v).transpose(1, 0, 2).reshape(time, 16)
        if "transposed" in self.bugs:
            assert self.c_proj.bias is not None
            return y @ self.c_proj.weight + self.c_proj.bias[None]
        return each(self.c_proj, y)


class Layer(eqx.Module):
    ln_1: eqx.nn.LayerNorm
    ln_2: eqx.nn.LayerNorm
    attn: Attention
    c_fc: eqx.nn.Linear
    c_proj: eqx.nn.Linear
    bugs: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, key: jax.Array, bugs: tuple[str, ...]) -> None:
        keys = jax.random.split(key, 3)
        self.ln_1 = eqx.nn.LayerNorm(16, eps=1e-4 if "epsilon" in bugs else 1e-5)
        self.ln_2 = eqx.nn.LayerNorm(16)
        self.attn = Attention(keys[0], bugs)
        self.c_fc = eqx.nn.Linear(16, 64, key=keys[1])
        self.c_proj = eqx.nn.Linear(64, 16, key=keys[2])
        self.bugs = bugs

    def __call__(self, x: jax.Array) -> jax.Array:
        normed = each(self.ln_1, x)
        x = (normed if "residual" in self.bugs else x) + self.attn(normed)
        y = each(self.c_fc, each(self.ln_2, x))
        return x + each(self.c_proj, jax.nn.gelu(y, approximate="gelu" not in self.bugs))


class GPT(eqx.Module):
    wte: eqx.nn.Embedding
    wpe: eqx.nn.Embedding
    h: list[Layer]
    ln_f: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, key: jax.Array, bugs: tuple[str, ...]) -> None:
        keys = jax.random.split(key, 5)
        self.wte = eqx.nn.Embedding(31, 16, key=keys[0])
        self.wpe = eqx.nn.Embedding(9, 16, key=keys[1])
        self.h = [Layer(keys[2], ()), Layer(keys[3], bugs)]
        self.ln_f = eqx.nn.LayerNorm(16)
        self.head = eqx.nn.Linear(16, 31, use_bias=False, key=keys[4])

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = each(self.wte, tokens) + self.wpe.weight[: tokens.shape[0]]
        for layer in self.h:
            x = layer(x)
        return each(self.head, each(self.ln_f, x))


def gpt(*bugs: str) -> Any:
    """Make a port in Equinox: a function of a key."""

    def make(key: jax.Array) -> GPT:
        return GPT(key, bugs)

    return make


class OfKeras(nn.Module):
    bugs: tuple[str, ...] = ()

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = nn.relu(nn.Conv(8, (3, 3))(x))
        x = nn.BatchNorm(not train, epsilon=1e-5 if "epsilon" in self.bugs else 1e-3)(x)
        padding = ((1, 1), (1, 1)) if "padding" in self.bugs else "SAME"
        x = nn.Conv(8, (3, 3), strides=2, padding=padding)(x)
        x = nn.leaky_relu(x, 0.01 if "slope" in self.bugs else 0.1)
        x = nn.max_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        x = nn.gelu(nn.Dense(16)(x), approximate="gelu" in self.bugs)
        return nn.Dense(4)(nn.LayerNorm(epsilon=1e-3)(x))


def resnet(*bugs: str) -> Any:
    return ResNet(bugs)


def of_keras(*bugs: str) -> Any:
    return OfKeras(bugs)


class Normed(nn.Module):
    bugs: tuple[str, ...] = ()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        epsilon = 1e-3 if "epsilon" in self.bugs else 1e-5
        x = nn.LayerNorm(epsilon=epsilon, name="norm")(nn.Dense(8, name="first")(x))
        return nn.Dense(2, name="out")(nn.gelu(x, approximate="gelu" in self.bugs))


def normed(*bugs: str) -> Any:
    """Make a port in Linen."""
    return Normed(bugs)
