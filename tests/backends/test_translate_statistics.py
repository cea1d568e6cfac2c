"""Running statistics go with their layer's weights, in people's own networks and the zoo's."""

import functools
import itertools
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.extras import skip_missing
from triglot.backends import build
from triglot.backends.equinox import from_equinox
from triglot.backends.haiku import from_haiku
from triglot.backends.keras.lifting import from_keras
from triglot.backends.linen import from_linen
from triglot.backends.nnx import from_nnx
from triglot.backends.torch.lifting import from_torch
from triglot.backends.translate import translate
from triglot.core.errors import TriglotError
from triglot.core.network import Network, Variables
from triglot.core.networks.architecture import (
    BATCH_NORM_EPSILON,
    BATCH_NORM_MOMENTUM,
    MLP,
    NetworkSpec,
    value_head,
)
from triglot.core.specs import Box

OBS = Box((6, 6, 2))
EPSILON = 1e-3


def in_haiku(obs: jax.Array, is_training: bool) -> jax.Array:
    features = hk.Conv2D(4, 3, name="first")(obs)
    norm = hk.BatchNorm(True, True, decay_rate=0.9, eps=EPSILON, name="norm_one")
    features = jax.nn.relu(norm(features, is_training))
    features = hk.Conv2D(8, 3, name="second")(features)
    norm = hk.BatchNorm(False, False, decay_rate=0.9, eps=EPSILON, name="norm_two")
    return hk.Linear(3, name="out")(hk.Flatten()(norm(features, is_training)))


class InLinen(nn.Module):
    @nn.compact
    def __call__(self, obs: jax.Array, train: bool) -> jax.Array:
        given: Any = {"use_running_average": not train, "momentum": 0.9, "epsilon": EPSILON}
        features = nn.Conv(4, (3, 3))(obs)
        features = jax.nn.relu(nn.BatchNorm(**given)(features))
        features = nn.Conv(8, (3, 3))(features)
        features = nn.BatchNorm(**given, use_scale=False, use_bias=False)(features)
        return nn.Dense(3)(features.reshape(features.shape[0], -1))


class InNNX(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        given: Any = {"momentum": 0.9, "epsilon": EPSILON, "rngs": rngs}
        self.blocks = nnx.List([nnx.Conv(2, 4, (3, 3), rngs=rngs), nnx.BatchNorm(4, **given)])
        self.conv = nnx.Conv(4, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, **given, use_scale=False, use_bias=False)
        self.head = nnx.Linear(288, 3, rngs=rngs)

    def __call__(self, obs: jax.Array) -> jax.Array:
        features = jax.nn.relu(self.blocks[1](self.blocks[0](obs)))
        features = self.norm(self.conv(features))
        return self.head(features.reshape(features.shape[0], -1))


class InEquinox(eqx.Module):
    convs: list[eqx.nn.Conv2d]
    norms: dict[str, eqx.nn.BatchNorm]
    out: eqx.nn.Linear

    def __init__(self, key: jax.Array, mode: Any = "batch") -> None:
        keys = jax.random.split(key, 3)
        given: Any = {"momentum": 0.9, "eps": EPSILON, "mode": mode}
        self.convs = [
            eqx.nn.Conv2d(2, 4, 3, padding=1, key=keys[0]),
            eqx.nn.Conv2d(4, 8, 3, padding=1, key=keys[1]),
        ]
        self.norms = {
            "one": eqx.nn.BatchNorm(4, "batch", **given),
            "two": eqx.nn.BatchNorm(8, "batch", channelwise_affine=False, **given),
        }
        self.out = eqx.nn.Linear(288, 3, key=keys[2])

    def __call__(self, obs: jax.Array, state: Any) -> Any:
        features, state = self.norms["one"](self.convs[0](jnp.moveaxis(obs, -1, 0)), state)
        features, state = self.norms["two"](self.convs[1](jax.nn.relu(features)), state)
        return self.out(jnp.ravel(jnp.moveaxis(features, 0, -1))), state


def in_keras() -> Any:
    import keras

    given: Any = {"momentum": 0.9, "epsilon": EPSILON}
    return keras.Sequential([
        keras.layers.Conv2D(4, 3, padding="same"),
        keras.layers.BatchNormalization(**given),
        keras.layers.ReLU(),
        keras.layers.Conv2D(8, 3, padding="same"),
        keras.layers.BatchNormalization(**given, scale=False, center=False),
        keras.layers.Flatten(),
        keras.layers.Dense(3),
    ])  # fmt: skip


def in_torch() -> Any:
    """Flatten the pixels in the order of the other libraries."""
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(2, 4, 3, padding=1)
            self.bn1 = nn.BatchNorm2d(4, eps=EPSILON)
            self.conv2 = nn.Conv2d(4, 8, 3, padding=1)
            self.bn2 = nn.BatchNorm2d(8, eps=EPSILON, affine=False)
            self.fc = nn.Linear(288, 3)

        def forward(self, images: Any) -> Any:
            features = self.bn1(self.conv1(images)).relu()
            features = self.bn2(self.conv2(features))
            return self.fc(features.permute(0, 2, 3, 1).flatten(1))

    return Network()


def moving(key: jax.Array) -> InEquinox:
    return InEquinox(key, mode="ema")


NETWORKS = {
    "haiku": lambda: from_haiku(in_haiku, OBS),
    "linen": lambda: from_linen(InLinen(), OBS),
    "nnx": lambda: from_nnx(InNNX),
    "equinox": lambda: from_equinox(InEquinox),
    "keras": lambda: from_keras(in_keras, OBS),
    "torch": lambda: from_torch(in_torch, OBS, channels_first=True),
    "equinox, ema": lambda: from_equinox(moving),
}
INPUTS = jax.random.normal(jax.random.key(1), (4, *OBS.shape))


@functools.cache
def trained(name: str) -> tuple[Network, Variables]:
    """Build a network, and move its running statistics away from where they start."""
    network = NETWORKS[name]()
    variables = network.init(jax.random.key(0))
    for step in range(3):
        given = 2.0 * jax.random.normal(jax.random.key(step), (16, *OBS.shape)) + 1.0
        _, state = network.apply(variables, given, train=True)
        variables = Variables(params=variables.params, state=state)
    return network, variables


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(NETWORKS, 2)))
@pytest.mark.filterwarnings("ignore:.*parameters are paired by shape and order:Warning")
@pytest.mark.library_promotion("Haiku's and Equinox's batch norm mix ranks")
def test_statistics_follow_the_parameters(one: str, other: str) -> None:
    for name in (one, other):
        skip_missing(name)
    (source, variables), (target, _) = trained(one), trained(other)
    moved = translate(variables, source, target)
    expected, found = (n.apply(v, INPUTS)[0] for n, v in ((source, variables), (target, moved)))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
    # The start's statistics give other outputs, so the comparison above sees them.
    start = Variables(params=moved.params, state=target.init(jax.random.key(0)).state)
    assert not np.allclose(target.apply(start, INPUTS)[0], expected, atol=1e-2)
    # One more update moves the average by its share, and is not the first.
    _, state = target.apply(moved, INPUTS, train=True)
    after = target.apply(Variables(params=moved.params, state=state), INPUTS)[0]
    _, state = source.apply(variables, INPUTS, train=True)
    wanted = source.apply(Variables(params=variables.params, state=state), INPUTS)[0]
    if "ema" not in one + other:  # its training normalizes by the moving average, not the batch's
        np.testing.assert_allclose(after, wanted, rtol=0.2, atol=0.2)


