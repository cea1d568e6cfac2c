"""Keras's built-in networks, made from a `NetworkSpec`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

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
    RecurrentCell,
    Table,
)
from ...core.networks.inputs import POOL_SIZE, POOL_STRIDE, concatenated
from ...core.networks.noise import dropped, of_layer, sigma_start
from ...core.types import Obs, PyTree
from ..calling import arguments
from ..zoo.lifting import activated, inputs_of, lift_zoo
from .importing import import_keras
from .lifting import from_keras

import_keras()  # with JAX as its backend

import keras  # noqa: E402

# What a user may have set otherwise for all layers.
DTYPE = "float32"


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from Keras's own layers."""
    return lift_zoo(from_keras, spec, name, make(spec), inputs_of(spec))


def make(spec: NetworkSpec) -> Callable[[], keras.Layer]:
    """Return the constructor of a network, called on batches `[B, ...]`."""
    module = Tabular if isinstance(spec.torso, Table) else TorsoAndHeads
    return lambda: module(spec)


class TorsoAndHeads(keras.Layer):
    """Layers shared by several heads."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__(dtype=DTYPE)
        torso = spec.layers
        self.spec = spec
        self.norm_input = _norm(torso) if torso.normalize_inputs else None
        layers: list[keras.Layer] = []
        for _, convolution in spec.convolutions:
            size = (convolution.size, convolution.size)
            stride = (convolution.stride, convolution.stride)
            layers.append(
                keras.layers.Conv2D(
                    convolution.channels,
                    size,
                    stride,
                    padding=convolution.padding.lower(),
                    data_format="channels_last",
                    kernel_initializer=_kernel(torso.scale),
                    dtype=DTYPE,
                )
            )
        size = spec.num_features
        for width in torso.hidden_sizes:
            layers.append(_dense(size, width, torso.scale, spec.noise))
            size = width
        self.torso = layers
        is_normed = torso.normalization != "none"
        self.norm = [_norm(torso) for _ in layers if is_normed]
        self.cell = None if spec.cell is None else _cell(spec.cell)
        size = size if spec.cell is None else spec.cell.size
        self.head = {name: _head(head, size, spec.noise) for name, head in spec.heads}
        self.activation = getattr(jax.nn, torso.activation)

    def call(self, inputs: PyTree, training: bool = False) -> PyTree:
        spec, norm_input = self.spec, self.norm_input
        observations, more = spec.split(arguments(inputs))
        noise, flat = more if self.cell is None else {}, []
        activated, norm = (
            partial(function, training=training) for function in (self._activated, self._norm)
        )

        def convolution(features: jax.Array, index: int) -> jax.Array:
            layer: Any = self.torso[index]
            return layer(features)

        for features, path in zip(spec.parts(observations), spec.paths, strict=True):
            if norm_input is not None:
                features = norm_input(features, training=training)
            features = path.convolved(
                features, convolution, activated, norm, self.activation, _pooled
            )
            flat.append(features.reshape((features.shape[0], -1)))
        features = concatenated(flat)
        for index in range(spec.num_convolutions, len(self.torso)):
            features = _apply(self.torso[index], features, f"torso_{index}", noise)
            features = dropped(features, spec, noise, f"torso_{index}")
            features = self._activated(features, index, training)
        if self.cell is None:
            return self._heads(features, noise)
        features, carry = self.cell(features, more)
        return self._heads(features, noise), carry

    def _activated(self, features: jax.Array, index: int, training: bool) -> jax.Array:
        if not self.norm:
            return self.activation(features)
        norm = partial(self.norm[index], training=training)
        return activated(self.spec.layers, features, self.activation, norm)

    def _norm(self, features: jax.Array, index: int, training: bool) -> jax.Array:
        return self.norm[index](features, training=training) if self.norm else features

    def _heads(self, features: jax.Array, noise: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        def value(name: str, head: Head) -> jax.Array:
            output = _apply(self.head[name], features, f"head_{name}", noise)
            return output[:, 0] if head.size is None else output

        return {name: value(name, head) for name, head in sorted(self.spec.heads)}


def _pooled(features: jax.Array) -> Any:
    return keras.ops.max_pool(
        features, POOL_SIZE, POOL_STRIDE, padding="same", data_format="channels_last"
    )


def _kernel(scale: float | None) -> Any:
    """Choose the initializer of kernels: orthogonal at `scale`, or Keras's own."""
    return "glorot_uniform" if scale is None else keras.initializers.Orthogonal(gain=scale)


def _norm(torso: Layers) -> keras.Layer:
    if torso.normalization == "batch":
        return keras.layers.BatchNormalization(
            momentum=BATCH_NORM_MOMENTUM, epsilon=BATCH_NORM_EPSILON, dtype=DTYPE
        )
    return keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, dtype=DTYPE)


def _dense(size: int, width: int, scale: float | None, noise: float | None) -> keras.Layer:
    if noise is not None:
        return Noisy(size, width, scale, noise)
    return keras.layers.Dense(width, kernel_initializer=_kernel(scale), dtype=DTYPE)


