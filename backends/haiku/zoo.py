"""Haiku's built-in networks, made from a `NetworkSpec`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import haiku as hk
import jax
import jax.numpy as jnp

from ...core.network import Network
from ...core.networks.architecture import (
    BATCH_NORM_EPSILON,
    BATCH_NORM_MOMENTUM,
    LAYER_NORM_EPSILON,
    Head,
    NetworkSpec,
    RecurrentCell,
    Table,
)
from ...core.networks.inputs import POOL_SIZE, POOL_STRIDE, Convolution, concatenated
from ...core.networks.noise import dropped, of_layer, sigma_start
from ...core.types import Obs, PyTree
from ..zoo.lifting import activated, inputs_of, lift_zoo, values_of
from .lifting import from_haiku


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from Haiku's own layers."""
    return lift_zoo(from_haiku, spec, name, make(spec), inputs_of(spec))


def make(spec: NetworkSpec) -> Callable[..., PyTree]:
    """Return the Haiku function of a network, called on batches `[B, ...]`."""
    cell = spec.cell
    if cell is not None:
        return lambda obs, carry, is_training=False: _recurrent(obs, carry, is_training, spec, cell)

    def network(*inputs: PyTree, is_training: bool = False) -> dict[str, jax.Array]:
        if isinstance(spec.torso, Table):
            return {name: _row(inputs[0], spec, name, head) for name, head in sorted(spec.heads)}
        observations, noise = spec.split(inputs)
        layers = _Layers(spec, is_training, noise)
        return layers.heads(layers.torso(spec.parts(observations)))

    return network


def _recurrent(
    obs: Obs,
    carry: dict[str, jax.Array],
    is_training: bool,
    spec: NetworkSpec,
    cell: RecurrentCell,
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    layers = _Layers(spec, is_training)
    observations, carry = spec.split((obs, carry))
    features = layers.torso(spec.parts(observations))
    if cell.kind == "lstm":
        features, after = hk.LSTM(cell.size, name="cell")(features, hk.LSTMState(**carry))
        carry = {"hidden": after.hidden, "cell": after.cell}
    else:
        features, hidden = hk.GRU(cell.size, name="cell")(features, carry["hidden"])
        carry = {"hidden": hidden}
    return layers.heads(features), carry


@dataclass(frozen=True)
class _Layers:
    """The layers of a network in one call.

    Attributes:
      spec: the network.
      is_training: whether batch normalization takes the batch's statistics.
      noise: of noisy layers, or the masks of dropout.
    """

    spec: NetworkSpec
    is_training: bool
    noise: Mapping[str, jax.Array] = field(default_factory=dict)

    def torso(self, parts: Sequence[jax.Array]) -> jax.Array:
        torso = self.spec.layers
        flat = []
        for features, path in zip(parts, self.spec.paths, strict=True):
            if torso.normalize_inputs:
                features = self._norm(features, "input")
            convolution = partial(self._convolution, layers=self.spec.convolutions)
            features = path.convolved(
                features, convolution, self._activated, self._norm, self._activation, _pooled
            )
            flat.append(hk.Flatten()(features))
        features = concatenated(flat)
        for index, width in enumerate(torso.hidden_sizes, self.spec.num_convolutions):
            features = self._dense(features, width, torso.scale, f"torso_{index}")
            features = dropped(features, self.spec, self.noise, f"torso_{index}")
            features = self._activated(features, index)
        return features

    def heads(self, features: jax.Array) -> dict[str, jax.Array]:
        return {name: self._head(features, name, head) for name, head in sorted(self.spec.heads)}

    def _convolution(
        self, features: jax.Array, index: int, layers: Sequence[tuple[int, Convolution]]
    ) -> jax.Array:
        (_, convolution), init = layers[index], _initializer(self.spec.layers.scale)
        layer = hk.Conv2D(
            convolution.channels,
            convolution.size,
            convolution.stride,
            padding=convolution.padding,
            w_init=init,
            name=f"torso_{index}",
        )
        return layer(features)

    @property
    def _activation(self) -> Callable[[jax.Array], jax.Array]:
        return getattr(jax.nn, self.spec.layers.activation)

    def _activated(self, features: jax.Array, index: int) -> jax.Array:
        norm = partial(self._norm, place=index)
        return activated(self.spec.layers, features, self._activation, norm)

    def _norm(self, features: jax.Array, place: int | str) -> jax.Array:
        kind, name = self.spec.layers.normalization, f"norm_{place}"
        if kind == "none":
            return features
        if kind == "layer":
            norm = hk.LayerNorm(-1, True, True, eps=LAYER_NORM_EPSILON, param_axis=-1, name=name)
            return norm(features)
        norm = hk.BatchNorm(True, True, BATCH_NORM_MOMENTUM, BATCH_NORM_EPSILON, name=name)
        with jax.numpy_dtype_promotion("standard"):  # it raises a float to an integer count
            return norm(features, self.is_training)

    def _dense(self, features: jax.Array, size: int, scale: float | None, name: str) -> jax.Array:
        init, start = _initializer(scale), self.spec.noise
        if start is None:
            return hk.Linear(size, w_init=init, name=name)(features)
        mean = hk.Linear(size, w_init=init, name=f"{name}_mu")
        sigma = hk.initializers.Constant(sigma_start(start, features.shape[-1]))
        spread = hk.Linear(size, w_init=sigma, b_init=sigma, name=f"{name}_sigma")
        before, after = of_layer(self.noise, name, features.shape[-1])
        return mean(features) + after * spread(before * features)

    def _head(self, features: jax.Array, name: str, head: Head) -> jax.Array:
        def dense(size: int, suffix: str = "") -> jax.Array:
            return self._dense(features, size, head.scale, f"head_{name}{suffix}")

        if head.size is not None and head.state_independent is not None:
            zeros = jnp.zeros((features.shape[0], head.size))
            init = hk.initializers.Constant(head.state_independent)
            return hk.Bias(b_init=init, name=f"head_{name}")(zeros)
        return values_of(head, dense)


def _pooled(features: jax.Array) -> jax.Array:
    window, strides = (1, POOL_SIZE, POOL_SIZE, 1), (1, POOL_STRIDE, POOL_STRIDE, 1)
    return hk.max_pool(features, window, strides, "SAME")


def _initializer(scale: float | None) -> hk.initializers.Initializer | None:
    return None if scale is None else hk.initializers.Orthogonal(scale)


def _row(obs: jax.Array, spec: NetworkSpec, name: str, head: Head) -> jax.Array:
    init = hk.initializers.Constant(spec.table.init)
    row = hk.Embed(spec.num_rows, head.size or 1, w_init=init, name=f"head_{name}")(obs)
    return row[:, 0] if head.size is None else row
