"""A ResNet, a vision transformer and a GPT-2, small, in Equinox."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

WIDTHS = (8, 16)


def conv(inputs: int, outputs: int, size: int, stride: int, key: jax.Array) -> eqx.nn.Conv2d:
    padding = size // 2
    return eqx.nn.Conv2d(inputs, outputs, size, stride, padding, use_bias=False, key=key)


def norm(width: int) -> eqx.nn.BatchNorm:
    return eqx.nn.BatchNorm(width, "batch", eps=1e-5, momentum=0.9, mode="batch")


class Block(eqx.Module):
    conv1: eqx.nn.Conv2d
    bn1: eqx.nn.BatchNorm
    conv2: eqx.nn.Conv2d
    bn2: eqx.nn.BatchNorm
    downsample: tuple[eqx.nn.Conv2d, eqx.nn.BatchNorm] | None

    def __init__(self, inputs: int, width: int, stride: int, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.conv1, self.bn1 = conv(inputs, width, 3, stride, keys[0]), norm(width)
        self.conv2, self.bn2 = conv(width, width, 3, 1, keys[1]), norm(width)
        self.downsample = None
        if stride != 1 or inputs != width:
            self.downsample = conv(inputs, width, 1, stride, keys[2]), norm(width)

    def __call__(self, images: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        features, state = self.bn1(self.conv1(images), state)
        features, state = self.bn2(self.conv2(jax.nn.relu(features)), state)
        if self.downsample is not None:
            images, state = self.downsample[1](self.downsample[0](images), state)
        return jax.nn.relu(features + images), state


class ResNet(eqx.Module):
    conv1: eqx.nn.Conv2d
    bn1: eqx.nn.BatchNorm
    layers: list[list[Block]]
    fc: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.conv1, self.bn1 = conv(3, WIDTHS[0], 3, 1, keys[0]), norm(WIDTHS[0])
        self.layers, inputs = [], WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            block_keys = jax.random.split(jax.random.fold_in(keys[1], stage), 2)
            first = Block(inputs, width, 2 if stage else 1, block_keys[0])
            self.layers.append([first, Block(width, width, 1, block_keys[1])])
            inputs = width
        self.fc = eqx.nn.Linear(inputs, 10, key=keys[2])

    def __call__(self, image: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        features, state = self.bn1(self.conv1(jnp.moveaxis(image, -1, 0)), state)
        features = jax.nn.relu(features)
        for blocks in self.layers:
            for block in blocks:
                features, state = block(features, state)
        return self.fc(features.mean((1, 2))), state


class Encoder(eqx.Module):
    ln_1: eqx.nn.LayerNorm
    attn: eqx.nn.MultiheadAttention
    ln_2: eqx.nn.LayerNorm
    mlp: list[eqx.nn.Linear]
    causal: bool = eqx.field(static=True)

    def __init__(self, width: int, epsilon: float, causal: bool, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        every = dict.fromkeys(("query", "key", "value", "output"), True)
        given: Any = {f"use_{name}_bias": flag for name, flag in every.items()}
        self.ln_1 = eqx.nn.LayerNorm(width, epsilon)
        self.attn = eqx.nn.MultiheadAttention(2, width, **given, key=keys[0])
        self.ln_2 = eqx.nn.LayerNorm(width, epsilon)
        self.mlp = [
            eqx.nn.Linear(width, 4 * width, key=keys[1]),
            eqx.nn.Linear(4 * width, width, key=keys[2]),
        ]
        self.causal = causal

    def __call__(self, tokens: jax.Array) -> jax.Array:
        mask = jnp.tril(jnp.ones((len(tokens), len(tokens)), bool)) if self.causal else None
        features = jax.vmap(self.ln_1)(tokens)
        tokens = tokens + self.attn(features, features, features, mask)
        features = jax.vmap(self.mlp[0])(jax.vmap(self.ln_2)(tokens))
        return tokens + jax.vmap(self.mlp[1])(jax.nn.gelu(features, approximate=False))


class ViT(eqx.Module):
    embed: eqx.nn.Conv2d
    class_token: jax.Array
    positions: jax.Array
    blocks: list[Encoder]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 6)
        self.embed = eqx.nn.Conv2d(3, 16, 8, 8, key=keys[0])
        self.class_token = 0.02 * jax.random.normal(keys[1], (1, 1, 16))
        self.positions = 0.02 * jax.random.normal(keys[2], (1, 17, 16))
        self.blocks = [Encoder(16, 1e-6, False, each) for each in keys[3:5]]
        self.norm = eqx.nn.LayerNorm(16, 1e-6)
        self.head = eqx.nn.Linear(16, 10, key=keys[5])

    def __call__(self, image: jax.Array) -> jax.Array:
        patches = self.embed(jnp.moveaxis(image, -1, 0)).reshape(16, -1).T
        tokens = jnp.concatenate([self.class_token[0], patches]) + self.positions[0]
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(self.norm(tokens[0]))


class GPT(eqx.Module):
    wte: eqx.nn.Embedding
    wpe: eqx.nn.Embedding
    h: list[Encoder]
    ln_f: eqx.nn.LayerNorm

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 4)
        self.wte = eqx.nn.Embedding(40, 16, key=keys[0])
        self.wpe = eqx.nn.Embedding(12, 16, key=keys[1])
        self.h = [Encoder(16, 1e-5, True, each) for each in keys[2:]]
        self.ln_f = eqx.nn.LayerNorm(16, 1e-5)

    def __call__(self, ids: jax.Array) -> jax.Array:
        tokens = self.wte.weight[ids] + self.wpe.weight[: len(ids)]
        for block in self.h:
            tokens = block(tokens)
        return jax.vmap(self.ln_f)(tokens) @ self.wte.weight.T


resnet, vit, gpt = ResNet, ViT, GPT
