"""Random numbers in training are related as in the call that a module's author writes."""

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
from triglot import from_equinox, from_functions, from_haiku, from_keras, from_linen, from_nnx
from triglot.core.network import Network
from triglot.core.specs import Box

OBS, KEY = Box((16,)), jax.random.key(3)
ONES = jnp.ones((2, 16))


def trained(network: Network, inputs: Any = ONES) -> jax.Array:
    """Call a network in training."""
    variables = network.init(jax.random.key(0))
    return network.apply(variables, inputs, key=KEY, train=True)[0]


class Masked(nn.Module):
    """Dropout, and noise of another stream; returns the mask and the noise of each layer."""

    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        mask = nn.Dropout(0.5, deterministic=not train)(jnp.ones_like(x))
        return x, (mask, jax.random.uniform(self.make_rng("noise"), x.shape))


class Scanned(nn.Module):
    split: tuple[tuple[str, bool], ...]

    @nn.compact
    def __call__(self, x: Any, train: bool = True) -> Any:
        kinds: Any = {"split_rngs": dict(self.split), "in_axes": nn.broadcast}
        layers: Any = nn.scan(Masked, variable_axes={"params": 0}, length=3, **kinds)
        return layers()(nn.Dense(16)(x), True)[1]


@pytest.mark.covering(4)
@pytest.mark.parametrize("dropout", [True, False])
@pytest.mark.parametrize("noise", [True, False])
def test_linens_scan_splits_the_streams_that_it_names(dropout: bool, noise: bool) -> None:
    split = (("params", True), ("dropout", dropout), ("noise", noise))
    masks, draws = trained(from_linen(Scanned(split), OBS))
    assert bool(jnp.all(masks[0] == masks[1])) is not dropout
    assert bool(jnp.all(draws[0] == draws[1])) is not noise
    assert not np.array_equal(masks[0] == 0, draws[0] < 0.5)  # keys of their own


def test_linen_draws_what_the_authors_call_draws() -> None:
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool) -> Any:
            return nn.Dropout(0.5, deterministic=not train)(nn.Dense(8)(x))

    network = from_linen(Net(), OBS)
    variables = network.init(jax.random.key(0))
    expected = Net().apply({"params": variables.params}, ONES, True, rngs={"dropout": KEY})
    np.testing.assert_array_equal(trained(network), np.asarray(expected))


def test_a_linen_module_may_ask_whether_a_stream_exists() -> None:
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Dense(16)(x)
            return x + jax.random.normal(self.make_rng("noise")) if self.has_rng("noise") else x

    network = from_linen(Net(), OBS)
    variables = network.init(jax.random.key(0))
    assert not np.array_equal(trained(network), network.apply(variables, ONES)[0])


@pytest.mark.library_promotion("hk.dropout multiplies a mask and an array")
def test_haiku_draws_what_the_authors_call_draws() -> None:
    def function(x: Any, is_training: bool) -> Any:
        x = hk.Linear(8)(x)
        keys = hk.PRNGSequence(hk.next_rng_key())
        masks = [jax.random.bernoulli(next(keys), 0.5, x.shape) for _ in range(2)]
        return masks, hk.layer_stack(2)(lambda x: hk.dropout(hk.next_rng_key(), 0.5, x))(x)

    network, own = from_haiku(function, OBS), hk.transform(function)
    variables = network.init(jax.random.key(0))
    expected = own.apply(variables.params, KEY, ONES, True)
    jax.tree.map(np.testing.assert_array_equal, trained(network), expected)


def test_equinox_draws_what_the_authors_call_draws() -> None:
    class Net(eqx.Module):
        dropout: Any = eqx.nn.Dropout(0.5)

        def __call__(self, x: Any, key: Any) -> Any:
            one, other = jax.random.split(key)
            return self.dropout(x, key=one), self.dropout(x, key=other)

    expected = jax.vmap(Net())(ONES, jax.random.split(KEY, 2))
    jax.tree.map(np.testing.assert_array_equal, trained(from_equinox(Net())), expected)


def test_functions_get_the_key_itself() -> None:
    def apply(params: Any, x: Any, key: Any) -> Any:
        return x * params["scale"] * jax.random.normal(key, x.shape)

    network = from_functions(lambda key: {"scale": jnp.ones(())}, apply)
    np.testing.assert_array_equal(trained(network), apply({"scale": 1.0}, ONES, KEY))


