"""A ResNet, a vision transformer and a GPT-2, small, in Flax Linen."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

WIDTHS = (8, 16)


def norm(train: bool) -> Any:
    return nn.BatchNorm(use_running_average=not train, momentum=0.9, epsilon=1e-5)


class Block(nn.Module):
    width: int
    stride: int

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        strides, padding = (self.stride, self.stride), ((1, 1), (1, 1))
        features = nn.Conv(self.width, (3, 3), strides, padding, use_bias=False)(images)
        features = nn.relu(norm(train)(features))
        features = nn.Conv(self.width, (3, 3), padding=padding, use_bias=False)(features)
        features = norm(train)(features)
        if self.stride != 1 or images.shape[-1] != self.width:
            images = nn.Conv(self.width, (1, 1), strides, use_bias=False, name="Shortcut")(images)
            images = norm(train)(images)
        return nn.relu(features + images)


class ResNet(nn.Module):
    """He et al. 2015, for images of 32 x 32, with two blocks of each width."""

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        padding = ((1, 1), (1, 1))
        features = nn.Conv(WIDTHS[0], (3, 3), padding=padding, use_bias=False, name="Stem")(images)
        features = nn.relu(norm(train)(features))
        for stage, width in enumerate(WIDTHS):
            for index in range(2):
                features = Block(width, 2 if stage and not index else 1)(features, train)
        return nn.Dense(10)(features.mean((1, 2)))


class Encoder(nn.Module):
    """A transformer's layer, with the norms before attention and MLP."""

    width: int
    epsilon: float = 1e-6
    causal: bool = False

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        mask = nn.make_causal_mask(tokens[..., 0]) if self.causal else None
        features = nn.LayerNorm(self.epsilon)(tokens)
        tokens = tokens + nn.MultiHeadDotProductAttention(2)(features, mask=mask)
        features = nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm(self.epsilon)(tokens)), False)
        return tokens + nn.Dense(self.width)(features)


class ViT(nn.Module):
    """Dosovitskiy et al. 2020: patches of 8 x 8, a class token, two layers."""

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        patches = nn.Conv(16, (8, 8), (8, 8), "VALID", name="embed")(images)
        tokens = patches.reshape(patches.shape[0], -1, 16)
        token = self.param("class_token", nn.initializers.normal(0.02), (1, 1, 16))
        tokens = jnp.concatenate([jnp.broadcast_to(token, (len(tokens), 1, 16)), tokens], 1)
        tokens += self.param("positions", nn.initializers.normal(0.02), (1, 17, 16))
        for _ in range(2):
            tokens = Encoder(16)(tokens)
        return nn.Dense(10, name="head")(nn.LayerNorm(1e-6)(tokens)[:, 0])


class GPT(nn.Module):
    """Radford et al. 2019: learned positions, the logits by the embedding's transpose."""

    @nn.compact
    def __call__(self, ids: jax.Array) -> jax.Array:
        embedding = nn.Embed(40, 16)
        tokens = embedding(ids) + nn.Embed(12, 16)(jnp.arange(ids.shape[-1]))[None]
        for _ in range(2):
            tokens = Encoder(16, 1e-5, True)(tokens)
        return embedding.attend(nn.LayerNorm(1e-5)(tokens))


resnet, vit, gpt = ResNet(), ViT(), GPT()
