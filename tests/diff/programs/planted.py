"""Networks of the same layers in every library, in which a test plants a difference."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tests.backends.layer_cases import adapted
from triglot.core.network import Network, Variables
from triglot.core.specs import Box
from triglot.diff.types import Side

LIBRARIES = ("haiku", "linen", "nnx", "equinox")

Call: TypeAlias = Callable[..., Any]
Forward: TypeAlias = Callable[..., Any]


# What one layer needs to be built in each library, and how it is called on `[..., features]`.
def dense(inputs: int, outputs: int) -> dict[str, Any]:
    return {
        "haiku": lambda name: hk.Linear(outputs, name=name),
        "linen": lambda name: nn.Dense(outputs, name=name),
        "nnx": lambda rngs: nnx.Linear(inputs, outputs, rngs=rngs),
        "equinox": lambda key: eqx.nn.Linear(inputs, outputs, key=key),
    }


def layer_norm(size: int, epsilon: float = 1e-5) -> dict[str, Any]:
    return {
        "haiku": lambda name: hk.LayerNorm(-1, True, True, eps=epsilon, name=name),
        "linen": lambda name: nn.LayerNorm(epsilon=epsilon, name=name),
        "nnx": lambda rngs: nnx.LayerNorm(size, epsilon=epsilon, rngs=rngs),
        "equinox": lambda key: eqx.nn.LayerNorm(size, eps=epsilon),
    }


def rms_norm(size: int, epsilon: float = 1e-5) -> dict[str, Any]:
    return {
        "haiku": lambda name: hk.RMSNorm(-1, eps=epsilon, name=name),
        "linen": lambda name: nn.RMSNorm(epsilon=epsilon, name=name),
        "nnx": lambda rngs: nnx.RMSNorm(size, epsilon=epsilon, rngs=rngs),
        "equinox": lambda key: eqx.nn.RMSNorm(size, eps=epsilon, use_bias=False),
    }


def centred_norm(size: int, epsilon: float = 1e-5) -> dict[str, Any]:
    """Build a layer norm that, as an RMS norm, has no bias."""
    return {
        "haiku": lambda name: hk.LayerNorm(-1, True, False, eps=epsilon, name=name),
        "linen": lambda name: nn.LayerNorm(epsilon=epsilon, use_bias=False, name=name),
        "nnx": lambda rngs: nnx.LayerNorm(size, epsilon=epsilon, use_bias=False, rngs=rngs),
        "equinox": lambda key: eqx.nn.LayerNorm(size, eps=epsilon, use_bias=False),
    }


def group_norm(size: int, epsilon: float = 1e-5, groups: int = 2) -> dict[str, Any]:
    return {
        "haiku": lambda name: hk.GroupNorm(groups, eps=epsilon, name=name),
        "linen": lambda name: nn.GroupNorm(groups, epsilon=epsilon, name=name),
        "nnx": lambda rngs: nnx.GroupNorm(size, groups, epsilon=epsilon, rngs=rngs),
        "equinox": lambda key: eqx.nn.GroupNorm(groups, size, eps=epsilon),
    }


def conv(
    inputs: int, outputs: int, padding: Any = "SAME", stride: int = 1, dilation: int = 1
) -> dict[str, Any]:
    def channels_first(key: jax.Array) -> Any:
        return eqx.nn.Conv2d(inputs, outputs, 3, stride, padding, dilation, key=key)

    how: dict[str, Any] = {"padding": padding}
    return {
        "haiku": lambda name: hk.Conv2D(outputs, 3, stride, dilation, name=name, **how),
        "linen": lambda name: nn.Conv(
            outputs, (3, 3), stride, kernel_dilation=dilation, name=name, **how
        ),
        "nnx": lambda rngs: nnx.Conv(
            inputs, outputs, (3, 3), stride, kernel_dilation=dilation, rngs=rngs, **how
        ),
        "equinox": channels_first,
    }


def build(
    library: str, spec: Box | tuple[Box, ...], layers: Mapping[str, Any], forward: Forward
) -> Network:
    """Build a network: `forward(call, *inputs, train)` with `call(name, x, train)` for each layer.

    The inputs have a batch axis in all libraries but Equinox, so `forward` counts axes from the
    right. Convolutions take and return channels last.
    """
    made = {name: each[library] for name, each in layers.items()}

    def called(layer: Any, x: jax.Array, train: bool = False) -> Any:
        if isinstance(layer, nn.Module) and "train" in inspect.signature(layer).parameters:
            return layer(x, train)
        if isinstance(layer, nn.BatchNorm):
            return layer(x, use_running_average=not train)
        if isinstance(layer, nn.Dropout):
            return layer(x, deterministic=not train)
        if library != "equinox":
            return layer(x)
        if isinstance(layer, eqx.nn.Conv2d):
            return jnp.moveaxis(layer(jnp.moveaxis(x, -1, 0)), 0, -1)
        for _ in x.shape[:-1]:
            layer = jax.vmap(layer)
        return layer(x)

    class Linen(nn.Module):
        @nn.compact
        def __call__(self, *inputs: Any, train: bool = False) -> Any:
            layer = functools.cache(lambda name: made[name](name))  # called more than once
            return forward(lambda name, *x: called(layer(name), *x), *inputs, train=train)

    class NNX(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.layers = nnx.Dict({name: each(rngs) for name, each in made.items()})
            self.rngs = nnx.Rngs(dropout=0)

        def __call__(self, *inputs: Any, train: bool = False) -> Any:
            return forward(lambda name, *x: called(self.layers[name], *x), *inputs, train=train)

    class Equinox(eqx.Module):
        layers: dict[str, Any]

        def __init__(self, key: jax.Array) -> None:
            keys = jax.random.split(key, len(made))
            self.layers = {n: f(k) for (n, f), k in zip(made.items(), keys, strict=True)}

        def __call__(self, *inputs: Any, train: bool = False) -> Any:
            return forward(lambda name, *x: called(self.layers[name], *x), *inputs, train=train)

    def haiku(*inputs: Any, train: bool = False) -> Any:
        return forward(lambda name, *x: called(made[name](name), *x), *inputs, train=train)

    return adapted(library, spec, haiku, Linen, NNX, Equinox)


def sides(
    one: Network, other: Network, rename: Callable[[str], str] = lambda name: name
) -> list[Side]:
    """Give two networks equal weights, by equal names once the first one's are renamed."""
    first, second = (_weights(network, seed) for seed, network in enumerate((one, other)))
    assert one.codec is not None and other.codec is not None
    named, own = one.codec.encode(first.params), other.codec.encode(second.params)
    mine, theirs = (
        {rename(name.removeprefix("layers/")): name for name in arrays} for arrays in (named, own)
    )
    shared = mine.keys() & theirs.keys()
    assert shared
    for name in shared:
        own[theirs[name]] = named[mine[name]].reshape(own[theirs[name]].shape)
    params = other.codec.decode(own)
    return [
        Side(
            label=f"{network.backend} {side}",
            network=network,
            variables=variables,
            names={name: full[name] for name in shared},
        )
        for side, network, variables, full in (
            ("A", one, first, mine),
            ("B", other, Variables(params=params, state=second.state), theirs),
        )
    ]


def _weights(network: Network, seed: int) -> Variables:
    """Draw weights by NumPy, which compiles nothing; the state, if any, is the network's own."""
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    draw = np.random.default_rng(seed)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(draw.normal(size=leaf.shape) * 0.5, leaf.dtype), shapes.params
    )
    has_state = bool(jax.tree.leaves(shapes.state))
    state = jax.jit(network.init)(jax.random.key(0)).state if has_state else shapes.state
    return Variables(params=params, state=state)