def _apply(layer: Any, features: jax.Array, name: str, noise: Mapping[str, jax.Array]) -> jax.Array:
    is_noisy = isinstance(layer, Noisy | Dueling)
    return layer(features, noise, place=name) if is_noisy else layer(features)


class Noisy(keras.Layer):
    """A noisy dense layer (`core.networks.noise`)."""

    def __init__(self, size: int, width: int, scale: float | None, noise: float) -> None:
        super().__init__(dtype=DTYPE)
        self.mu = keras.layers.Dense(width, kernel_initializer=_kernel(scale), dtype=DTYPE)
        start: Any = keras.initializers.Constant(sigma_start(noise, size))
        self.sigma = keras.layers.Dense(
            width, kernel_initializer=start, bias_initializer=start, dtype=DTYPE
        )

    def call(self, features: jax.Array, noise: Mapping[str, jax.Array], place: str = "") -> Any:
        before, after = of_layer(noise, place, features.shape[-1])
        return self.mu(features) + after * self.sigma(before * features)


def _cell(cell: RecurrentCell) -> keras.Layer:
    return (LSTM if cell.kind == "lstm" else GRU)(cell.size, dtype=DTYPE)


class LSTM(keras.layers.LSTMCell):
    """Keras's cell, with the order of results and the carry of built-in networks."""

    def call(self, inputs: PyTree, states: PyTree, training: bool = False) -> PyTree:
        carry = [states["hidden"], states["cell"]]
        hidden, (_, cell) = super().call(inputs, carry, training)
        return hidden, {"hidden": hidden, "cell": cell}


class GRU(keras.layers.GRUCell):
    """Keras's cell with one bias per gate, as in the other libraries.

    Keras adds two biases to its reset and update gates, which have the same gradient.
    """

    def __init__(self, units: int, dtype: str) -> None:
        super().__init__(units, use_bias=False, dtype=dtype)

    def build(self, input_shape: tuple[int, ...]) -> None:
        super().build(input_shape)
        size = self.units
        self.bias = self.add_weight(shape=(3 * size,), initializer="zeros", name="bias")
        self.bias_n = self.add_weight(shape=(size,), initializer="zeros", name="bias_n")

    def call(self, inputs: PyTree, states: PyTree, training: bool = False) -> PyTree:
        hidden, sigmoid, product = states["hidden"], jax.nn.sigmoid, cast(Any, keras.ops.matmul)
        i_z, i_r, i_n = jnp.split(product(inputs, self.kernel) + self.bias, 3, axis=-1)
        h_z, h_r, h_n = jnp.split(product(hidden, self.recurrent_kernel), 3, axis=-1)
        update, reset = sigmoid(i_z + h_z), sigmoid(i_r + h_r)
        new = jnp.tanh(i_n + reset * (h_n + self.bias_n.value))
        hidden = update * hidden + (1.0 - update) * new
        return hidden, {"hidden": hidden}


def _head(head: Head, size: int, noise: float | None) -> keras.Layer:
    if head.dueling:
        return Dueling(head, size, noise)
    if head.state_independent is not None:
        return StateIndependent(head.size or 1, head.state_independent)
    return _dense(size, head.size or 1, head.scale, noise)


class Dueling(keras.Layer):
    """The sum of a value and mean-free advantages."""

    def __init__(self, head: Head, size: int, noise: float | None) -> None:
        super().__init__(dtype=DTYPE)
        self.value = _dense(size, 1, head.scale, noise)
        self.advantage = _dense(size, head.size or 1, head.scale, noise)

    def call(self, features: jax.Array, noise: Mapping[str, jax.Array], place: str = "") -> Any:
        advantage = _apply(self.advantage, features, f"{place}_advantage", noise)
        value = _apply(self.value, features, f"{place}_value", noise)
        return value + advantage - advantage.mean(axis=-1, keepdims=True)


class StateIndependent(keras.Layer):
    """State-independent parameters that are the output for every observation."""

    def __init__(self, size: int, start: float) -> None:
        super().__init__(dtype=DTYPE)
        self.size, self.start = size, start

    def build(self, input_shape: tuple[int, ...]) -> None:
        start = keras.initializers.Constant(self.start)
        self.bias = self.add_weight(shape=(self.size,), initializer=start, name="bias")

    def call(self, features: jax.Array) -> Any:
        return jnp.broadcast_to(self.bias.value, (features.shape[0], self.size))


class Tabular(keras.Layer):
    """One embedding per head, indexed by the observation."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__(dtype=DTYPE)
        self.sizes = {name: head.size for name, head in spec.heads}
        init: Any = keras.initializers.Constant(spec.table.init)
        rows = spec.num_rows
        self.head = {
            name: keras.layers.Embedding(rows, size or 1, embeddings_initializer=init, dtype=DTYPE)
            for name, size in self.sizes.items()
        }

    def call(self, obs: Obs) -> dict[str, jax.Array]:
        rows = {name: self.head[name](obs) for name in self.sizes}
        return {n: row[:, 0] if self.sizes[n] is None else row for n, row in rows.items()}
