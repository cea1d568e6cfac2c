"""No cause is named where nothing was planted, in published models too; the gallery has more."""

from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import pytest
from brax.training import networks as brax
from jumanji.training.networks.transformer_block import TransformerBlock

from tests.diff import networks as nets
from triglot import diff_networks
from triglot.core.specs import Box

VECTOR, IMAGE, SEQUENCE = Box((4,)), Box((6, 6, 2)), Box((3, 4))


class Pair(NamedTuple):
    """Two networks that compute the same function."""

    one: Any
    other: Any
    inputs: Box = VECTOR


class EquinoxConvolutions(eqx.Module):
    layers: list[eqx.nn.Conv2d]

    def __init__(self, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.layers = [
            eqx.nn.Conv2d(2, 3, 3, 2, padding="SAME", key=first),
            eqx.nn.Conv2d(3, 4, 2, padding="SAME", key=second),
        ]

    def __call__(self, x: jax.Array) -> jax.Array:
        x = jnp.moveaxis(x, -1, 0)
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return jnp.moveaxis(x, 0, -1)


def brax_convolutions() -> nn.Module:
    return brax.CNN(num_filters=(3, 4), kernel_sizes=((3, 3), (2, 2)), strides=((2, 2), (1, 1)))


def jumanji_block(x: jax.Array) -> jax.Array:
    block = TransformerBlock(num_heads=2, key_size=2, mlp_units=(8,), w_init_scale=1.0)
    return block(x, x, x)


class LinenBlock(nn.Module):
    """The block of jumanji, from Linen's layers."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        h = x + nn.MultiHeadDotProductAttention(num_heads=2)(x, x, x)
        h = nn.LayerNorm(epsilon=1e-5)(h)
        out = nn.relu(nn.Dense(4)(nn.relu(nn.Dense(8)(h))))
        return nn.LayerNorm(epsilon=1e-5)(out + h)


BATCH_NORM = {"decay_rate": 0.9}


def haiku_resnet(x: jax.Array, is_training: bool) -> jax.Array:
    resnet = hk.nets.ResNet(
        (1, 1, 1, 1), 2, bn_config=BATCH_NORM, channels_per_group=(4, 4, 4, 4),
        bottleneck=False, resnet_v2=True,
    )  # fmt: skip
    return resnet(x, is_training)


def haiku_resnet_in_a_module(x: jax.Array, is_training: bool) -> jax.Array:
    class Wrapped(hk.Module):
        def __call__(self, x: jax.Array) -> jax.Array:
            return haiku_resnet(x, is_training)

    return Wrapped("my_model")(x)


PAIRS: dict[str, Pair] = {
    "hk.nets.MLP and eqx.nn.MLP": Pair(nets.haiku_mlp, nets.equinox_mlp),
    "brax's MLP and hk.nets.MLP": Pair(brax.MLP([8, 2]), nets.haiku_mlp),
    "brax's MLP and NNX": Pair(brax.MLP([8, 2]), nets.NNXMLP),
    "brax's CNN and Equinox": Pair(brax_convolutions(), EquinoxConvolutions, IMAGE),
    "jumanji's block and Linen": Pair(jumanji_block, LinenBlock(), SEQUENCE),
    "actor and critic, in another order": Pair(
        nets.ActorCritic(branchwise=True), nets.ActorCritic(branchwise=False)
    ),
    "dropout, Linen and Haiku": Pair(nets.LinenDropout(), nets.haiku_dropout(0.5)),
    "hk.nets.ResNet, in a module": Pair(haiku_resnet, haiku_resnet_in_a_module, Box((8, 8, 2))),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.library_promotion("norms, attention and dropout broadcast and promote")
def test_no_cause_is_named(case: str) -> None:
    report = diff_networks(*PAIRS[case])
    assert [cause for cause in report.causes if cause.name != "initializer"] == []
    assert report.verdict in ("identical", "equivalent"), str(report)
    assert report.first_difference is None
