"""Equinox's built-in networks, made from a `NetworkSpec`.

Every module takes one observation, without a batch axis.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from ...core.network import Network
from ...core.networks.architecture import (
    BATCH_NORM_EPSILON,
    BATCH_NORM_MOMENTUM,
    LAYER_NORM_EPSILON,
    Head,
    Layers,
    NetworkSpec,
    Table,
)
from ...core.networks.inputs import (
    POOL_SIZE,
    POOL_STRIDE,
    concatenated,
    joined,
    pool_padding,
)
from ...core.networks.noise import dropped, of_layer, sigma_start
from ...core.types import PyTree
from ..objects import BATCH_AXIS
from ..zoo.initializers import kernel_initializer
from ..zoo.lifting import lift_zoo
from .lifting import from_equinox


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from Equinox's own layers."""
    return lift_zoo(from_equinox, spec, name, make(spec))


def make(spec: NetworkSpec) -> Callable[[jax.Array], eqx.Module]:
    """Return the constructor of a network."""
    module = Tabular if isinstance(spec.torso, Table) else TorsoAndHeads
    return lambda key: module(spec, key=key)


def _initialized(layer: Any, scale: float | None, *, key: jax.Array) -> Any:
    """Initialize a layer's weight `[out, in]` orthogonally at `scale` and its bias with zeros.

    A `scale` of None leaves the layer as it is.
    """
    if scale is None:
        return layer
    draw = kernel_initializer(scale, column_axis=0)
    weight = draw(key, layer.weight.shape, layer.weight.dtype)
    return eqx.tree_at(
        lambda dense: (dense.weight, dense.bias), layer, (weight, jnp.zeros_like(layer.bias))
    )


def _linear(
    size: int, width: int | Literal["scalar"], scale: float | None, *, key: jax.Array
) -> eqx.nn.Linear:
    layer_key, init_key = jax.random.split(key)
    return _initialized(eqx.nn.Linear(size, width, key=layer_key), scale, key=init_key)


def _dense(
    size: int,
    width: int | Literal["scalar"],
    scale: float | None,
    noise: float | None,
    *,
    key: jax.Array,
) -> "eqx.nn.Linear | Noisy":
    if noise is None:
        return _linear(size, width, scale, key=key)
    return Noisy(size, width, scale, noise, key=key)


def _norm(torso: Layers, size: int) -> eqx.nn.LayerNorm | eqx.nn.BatchNorm:
    if torso.normalization == "layer":
        return eqx.nn.LayerNorm(size, LAYER_NORM_EPSILON)
    return eqx.nn.BatchNorm(
        size, BATCH_AXIS, BATCH_NORM_EPSILON, momentum=BATCH_NORM_MOMENTUM, mode="batch"
    )


def _normalized(
    norm: eqx.nn.LayerNorm | eqx.nn.BatchNorm, features: jax.Array, state: PyTree
) -> tuple[jax.Array, PyTree]:
    """Normalize features whose channels come last, of one example."""
    if isinstance(norm, eqx.nn.LayerNorm):
        for _ in features.shape[:-1]:
            norm = jax.vmap(norm)
        return norm(features), state
    with jax.numpy_dtype_promotion("standard"):  # it raises a float to an integer count
        features, state = norm(jnp.moveaxis(features, -1, 0), state)
    return jnp.moveaxis(features, 0, -1), state


