"""No cause is named where nothing was planted: 35 pairs, published models among them."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import pytest
from brax.training import networks as brax
from flax import nnx
from jumanji.training.networks.transformer_block import TransformerBlock

from tests.diff import networks as nets
from triglot import diff_networks
from triglot.backends import build
from triglot.core.networks.architecture import (
    CNN,
    MLP,
    NetworkSpec,
    RecurrentCell,
    policy_head,
    value_head,
)
from triglot.core.specs import Box

VECTOR, IMAGE, SEQUENCE = Box((4,)), Box((6, 6, 2)), Box((3, 4))


class Pair(NamedTuple):
    """Two networks that compute the same function."""

    one: Any
    other: Any
    inputs: Box = VECTOR


def zoo(backend: str, what: str) -> Callable[[], Any]:
    """Build one of triglot's own architectures from a library's layers."""
    torso = CNN(channels=(3,), kernel_size=3, hidden_sizes=(8,)) if what == "cnn" else MLP((8,))
    cell = RecurrentCell(what, 4) if what in ("lstm", "gru") else None
    obs = IMAGE if what == "cnn" else VECTOR
    heads = (("logits", policy_head(2)), ("value", value_head()))
    return lambda: build(backend, {"net": NetworkSpec(obs, torso, heads, cell)})


def zoo_pairs() -> dict[str, Pair]:
    libraries = ("haiku", "linen", "nnx", "equinox")
    return {
        f"{what}, {one} and {other}": Pair(
            zoo(one, what), zoo(other, what), IMAGE if what == "cnn" else VECTOR
        )
        for what in ("mlp", "cnn", "lstm", "gru")
        for one, other in itertools.combinations(libraries, 2)
        if not (what == "gru" and one == "haiku")  # another function: see `RecurrentCell`
    }


def haiku_normed(x: jax.Array) -> jax.Array:
    x = hk.LayerNorm(-1, True, True, eps=1e-6)(jax.nn.relu(hk.Linear(8)(x)))
    return hk.Linear(2)(x)


def haiku_convolutions(x: jax.Array) -> jax.Array:
    x = jax.nn.relu(hk.Conv2D(3, 3, stride=2)(x))
    return jax.nn.relu(hk.Conv2D(4, 2)(x))


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


class EquinoxBlock(eqx.Module):
    """The block of jumanji, from Equinox's layers."""

    attention: eqx.nn.MultiheadAttention
    norms: list[eqx.nn.LayerNorm]
    layers: list[eqx.nn.Linear]

    def __init__(self, key: jax.Array) -> None:
        own, first, second = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(
            2, 4, use_query_bias=True, use_key_bias=True, use_value_bias=True,
            use_output_bias=True, key=own,
        )  # fmt: skip
        self.norms = [eqx.nn.LayerNorm(4), eqx.nn.LayerNorm(4)]
        self.layers = [eqx.nn.Linear(4, 8, key=first), eqx.nn.Linear(8, 4, key=second)]

    def __call__(self, x: jax.Array) -> jax.Array:
        h = jax.vmap(self.norms[0])(x + self.attention(x, x, x))
        out = h
        for layer in self.layers:
            out = jax.nn.relu(jax.vmap(layer)(out))
        return jax.vmap(self.norms[1])(out + h)


class LinenAttention(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(2)(nn.SelfAttention(num_heads=2)(x))


class NNXAttention(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
        self.out = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.out(self.attention(x))


class LinenResidual(nn.Module):
    """Convolution and batch normalization, twice, around a skip connection."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        h = nn.relu(nn.BatchNorm(not train)(nn.Conv(2, (3, 3))(x)))
        h = nn.BatchNorm(not train)(nn.Conv(2, (3, 3))(h))
        return nn.Dense(2)(nn.relu(h + x).reshape(x.shape[0], -1))


class NNXResidual(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Conv(2, 2, (3, 3), rngs=rngs)
        self.first_norm = nnx.BatchNorm(2, rngs=rngs)
        self.second = nnx.Conv(2, 2, (3, 3), rngs=rngs)
        self.second_norm = nnx.BatchNorm(2, rngs=rngs)
        self.out = nnx.Linear(72, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        h = jax.nn.relu(self.first_norm(self.first(x)))
        h = self.second_norm(self.second(h))
        return self.out(jax.nn.relu(h + x).reshape(x.shape[0], -1))


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
    "jumanji's block and Linen": Pair(jumanji_block, LinenBlock(), SEQUENCE),
    "attention, Linen and NNX": Pair(LinenAttention(), NNXAttention, SEQUENCE),
    "residual block, Linen and NNX": Pair(LinenResidual(), NNXResidual, IMAGE),
    "brax's CNN and Equinox": Pair(brax_convolutions(), EquinoxConvolutions, IMAGE),
    "actor and critic, in another order": Pair(
        nets.ActorCritic(branchwise=True), nets.ActorCritic(branchwise=False)
    ),
    "dropout, Linen and Haiku": Pair(nets.LinenDropout(), nets.haiku_dropout(0.5)),
    "jumanji's block and Equinox": Pair(jumanji_block, EquinoxBlock, SEQUENCE),
    "brax's MLP and eqx.nn.MLP": Pair(brax.MLP([8, 2]), nets.equinox_mlp),
    "brax's MLP and NNX": Pair(brax.MLP([8, 2]), nets.NNXMLP),
    "brax's normed MLP and Haiku": Pair(brax.MLP([8, 2], layer_norm=True), haiku_normed),
    "brax's CNN and Haiku": Pair(brax_convolutions(), haiku_convolutions, IMAGE),
    "hk.nets.ResNet, in a module": Pair(haiku_resnet, haiku_resnet_in_a_module, Box((8, 8, 2))),
    **zoo_pairs(),
}
QUICK = list(PAIRS)[:4]  # all others take seconds each, recurrent ones minutes


@pytest.mark.slow
@pytest.mark.covering(2)
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PAIRS]
)
@pytest.mark.library_promotion("norms, attention and dropout broadcast and promote")
def test_no_cause_is_named(case: str) -> None:
    report = diff_networks(*PAIRS[case])
    assert [cause for cause in report.causes if cause.name != "initializer"] == []
    assert report.verdict in ("identical", "equivalent"), str(report)
    assert report.first_difference is None


def test_there_are_many_pairs() -> None:
    assert len(PAIRS) >= 30
    assert len(QUICK) == 4 and set(QUICK) <= PAIRS.keys()
