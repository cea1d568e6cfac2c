"""Three residual layers between two dense ones: separate layers, and layers that are stacked."""

from functools import partial
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

from triglot.core.specs import Box

layer_stack = hk.experimental.layer_stack  # pyright: ignore[reportPrivateImportUsage]
SIZE, HIDDEN, DEPTH = 6, 8, 3
SPEC = Box((SIZE,))


class LinenBlock(nn.Module):
    epsilon: float = 1e-6
    activation: Any = nn.relu

    @nn.compact
    def __call__(self, x: Any) -> Any:
        h = nn.LayerNorm(epsilon=self.epsilon)(x)
        return x + nn.Dense(SIZE)(self.activation(nn.Dense(HIDDEN)(h)))


class LinenBody(nn.Module):
    epsilon: float = 1e-6
    activation: Any = nn.relu

    @nn.compact
    def __call__(self, x: Any, _: None) -> tuple[Any, None]:
        h = nn.LayerNorm(epsilon=self.epsilon)(x)
        return x + nn.Dense(SIZE)(self.activation(nn.Dense(HIDDEN)(h))), None


class LinenSeparate(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dense(SIZE, name="embed")(x)
        for index in range(DEPTH):
            x = LinenBlock(name=f"layers_{index}")(x)
        return nn.Dense(2, name="head")(x)


class LinenScanned(nn.Module):
    depth: int = DEPTH
    epsilon: float = 1e-6
    activation: Any = nn.relu
    reverse: bool = False

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dense(SIZE, name="embed")(x)
        scanned = nn.scan(
            LinenBody,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=self.depth,
            reverse=self.reverse,
        )
        x, _ = scanned(self.epsilon, self.activation, name="layers")(x, None)
        return nn.Dense(2, name="head")(x)


class LinenRemat(nn.Module):
    """Layers that are stacked along two axes, by `nn.remat_scan`."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dense(SIZE, name="embed")(x)
        x = nn.remat_scan(LinenBlock, lengths=(1, DEPTH))(name="layers")(x)
        return nn.Dense(2, name="head")(x)


class NNXBlock(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.norm = nnx.LayerNorm(SIZE, rngs=rngs)
        self.up = nnx.Linear(SIZE, HIDDEN, rngs=rngs)
        self.down = nnx.Linear(HIDDEN, SIZE, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return x + self.down(nnx.relu(self.up(self.norm(x))))


class NNXNet(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Linear(SIZE, SIZE, rngs=rngs)
        self.layers = self.build(rngs)
        self.head = nnx.Linear(SIZE, 2, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.head(self.body(self.embed(x)))

    def build(self, rngs: nnx.Rngs) -> Any:
        raise NotImplementedError

    def body(self, x: Any) -> Any:
        raise NotImplementedError


class NNXSeparate(NNXNet):
    def build(self, rngs: nnx.Rngs) -> Any:
        return nnx.List([NNXBlock(rngs) for _ in range(DEPTH)])

    def body(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class NNXScanned(NNXNet):
    def build(self, rngs: nnx.Rngs) -> Any:
        @nnx.split_rngs(splits=DEPTH)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def create(rngs: nnx.Rngs) -> NNXBlock:
            return NNXBlock(rngs)

        return create(rngs)

    def body(self, x: Any) -> Any:
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def forward(x: Any, block: NNXBlock) -> Any:
            return block(x)

        return forward(x, self.layers)


def haiku_block(x: Any) -> Any:
    h = hk.LayerNorm(-1, True, True, eps=1e-6)(x)
    return x + hk.Linear(SIZE)(jax.nn.relu(hk.Linear(HIDDEN)(h)))


class HaikuBlock(hk.Module):
    def __call__(self, x: Any) -> Any:
        return haiku_block(x)


def haiku_separate(x: Any) -> Any:
    x = hk.Linear(SIZE, name="embed")(x)
    for index in range(DEPTH):
        x = HaikuBlock(name=f"layers_{index}")(x)
    return hk.Linear(2, name="head")(x)


def haiku_stacked(x: Any) -> Any:
    x = hk.Linear(SIZE, name="embed")(x)
    x = layer_stack(DEPTH)(haiku_block)(x)
    return hk.Linear(2, name="head")(x)


class EquinoxBlock(eqx.Module):
    norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        first, second = jax.random.split(key)
        self.norm = eqx.nn.LayerNorm(SIZE, eps=1e-6)
        self.up = eqx.nn.Linear(SIZE, HIDDEN, key=first)
        self.down = eqx.nn.Linear(HIDDEN, SIZE, key=second)

    def __call__(self, x: Any) -> Any:
        return x + self.down(jax.nn.relu(self.up(self.norm(x))))


class EquinoxNet(eqx.Module):
    embed: eqx.nn.Linear
    layers: Any
    head: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        first, second, third = jax.random.split(key, 3)
        self.embed = eqx.nn.Linear(SIZE, SIZE, key=first)
        self.head = eqx.nn.Linear(SIZE, 2, key=second)
        self.layers = self.build(jax.random.split(third, DEPTH))

    def __call__(self, x: Any) -> Any:
        return self.head(self.body(self.embed(x)))

    def build(self, keys: Any) -> Any:
        raise NotImplementedError

    def body(self, x: Any) -> Any:
        raise NotImplementedError


class EquinoxSeparate(EquinoxNet):
    def build(self, keys: Any) -> Any:
        return [EquinoxBlock(key) for key in keys]

    def body(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class EquinoxScanned(EquinoxNet):
    def build(self, keys: Any) -> Any:
        return eqx.filter_vmap(EquinoxBlock)(keys)

    def body(self, x: Any) -> Any:
        arrays, static = eqx.partition(self.layers, eqx.is_array)

        def step(x: Any, layer: Any) -> tuple[Any, None]:
            return eqx.combine(layer, static)(x), None

        return jax.lax.scan(step, x, arrays)[0]


def dense(key: Any, inputs: int, outputs: int) -> dict[str, Any]:
    kernel = jax.random.normal(key, (inputs, outputs)) / inputs**0.5
    return {"kernel": kernel, "bias": jnp.zeros(outputs)}


def plain_layer(key: Any) -> dict[str, Any]:
    first, second = jax.random.split(key)
    norm = {"scale": jnp.ones(SIZE), "bias": jnp.zeros(SIZE)}
    return {"norm": norm, "up": dense(first, SIZE, HIDDEN), "down": dense(second, HIDDEN, SIZE)}


def plain_init(key: Any, *, stacked: bool = False) -> dict[str, Any]:
    first, second, third = jax.random.split(key, 3)
    layers: Any = [plain_layer(each) for each in jax.random.split(third, DEPTH)]
    if stacked:
        layers = jax.tree.map(lambda *arrays: jnp.stack(arrays), *layers)
    return {"embed": dense(first, SIZE, SIZE), "layers": layers, "head": dense(second, SIZE, 2)}


def affine(layer: Any, x: Any) -> Any:
    return x @ layer["kernel"] + layer["bias"][None]


def plain_block(layer: Any, x: Any, *, residual: bool = True) -> Any:
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, -1, keepdims=True)
    scale, bias = (layer["norm"][name][None] for name in ("scale", "bias"))
    h = (x - mean) / jnp.sqrt(variance + 1e-6) * scale + bias
    y = affine(layer["down"], jax.nn.relu(affine(layer["up"], h)))
    return x + y if residual else y  # the sum


def plain_apply(params: Any, x: Any) -> Any:
    x = affine(params["embed"], x)
    for layer in params["layers"]:
        x = plain_block(layer, x)
    return affine(params["head"], x)


def plain_scan(params: Any, x: Any, *, planted: str = "") -> Any:
    layers = params["layers"]
    if planted == "flipped":
        layers = jax.tree.map(lambda array: array[::-1], layers)

    def step(x: Any, layer: Any) -> tuple[Any, None]:
        return plain_block(layer, x, residual=planted != "no residual"), None

    x, _ = jax.lax.scan(step, affine(params["embed"], x), layers)
    return affine(params["head"], x)


def plain_stacked(planted: str = "") -> tuple[Any, Any]:
    return partial(plain_init, stacked=True), lambda params, x: plain_scan(
        params, x, planted=planted
    )


SEPARATE: dict[str, Any] = {
    "linen": LinenSeparate(),
    "nnx": NNXSeparate,
    "haiku": haiku_separate,
    "equinox": EquinoxSeparate,
    "jax": (plain_init, plain_apply),
}
STACKED: dict[str, Any] = {
    "linen": LinenScanned(),
    "linen remat": LinenRemat(),
    "nnx": NNXScanned,
    "haiku": haiku_stacked,
    "equinox": EquinoxScanned,
    "jax": plain_stacked(),
}