class TorsoAndHeads(eqx.Module):
    """Layers shared by several heads."""

    norm_input: eqx.nn.LayerNorm | eqx.nn.BatchNorm | None
    norm: list[eqx.nn.LayerNorm | eqx.nn.BatchNorm]
    torso: "list[eqx.nn.Conv2d | eqx.nn.Linear | Noisy]"
    cell: eqx.nn.LSTMCell | eqx.nn.GRUCell | None
    head: "dict[str, eqx.nn.Linear | Noisy | Dueling | StateIndependent]"
    activation: Callable[[jax.Array], jax.Array]
    spec: NetworkSpec = eqx.field(static=True)

    def __init__(self, spec: NetworkSpec, *, key: jax.Array) -> None:
        torso, cell, noise = spec.layers, spec.cell, spec.noise
        torso_key, head_key = jax.random.split(key)
        num_keys = 2 * spec.num_convolutions + len(torso.hidden_sizes)
        keys = iter(jax.random.split(torso_key, num_keys))
        self.norm_input = _norm(torso, spec.obs_shape[-1]) if torso.normalize_inputs else None
        is_normed = torso.normalization != "none"
        self.norm = [_norm(torso, width) for width in spec.widths if is_normed]
        self.torso = []
        for channels, convolution in spec.convolutions:
            size, stride = convolution.size, convolution.stride
            padding = convolution.size // 2 if convolution.same else 0
            layer = eqx.nn.Conv2d(
                channels, convolution.channels, size, stride, padding, key=next(keys)
            )
            self.torso.append(_initialized(layer, torso.scale, key=next(keys)))
        size = spec.num_features
        for width in torso.hidden_sizes:
            self.torso.append(_dense(size, width, torso.scale, noise, key=next(keys)))
            size = width
        self.cell = None
        if cell is not None:
            cell_key, head_key = jax.random.split(head_key)
            cell_type = eqx.nn.LSTMCell if cell.kind == "lstm" else eqx.nn.GRUCell
            self.cell, size = cell_type(size, cell.size, key=cell_key), cell.size
        head_keys = jax.random.split(head_key, len(spec.heads))
        self.head = {
            name: _head(head, size, noise, key=k)
            for (name, head), k in zip(spec.heads, head_keys, strict=True)
        }
        self.activation = getattr(jax.nn, torso.activation)
        self.spec = spec

    def __call__(self, *inputs: PyTree, state: PyTree = None) -> PyTree:
        spec, moved, flat = self.spec, state, []
        observations, more = spec.split(inputs)
        noise = more if self.cell is None else {}

        def convolution(features: jax.Array, index: int) -> jax.Array:
            # Equinox convolutions take channels first; move them back so that pixels flatten in
            # the order of the other libraries.
            layer: Any = self.torso[index]
            return jnp.moveaxis(layer(jnp.moveaxis(features, -1, 0)), 0, -1)

        def activated(features: jax.Array, index: int) -> jax.Array:
            nonlocal moved
            features, moved = self._activated(features, index, moved)
            return features

        def norm(features: jax.Array, index: int) -> jax.Array:
            nonlocal moved
            if self.norm:
                features, moved = _normalized(self.norm[index], features, moved)
            return features

        parts = spec.parts(observations, partial(joined, batched=False))
        for features, path in zip(parts, spec.paths, strict=True):
            if self.norm_input is not None:
                features, moved = _normalized(self.norm_input, features, moved)
            features = path.convolved(
                features, convolution, activated, norm, self.activation, _pooled
            )
            flat.append(jnp.ravel(features))
        features, carry = concatenated(flat), None
        for index in range(spec.num_convolutions, len(self.torso)):
            features = _apply(self.torso[index], features, f"torso_{index}", noise)
            features = dropped(features, spec, noise, f"torso_{index}")
            features, moved = self._activated(features, index, moved)
        if isinstance(self.cell, eqx.nn.LSTMCell):
            features, cell = self.cell(features, (more["hidden"], more["cell"]))
            carry = {"hidden": features, "cell": cell}
        elif self.cell is not None:
            features = self.cell(features, more["hidden"])
            carry = {"hidden": features}
        heads = {
            name: _apply(head, features, f"head_{name}", noise) for name, head in self.head.items()
        }
        outputs = heads if carry is None else (heads, carry)
        return outputs if state is None else (outputs, moved)

    def _activated(
        self, features: jax.Array, index: int, state: PyTree
    ) -> tuple[jax.Array, PyTree]:
        is_last = self.spec.layers.normalize_after_activation
        features = self.activation(features) if is_last else features
        if self.norm:
            features, state = _normalized(self.norm[index], features, state)
        return features if is_last else self.activation(features), state