@pytest.mark.slow
def test_the_zoo_gives_its_statistics_to_a_network_of_ones_own() -> None:
    spec = NetworkSpec(Box((3,)), MLP((4,), normalization="batch"), (("value", value_head()),))
    zoo = build("haiku", {"critic": spec}).parts["critic"]

    class Own(nn.Module):
        @nn.compact
        def __call__(self, obs: jax.Array, train: bool) -> dict[str, jax.Array]:
            features = nn.Dense(4)(obs)
            norm = nn.BatchNorm(not train, momentum=BATCH_NORM_MOMENTUM, epsilon=BATCH_NORM_EPSILON)
            features = nn.tanh(norm(features))
            return {"value": nn.Dense(1)(features)[:, 0]}

    start, own = zoo.init(jax.random.key(0)), from_linen(Own(), Box((3,)))
    state = jax.tree.map(lambda array: array + 0.5, start.state)
    variables = Variables(params=start.params, state=state)
    with pytest.warns(match="paired"):
        moved = translate(variables, zoo, own)
    given = jnp.ones((2, 3))
    expected = zoo.apply(variables, given)[0]
    np.testing.assert_allclose(own.apply(moved, given)[0]["value"], expected["value"], rtol=1e-5)


def test_statistics_that_one_network_lacks_are_refused() -> None:
    class Without(nn.Module):
        @nn.compact
        def __call__(self, obs: jax.Array) -> jax.Array:
            return nn.Dense(3)(obs)

    class With(nn.Module):
        @nn.compact
        def __call__(self, obs: jax.Array, train: bool) -> jax.Array:
            norm = nn.BatchNorm(not train, use_scale=False, use_bias=False)
            return norm(nn.Dense(3)(obs))

    one, other = (from_linen(module, Box((3,))) for module in (With(), Without()))
    with pytest.raises(TriglotError, match="has state besides its parameters that the other lacks"):
        translate(one.init(jax.random.key(0)), one, other)


class Block(nn.Module):
    """A dense layer and a batch normalization."""

    @nn.compact
    def __call__(self, obs: jax.Array, train: bool) -> jax.Array:
        return nn.BatchNorm(use_running_average=not train)(nn.Dense(4)(obs))


class Blocks(nn.Module):
    """Several blocks beside each other, stacked along an axis."""

    axis: int
    count: int

    @nn.compact
    def __call__(self, obs: jax.Array, train: bool) -> jax.Array:
        how: Any = {"in_axes": (None, None), "out_axes": 0, "axis_size": self.count}
        axes: Any = {"params": self.axis, "batch_stats": self.axis}
        keys: Any = {"params": True}
        blocks = nn.vmap(Block, variable_axes=axes, split_rngs=keys, **how)
        return blocks(name="blocks")(obs, train).sum(0)


@pytest.mark.library_promotion("batch normalization broadcasts")
@pytest.mark.parametrize("count", [2, 4])
def test_stacks_along_different_axes_are_refused(count: int) -> None:
    """With four blocks of four features, no shape tells the axes apart."""
    first, second = (from_linen(Blocks(axis, count), Box((4,))) for axis in (0, 1))
    for source, target in ((first, second), (second, first)):
        with pytest.raises(TriglotError, match="stacked along another axis than the first"):
            translate(source.init(jax.random.key(0)), source, target)