class Layer(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(16, 16, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.linear(x), self.dropout(jnp.ones_like(x))


class Layers(nnx.Module):
    """Three layers, whose streams are split, or only that of the parameters."""

    def __init__(self, split: bool, rngs: nnx.Rngs) -> None:
        axes: Any = 0 if split else nnx.StateAxes({"params": 0, ...: None})
        only: Any = {} if split else {"only": "params"}

        @nnx.split_rngs(splits=3, **only)
        @nnx.vmap(in_axes=(axes,))
        def build(rngs: nnx.Rngs) -> Layer:
            return Layer(rngs)

        self.layers = build(rngs)

    def __call__(self, x: Any) -> Any:
        @nnx.scan(in_axes=(0, nnx.Carry))
        def run(layer: Layer, x: Any) -> Any:
            return layer(x)

        return run(self.layers, x)[1]


@pytest.mark.covering(4)
@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize("split", [True, False])
def test_nnx_streams_that_are_broadcast_stay_equal(split: bool, is_built: bool) -> None:
    def build(rngs: nnx.Rngs) -> Layers:
        return Layers(split, rngs)

    network = from_nnx(build(nnx.Rngs(params=0, dropout=1)) if is_built else build)
    params: Any = network.init(jax.random.key(0)).params
    kernels = params["layers"]["linear"]["kernel"].get_value()
    masks = trained(network)
    assert not np.array_equal(kernels[0], kernels[1])
    assert bool(jnp.all(masks[0] == masks[1])) is not split


def test_nnx_modules_may_take_streams_in_their_call() -> None:
    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.linear = nnx.Linear(16, 16, rngs=rngs)
            self.dropout = nnx.Dropout(0.5)

        def __call__(self, x: Any, rngs: nnx.Rngs) -> Any:
            ones = jnp.ones_like(x)
            return self.dropout(ones, rngs=rngs), self.dropout(ones, rngs=rngs)

    one, other = trained(from_nnx(Net))
    assert 0.0 < float(jnp.mean(one == 0)) < 1.0
    assert not np.array_equal(one, other)


def test_one_stream_of_nnx_gives_the_initial_weights_that_it_gave_before() -> None:
    network = from_nnx(lambda rngs: nnx.Linear(16, 4, rngs=rngs))
    params: Any = network.init(KEY).params
    expected = nnx.Linear(16, 4, rngs=nnx.Rngs(KEY)).kernel.get_value()
    np.testing.assert_array_equal(params["kernel"].get_value(), expected)


@pytest.mark.parametrize("seeds", [(7, 7), (7, 8), (None, None)])
def test_keras_seed_generators_of_one_seed_draw_alike(seeds: tuple[Any, Any]) -> None:
    keras = pytest.importorskip("keras", reason="the extra keras is not installed")

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = (keras.layers.Dropout(0.5, seed=seed) for seed in seeds)

        def call(self, x: Any, training: bool = False) -> Any:
            return [self.one(x, training=training), self.other(x, training=training)]

    expected = [np.asarray(each) for each in Net()(ONES, training=True)]
    one, other = trained(from_keras(Net, OBS))
    assert (
        np.array_equal(one, other) == np.array_equal(expected[0], expected[1]) == (seeds == (7, 7))
    )


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [(7, 7), (7, 8)])
def test_pytorch_generators_of_one_seed_draw_alike(seeds: tuple[int, int]) -> None:
    skip_missing("torch")
    import torch

    from triglot import from_torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))
            self.one, self.other = (torch.Generator().manual_seed(seed) for seed in seeds)

        def forward(self, x: Any) -> Any:
            def draw(generator: Any) -> Any:
                return torch.rand(x.shape, generator=generator) * self.scale

            if not self.training:
                return (x * self.scale,) * 3
            return draw(self.one), draw(self.one), draw(self.other)

    def drawn(network: Network, key: int) -> Any:
        variables = network.init(jax.random.key(0))
        return network.apply(variables, ONES, key=jax.random.key(key), train=True)[0]

    module = Net().train()
    expected = module(torch.ones(2, 16))
    network = from_torch(Net, OBS)
    first, second, other = drawn(network, 0)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, drawn(network, 1)[0])
    assert np.array_equal(first, other) == torch.equal(expected[0], expected[2])
    assert np.array_equal(first, other) == (seeds == (7, 7))


def test_pytorch_generators_that_are_made_in_turn_draw_alike() -> None:
    """The second one may have the address of the first, which is freed."""
    skip_missing("torch")
    import torch

    from triglot import from_torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: Any) -> Any:
            def draw() -> Any:
                generator = torch.Generator().manual_seed(7)
                return torch.rand(x.shape, generator=generator) * self.scale

            return (draw(), draw()) if self.training else (x * self.scale,) * 2

    expected = Net().train()(torch.ones(2, 16))
    assert torch.equal(*expected)
    np.testing.assert_array_equal(*trained(from_torch(Net, OBS)))