def _pooled(features: jax.Array) -> jax.Array:
    """Pool one image `[H, W, C]`."""
    padding = [pool_padding(side) for side in features.shape[:2]]
    pool = eqx.nn.MaxPool2d(POOL_SIZE, POOL_STRIDE, padding)
    return jnp.moveaxis(pool(jnp.moveaxis(features, -1, 0)), 0, -1)


def _apply(layer: Any, features: jax.Array, name: str, noise: Mapping[str, jax.Array]) -> jax.Array:
    is_noisy = isinstance(layer, Noisy | Dueling)
    return layer(features, name, noise) if is_noisy else layer(features)


class Noisy(eqx.Module):
    """A noisy dense layer (`core.networks.noise`)."""

    mu: eqx.nn.Linear
    sigma: eqx.nn.Linear

    def __init__(
        self,
        size: int,
        width: int | Literal["scalar"],
        scale: float | None,
        noise: float,
        *,
        key: jax.Array,
    ) -> None:
        self.mu = _linear(size, width, scale, key=key)
        sigma = eqx.nn.Linear(size, width, key=key)
        start = sigma_start(noise, size)
        self.sigma = jax.tree.map(lambda array: jnp.full_like(array, start), sigma)

    def __call__(self, features: jax.Array, name: str, noise: Mapping[str, jax.Array]) -> jax.Array:
        before, after = of_layer(noise, name, features.shape[-1])
        if self.sigma.out_features == "scalar":
            after = after[0]
        return self.mu(features) + after * self.sigma(before * features)


def _head(
    head: Head, size: int, noise: float | None, *, key: jax.Array
) -> "eqx.nn.Linear | Noisy | Dueling | StateIndependent":
    if head.dueling:
        return Dueling(head, size, noise, key=key)
    if head.state_independent is not None:
        return StateIndependent(head.size or 1, head.state_independent)
    return _dense(size, head.size or "scalar", head.scale, noise, key=key)


class Dueling(eqx.Module):
    """The sum of a value and mean-free advantages."""

    value: eqx.nn.Linear | Noisy
    advantage: eqx.nn.Linear | Noisy

    def __init__(self, head: Head, size: int, noise: float | None, *, key: jax.Array) -> None:
        value_key, advantage_key = jax.random.split(key)
        self.value = _dense(size, 1, head.scale, noise, key=value_key)
        self.advantage = _dense(size, head.size or 1, head.scale, noise, key=advantage_key)

    def __call__(self, features: jax.Array, name: str, noise: Mapping[str, jax.Array]) -> jax.Array:
        advantage = _apply(self.advantage, features, f"{name}_advantage", noise)
        value = _apply(self.value, features, f"{name}_value", noise)
        return value + advantage - advantage.mean()


class StateIndependent(eqx.Module):
    """State-independent parameters that are the output for every observation."""

    bias: jax.Array

    def __init__(self, size: int, start: float) -> None:
        self.bias = jnp.full((size,), start)

    def __call__(self, features: jax.Array) -> jax.Array:
        del features
        return self.bias


class Tabular(eqx.Module):
    """One embedding per head, indexed by the observation."""

    head: dict[str, eqx.nn.Embedding]
    is_scalar: tuple[tuple[str, bool], ...] = eqx.field(static=True)

    def __init__(self, spec: NetworkSpec, *, key: jax.Array) -> None:
        del key
        rows = spec.num_rows
        self.head = {
            name: eqx.nn.Embedding(
                weight=jnp.full((rows, head.size or 1), spec.table.init, jnp.float32)
            )
            for name, head in spec.heads
        }
        self.is_scalar = tuple((name, head.size is None) for name, head in spec.heads)

    def __call__(self, obs: jax.Array) -> dict[str, jax.Array]:
        return {
            name: self.head[name](obs)[0] if scalar else self.head[name](obs)
            for name, scalar in self.is_scalar
        }
