"""Equinox's zoo: networks built from a `NetworkSpec`.

Every module takes one observation, without a batch axis.
"""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...core.networks.architecture import Head, NetworkSpec, Table, joined
from .initializers import kernel_initializer


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
        lambda each: (each.weight, each.bias), layer, (weight, jnp.zeros_like(layer.bias))
    )


def _linear(
    size: int, width: int | Literal["scalar"], scale: float | None, *, key: jax.Array
) -> eqx.nn.Linear:
    layer_key, init_key = jax.random.split(key)
    return _initialized(eqx.nn.Linear(size, width, key=layer_key), scale, key=init_key)


class TorsoAndHeads(eqx.Module):
    """Layers shared by several heads."""

    torso: list[eqx.nn.Conv2d | eqx.nn.Linear]
    cell: eqx.nn.LSTMCell | eqx.nn.GRUCell | None
    head: "dict[str, eqx.nn.Linear | Dueling | StateIndependent]"
    activation: Callable[[jax.Array], jax.Array]

    def __init__(self, spec: NetworkSpec, *, key: jax.Array) -> None:
        torso, cell = spec.layers, spec.cell
        torso_key, head_key = jax.random.split(key)
        shape = spec.obs_shape
        keys = iter(jax.random.split(torso_key, 2 * len(torso.channels) + len(torso.hidden_sizes)))
        self.torso = []
        for one in torso.convolutions:
            layer = eqx.nn.Conv2d(shape[-1], *one, key=next(keys))
            self.torso.append(_initialized(layer, torso.scale, key=next(keys)))
            shape = one.output_shape(shape)
        size = int(np.prod(shape))
        for width in torso.hidden_sizes:
            self.torso.append(_linear(size, width, torso.scale, key=next(keys)))
            size = width
        self.cell = None
        if cell is not None:
            cell_key, head_key = jax.random.split(head_key)
            cell_type = eqx.nn.LSTMCell if cell.kind == "lstm" else eqx.nn.GRUCell
            self.cell, size = cell_type(size, cell.size, key=cell_key), cell.size
        head_keys = jax.random.split(head_key, len(spec.heads))
        self.head = {
            name: _head(head, size, key=k)
            for (name, head), k in zip(spec.heads, head_keys, strict=True)
        }
        self.activation = getattr(jax.nn, torso.activation)

    def __call__(self, *inputs: Any) -> Any:
        # The second input of a recurrent network is its carry.
        features = joined(inputs if self.cell is None else inputs[:1], batched=False)
        for layer in self.torso:
            if isinstance(layer, eqx.nn.Conv2d):
                # Equinox convolutions take channels first; move them back so that pixels flatten in
                # the order of the other libraries.
                images = layer(jnp.moveaxis(features, -1, 0))
                features = self.activation(jnp.moveaxis(images, 0, -1))
            else:
                features = self.activation(layer(jnp.ravel(features)))
        features = jnp.ravel(features)
        if self.cell is None:
            return self._heads(features)
        carry = inputs[1]
        if isinstance(self.cell, eqx.nn.LSTMCell):
            hidden, cell = self.cell(features, (carry["hidden"], carry["cell"]))
            return self._heads(hidden), {"hidden": hidden, "cell": cell}
        hidden = self.cell(features, carry["hidden"])
        return self._heads(hidden), {"hidden": hidden}

    def _heads(self, features: jax.Array) -> dict[str, jax.Array]:
        return {name: head(features) for name, head in self.head.items()}


def _head(head: Head, size: int, *, key: jax.Array) -> "eqx.nn.Linear | Dueling | StateIndependent":
    if head.dueling:
        return Dueling(head, size, key=key)
    if head.state_independent is not None:
        return StateIndependent(head.size or 1, head.state_independent)
    return _linear(size, head.size or "scalar", head.scale, key=key)


class Dueling(eqx.Module):
    """The sum of a value and mean-free advantages."""

    value: eqx.nn.Linear
    advantage: eqx.nn.Linear

    def __init__(self, head: Head, size: int, *, key: jax.Array) -> None:
        value_key, advantage_key = jax.random.split(key)
        self.value = _linear(size, 1, head.scale, key=value_key)
        self.advantage = _linear(size, head.size or 1, head.scale, key=advantage_key)

    def __call__(self, features: jax.Array) -> jax.Array:
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean()


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
