"""Flax NNX's zoo: networks built from a `NetworkSpec`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.nnx.nn.linear import default_kernel_init

from ...core.networks.architecture import Head, NetworkSpec, RecurrentCell, Table, joined
from .initializers import kernel_initializer


def make(spec: NetworkSpec) -> Callable[[nnx.Rngs], nnx.Module]:
    """Return the constructor of a network, called on batches `[B, ...]`."""
    module = Tabular if isinstance(spec.torso, Table) else TorsoAndHeads
    return lambda rngs: module(spec, rngs=rngs)


class TorsoAndHeads(nnx.Module):
    """Layers shared by several heads."""

    def __init__(self, spec: NetworkSpec, *, rngs: nnx.Rngs) -> None:
        torso = spec.layers
        init = kernel_initializer(torso.scale, default_kernel_init)
        shape = spec.obs_shape
        layers: list[nnx.Conv | nnx.Linear] = []
        for one in torso.convolutions:
            layers.append(
                nnx.Conv(
                    shape[-1],
                    one.channels,
                    (one.size, one.size),
                    (one.stride, one.stride),
                    padding="VALID",
                    kernel_init=init,
                    rngs=rngs,
                )
            )
            shape = one.output_shape(shape)
        size = int(np.prod(shape))
        for width in torso.hidden_sizes:
            layers.append(nnx.Linear(size, width, kernel_init=init, rngs=rngs))
            size = width
        self.torso = nnx.List(layers)
        self.cell = None if spec.cell is None else _cell(spec.cell, size, rngs=rngs)
        size = size if spec.cell is None else spec.cell.size
        self.head = nnx.Dict({name: _head(head, size, rngs=rngs) for name, head in spec.heads})
        self.is_scalar = {name: head.size is None for name, head in spec.heads}
        self.activation = getattr(nnx, torso.activation)

    def __call__(self, *inputs: Any) -> Any:
        # The second input of a recurrent network is its carry.
        features = joined(inputs if self.cell is None else inputs[:1])
        for layer in self.torso:
            if isinstance(layer, nnx.Linear):
                features = features.reshape((features.shape[0], -1))
            features = self.activation(layer(features))
        features = features.reshape((features.shape[0], -1))
        if self.cell is None:
            return self._heads(features)
        features, carry = self.cell(features, inputs[1])
        return self._heads(features), carry

    def _heads(self, features: jax.Array) -> dict[str, jax.Array]:
        return _squeeze({n: head(features) for n, head in self.head.items()}, self.is_scalar)


def _cell(cell: RecurrentCell, size: int, *, rngs: nnx.Rngs) -> "LSTM | GRU":
    return (LSTM if cell.kind == "lstm" else GRU)(size, cell.size, rngs=rngs)


class LSTM(nnx.OptimizedLSTMCell):
    """NNX's cell, with the zoo's order of arguments and its carry."""

    def __call__(self, features: Any, carry: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (cell, hidden), features = super().__call__((carry["cell"], carry["hidden"]), features)
        return features, {"hidden": hidden, "cell": cell}


class GRU(nnx.GRUCell):
    """NNX's cell with the bias of Linen and Equinox inside the product with the reset gate."""

    def __init__(self, in_features: int, size: int, *, rngs: nnx.Rngs) -> None:
        super().__init__(in_features, size, rngs=rngs)
        self.bias_n = nnx.Param(jnp.zeros((size,)))

    def __call__(self, features: Any, carry: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        hidden = carry["hidden"]
        i_r, i_z, i_n = jnp.split(self.dense_i(features), 3, axis=-1)
        h_r, h_z, h_n = jnp.split(self.dense_h(hidden), 3, axis=-1)
        reset, update = nnx.sigmoid(i_r + h_r), nnx.sigmoid(i_z + h_z)
        new = nnx.tanh(i_n + reset * (h_n + self.bias_n[...][None]))
        hidden = (1.0 - update) * new + update * hidden
        return hidden, {"hidden": hidden}


def _head(head: Head, size: int, *, rngs: nnx.Rngs) -> "nnx.Linear | Dueling | StateIndependent":
    if head.dueling:
        return Dueling(head, size, rngs=rngs)
    if head.state_independent is not None:
        return StateIndependent(head.size or 1, head.state_independent)
    init = kernel_initializer(head.scale, default_kernel_init)
    return nnx.Linear(size, head.size or 1, kernel_init=init, rngs=rngs)


class Dueling(nnx.Module):
    """The sum of a value and mean-free advantages."""

    def __init__(self, head: Head, size: int, *, rngs: nnx.Rngs) -> None:
        init = kernel_initializer(head.scale, default_kernel_init)
        self.value = nnx.Linear(size, 1, kernel_init=init, rngs=rngs)
        self.advantage = nnx.Linear(size, head.size or 1, kernel_init=init, rngs=rngs)

    def __call__(self, features: jax.Array) -> jax.Array:
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(axis=-1, keepdims=True)


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

    def __call__(self, obs: Any) -> dict[str, jax.Array]:
        return _squeeze({n: embed(obs) for n, embed in self.head.items()}, self.is_scalar)


def _squeeze(outputs: dict[str, jax.Array], is_scalar: dict[str, bool]) -> dict[str, jax.Array]:
    """Reshape the scalar heads from `[B, 1]` to `[B]`."""
    return {name: out[:, 0] if is_scalar[name] else out for name, out in outputs.items()}
