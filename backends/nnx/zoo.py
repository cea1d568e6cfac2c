"""Flax NNX's built-in networks, made from a `NetworkSpec`."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn.linear import default_kernel_init

from ...core.network import Network
from ...core.networks.architecture import (
    BATCH_NORM_EPSILON,
    BATCH_NORM_MOMENTUM,
    LAYER_NORM_EPSILON,
    Head,
    Layers,
    NetworkSpec,
    RecurrentCell,
    Table,
)
from ...core.networks.inputs import POOL_SIZE, POOL_STRIDE, concatenated
from ...core.networks.noise import dropped, of_layer, sigma_start
from ...core.types import Carry, Obs, PyTree
from ..zoo.initializers import kernel_initializer
from ..zoo.lifting import activated, lift_zoo
from .lifting import from_nnx


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from NNX's own layers."""
    return lift_zoo(from_nnx, spec, name, make(spec))


def make(spec: NetworkSpec) -> Callable[[nnx.Rngs], nnx.Module]:
    """Return the constructor of a network, called on batches `[B, ...]`."""
    module = Tabular if isinstance(spec.torso, Table) else TorsoAndHeads
    return lambda rngs: module(spec, rngs=rngs)


class TorsoAndHeads(nnx.Module):
    """Layers shared by several heads."""

    def __init__(self, spec: NetworkSpec, *, rngs: nnx.Rngs) -> None:
        torso = spec.layers
        init = kernel_initializer(torso.scale, default_kernel_init)
        self.spec = spec
        if torso.normalize_inputs:
            self.norm_input = _norm(torso, spec.obs_shape[-1], rngs=rngs)
        layers: list[nnx.Conv | nnx.Linear | Noisy] = []
        for channels, convolution in spec.convolutions:
            layers.append(
                nnx.Conv(
                    channels,
                    convolution.channels,
                    (convolution.size, convolution.size),
                    (convolution.stride, convolution.stride),
                    padding=convolution.padding,
                    kernel_init=init,
                    rngs=rngs,
                )
            )
        size = spec.num_features
        for width in torso.hidden_sizes:
            layers.append(_dense(size, width, torso.scale, spec.noise, rngs=rngs))
            size = width
        self.torso = nnx.List(layers)
        is_normed = torso.normalization != "none"
        self.norm = nnx.List([_norm(torso, width, rngs=rngs) for width in spec.widths if is_normed])
        self.cell = None if spec.cell is None else _cell(spec.cell, size, rngs=rngs)
        size = size if spec.cell is None else spec.cell.size
        heads = {name: _head(head, size, spec.noise, rngs=rngs) for name, head in spec.heads}
        self.head = nnx.Dict(heads)
        self.is_scalar = {name: head.size is None for name, head in spec.heads}
        self.activation = getattr(nnx, torso.activation)

    def __call__(self, *inputs: PyTree) -> PyTree:
        spec = self.spec
        observations, more = spec.split(inputs)
        noise, flat = more if self.cell is None else {}, []

        def convolution(features: jax.Array, index: int) -> jax.Array:
            layer: Any = self.torso[index]
            return layer(features)

        for features, path in zip(spec.parts(observations), spec.paths, strict=True):
            if spec.layers.normalize_inputs:
                features = self.norm_input(features)
            features = path.convolved(
                features, convolution, self._activated, self._norm, self.activation, _pooled
            )
            flat.append(features.reshape((features.shape[0], -1)))
        features = concatenated(flat)
        for index in range(spec.num_convolutions, len(self.torso)):
            features = _apply(self.torso[index], features, f"torso_{index}", noise)
            features = dropped(features, spec, noise, f"torso_{index}")
            features = self._activated(features, index)
        if self.cell is None:
            return self._heads(features, noise)
        features, carry = self.cell(features, more)
        return self._heads(features, noise), carry

    def _activated(self, features: jax.Array, index: int) -> jax.Array:
        if not self.norm:
            return self.activation(features)
        return activated(self.spec.layers, features, self.activation, self.norm[index])

    def _norm(self, features: jax.Array, index: int) -> jax.Array:
        return self.norm[index](features) if self.norm else features

    def _heads(self, features: jax.Array, noise: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        outputs = {
            name: _apply(head, features, f"head_{name}", noise) for name, head in self.head.items()
        }
        return _squeeze(outputs, self.is_scalar)


def _pooled(features: jax.Array) -> jax.Array:
    return nnx.max_pool(features, (POOL_SIZE,) * 2, (POOL_STRIDE,) * 2, "SAME")


def _norm(torso: Layers, size: int, *, rngs: nnx.Rngs) -> nnx.LayerNorm | nnx.BatchNorm:
    if torso.normalization == "batch":
        return nnx.BatchNorm(
            size, momentum=BATCH_NORM_MOMENTUM, epsilon=BATCH_NORM_EPSILON, rngs=rngs
        )
    # The variance of Haiku's and Equinox's: of the centred features.
    return nnx.LayerNorm(size, epsilon=LAYER_NORM_EPSILON, use_fast_variance=False, rngs=rngs)


def _dense(
    size: int, width: int, scale: float | None, noise: float | None, *, rngs: nnx.Rngs
) -> "nnx.Linear | Noisy":
    if noise is not None:
        return Noisy(size, width, scale, noise, rngs=rngs)
    return _linear(size, width, scale, rngs=rngs)


def _linear(size: int, width: int, scale: float | None, *, rngs: nnx.Rngs) -> nnx.Linear:
    init = kernel_initializer(scale, default_kernel_init)
    return nnx.Linear(size, width, kernel_init=init, rngs=rngs)


def _apply(layer: Any, features: jax.Array, name: str, noise: Mapping[str, jax.Array]) -> jax.Array:
    is_noisy = isinstance(layer, Noisy | Dueling)
    return layer(features, name, noise) if is_noisy else layer(features)


class Noisy(nnx.Module):
    """A noisy dense layer (`core.networks.noise`)."""

    def __init__(
        self, size: int, width: int, scale: float | None, noise: float, *, rngs: nnx.Rngs
    ) -> None:
        self.mu = _linear(size, width, scale, rngs=rngs)
        start = nnx.initializers.constant(sigma_start(noise, size))
        self.sigma = nnx.Linear(size, width, kernel_init=start, bias_init=start, rngs=rngs)

    def __call__(self, features: jax.Array, name: str, noise: Mapping[str, jax.Array]) -> jax.Array:
        before, after = of_layer(noise, name, features.shape[-1])
        return self.mu(features) + after * self.sigma(before * features)


def _cell(cell: RecurrentCell, size: int, *, rngs: nnx.Rngs) -> "LSTM | GRU":
    return (LSTM if cell.kind == "lstm" else GRU)(size, cell.size, rngs=rngs)


class LSTM(nnx.OptimizedLSTMCell):
    """NNX's cell, with the order of arguments and the carry of built-in networks."""

    def __call__(self, features: jax.Array, carry: Carry) -> tuple[jax.Array, Carry]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (cell, hidden), features = super().__call__((carry["cell"], carry["hidden"]), features)
        return features, {"hidden": hidden, "cell": cell}


class GRU(nnx.GRUCell):
    """NNX's cell with the bias of Linen and Equinox inside the product with the reset gate."""

    def __init__(self, in_features: int, size: int, *, rngs: nnx.Rngs) -> None:
        super().__init__(in_features, size, rngs=rngs)
        self.bias_n = nnx.Param(jnp.zeros((size,)))

    def __call__(self, features: jax.Array, carry: Carry) -> tuple[jax.Array, Carry]:  # pyright: ignore[reportIncompatibleMethodOverride]
        hidden = carry["hidden"]
        i_r, i_z, i_n = jnp.split(self.dense_i(features), 3, axis=-1)
        h_r, h_z, h_n = jnp.split(self.dense_h(hidden), 3, axis=-1)
        reset, update = nnx.sigmoid(i_r + h_r), nnx.sigmoid(i_z + h_z)
        new = nnx.tanh(i_n + reset * (h_n + self.bias_n[...][None]))
        hidden = (1.0 - update) * new + update * hidden
        return hidden, {"hidden": hidden}


def _head(
    head: Head, size: int, noise: float | None, *, rngs: nnx.Rngs
) -> "nnx.Linear | Noisy | Dueling | StateIndependent":
    if head.dueling:
        return Dueling(head, size, noise, rngs=rngs)
    if head.state_independent is not None:
        return StateIndependent(head.size or 1, head.state_independent)
    return _dense(size, head.size or 1, head.scale, noise, rngs=rngs)


class Dueling(nnx.Module):
    """The sum of a value and mean-free advantages."""

    def __init__(self, head: Head, size: int, noise: float | None, *, rngs: nnx.Rngs) -> None:
        self.value = _dense(size, 1, head.scale, noise, rngs=rngs)
        self.advantage = _dense(size, head.size or 1, head.scale, noise, rngs=rngs)

    def __call__(self, features: jax.Array, name: str, noise: Mapping[str, jax.Array]) -> jax.Array:
        advantage = _apply(self.advantage, features, f"{name}_advantage", noise)
        value = _apply(self.value, features, f"{name}_value", noise)
        return value + advantage - advantage.mean(axis=-1, keepdims=True)


class StateIndependent(nnx.Module):
    """State-independent parameters that are the output for every observation."""

    def __init__(self, size: int, start: float) -> None:
        self.bias = nnx.Param(jnp.full((size,), start))

    def __call__(self, features: jax.Array) -> jax.Array:
        return jnp.broadcast_to(self.bias[...], (features.shape[0], *self.bias.shape))


class Tabular(nnx.Module):
    """One embedding per head, indexed by the observation."""

    def __init__(self, spec: NetworkSpec, *, rngs: nnx.Rngs) -> None:
        init = nnx.initializers.constant(spec.table.init)
        tables = {
            name: nnx.Embed(spec.num_rows, head.size or 1, embedding_init=init, rngs=rngs)
            for name, head in spec.heads
        }
        self.head = nnx.Dict(tables)
        self.is_scalar = {name: head.size is None for name, head in spec.heads}

    def __call__(self, obs: Obs) -> dict[str, jax.Array]:
        return _squeeze({n: embed(obs) for n, embed in self.head.items()}, self.is_scalar)


def _squeeze(outputs: dict[str, jax.Array], is_scalar: dict[str, bool]) -> dict[str, jax.Array]:
    """Reshape the scalar heads from `[B, 1]` to `[B]`."""
    return {name: out[:, 0] if is_scalar[name] else out for name, out in outputs.items()}
