"""Flax Linen's built-in networks, made from a `NetworkSpec`."""

from collections.abc import Mapping, Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.linear import default_kernel_init

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
from ..zoo.initializers import kernel_initializer
from ..zoo.lifting import activated, inputs_of, lift_zoo, values_of
from .lifting import from_linen


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from Linen's own layers."""
    return lift_zoo(from_linen, spec, name, make(spec), inputs_of(spec))


def make(spec: NetworkSpec) -> nn.Module:
    """Return the Linen module of a network, called on batches `[B, ...]`."""
    return Tabular(spec) if isinstance(spec.torso, Table) else TorsoAndHeads(spec)


class TorsoAndHeads(nn.Module):
    """Layers shared by several heads."""

    spec: NetworkSpec

    @nn.compact
    def __call__(self, *inputs: PyTree, train: bool = False) -> PyTree:
        observations, more = self.spec.split(inputs)
        if self.spec.cell is None:
            features = self._torso(self.spec.parts(observations), more, train)
            return self._heads(features, more)
        features = self._torso(self.spec.parts(observations), {}, train)
        features, carry = self._cell(features, more, self.spec.cell)
        return self._heads(features, {}), carry

    def _heads(self, features: jax.Array, noise: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        heads = sorted(self.spec.heads)
        return {name: self._head(features, name, head, noise) for name, head in heads}

    def _cell(
        self, features: jax.Array, carry: dict[str, jax.Array], cell: RecurrentCell
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        if cell.kind == "gru":
            hidden, features = nn.GRUCell(cell.size, name="cell")(carry["hidden"], features)
            return features, {"hidden": hidden}
        lstm = nn.OptimizedLSTMCell(cell.size, name="cell")
        (cell_state, hidden), features = lstm((carry["cell"], carry["hidden"]), features)
        return features, {"hidden": hidden, "cell": cell_state}

    def _torso(
        self, parts: Sequence[jax.Array], noise: Mapping[str, jax.Array], train: bool
    ) -> jax.Array:
        torso = self.spec.layers
        convolution = partial(self._convolution, layers=self.spec.convolutions)
        activated, norm = (
            partial(function, train=train) for function in (self._activated, self._norm)
        )
        flat = []
        for features, path in zip(parts, self.spec.paths, strict=True):
            if torso.normalize_inputs:
                features = self._norm(features, "input", train)
            features = path.convolved(
                features, convolution, activated, norm, getattr(nn, torso.activation), _pooled
            )
            flat.append(features.reshape((features.shape[0], -1)))
        features = concatenated(flat)
        for index, width in enumerate(torso.hidden_sizes, self.spec.num_convolutions):
            features = self._dense(features, width, torso.scale, f"torso_{index}", noise)
            features = dropped(features, self.spec, noise, f"torso_{index}")
            features = self._activated(features, index, train)
        return features

    def _convolution(
        self, features: jax.Array, index: int, layers: Sequence[tuple[int, Convolution]]
    ) -> jax.Array:
        _, convolution = layers[index]
        init = kernel_initializer(self.spec.layers.scale, default_kernel_init)
        size = (convolution.size, convolution.size)
        stride = (convolution.stride, convolution.stride)
        layer = nn.Conv(
            convolution.channels,
            size,
            stride,
            padding=convolution.padding,
            kernel_init=init,
            name=f"torso_{index}",
        )
        return layer(features)

    def _activated(self, features: jax.Array, index: int, train: bool) -> jax.Array:
        torso = self.spec.layers
        activation, norm = getattr(nn, torso.activation), partial(self._norm, place=index)
        return activated(torso, features, activation, partial(norm, train=train))

    def _norm(self, features: jax.Array, place: int | str, train: bool) -> jax.Array:
        kind, name = self.spec.layers.normalization, f"norm_{place}"
        if kind == "none":
            return features
        if kind == "layer":
            # The variance of Haiku's and Equinox's: of the centred features.
            layer = nn.LayerNorm(epsilon=LAYER_NORM_EPSILON, use_fast_variance=False, name=name)
            return layer(features)
        norm = nn.BatchNorm(momentum=BATCH_NORM_MOMENTUM, epsilon=BATCH_NORM_EPSILON, name=name)
        return norm(features, use_running_average=not train)

    def _dense(
        self,
        features: jax.Array,
        size: int,
        scale: float | None,
        name: str,
        noise: Mapping[str, jax.Array],
    ) -> jax.Array:
        init, start = kernel_initializer(scale, default_kernel_init), self.spec.noise
        if start is None:
            return nn.Dense(size, kernel_init=init, name=name)(features)
        mean = nn.Dense(size, kernel_init=init, name=f"{name}_mu")
        sigma = nn.initializers.constant(sigma_start(start, features.shape[-1]))
        spread = nn.Dense(size, kernel_init=sigma, bias_init=sigma, name=f"{name}_sigma")
        before, after = of_layer(noise, name, features.shape[-1])
        return mean(features) + after * spread(before * features)

    def _head(
        self, features: jax.Array, name: str, head: Head, noise: Mapping[str, jax.Array]
    ) -> jax.Array:
        def dense(size: int, suffix: str = "") -> jax.Array:
            return self._dense(features, size, head.scale, f"head_{name}{suffix}", noise)

        if head.size is not None and (start := head.state_independent) is not None:
            return StateIndependent(head.size, start, name=f"head_{name}")(features)
        return values_of(head, dense)


def _pooled(features: jax.Array) -> jax.Array:
    return nn.max_pool(features, (POOL_SIZE,) * 2, (POOL_STRIDE,) * 2, "SAME")


class StateIndependent(nn.Module):
    """State-independent parameters that are the output for every observation."""

    size: int
    start: float

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        bias = self.param("bias", nn.initializers.constant(self.start), (self.size,))
        return jnp.broadcast_to(bias, (features.shape[0], self.size))


class Tabular(nn.Module):
    """One embedding per head, indexed by the observation."""

    spec: NetworkSpec

    @nn.compact
    def __call__(self, obs: Obs) -> dict[str, jax.Array]:
        outputs = {}
        for name, head in sorted(self.spec.heads):
            init = nn.initializers.constant(self.spec.table.init)
            rows = self.spec.num_rows
            row = nn.Embed(rows, head.size or 1, embedding_init=init, name=f"head_{name}")(obs)
            outputs[name] = row[:, 0] if head.size is None else row
        return outputs
