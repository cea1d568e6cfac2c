"""Flax Linen's zoo: networks built from a `NetworkSpec`."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.linear import default_kernel_init

from ...core.networks.architecture import Head, Layers, NetworkSpec, RecurrentCell, Table, joined
from .initializers import kernel_initializer


def make(spec: NetworkSpec) -> nn.Module:
    """Return the Linen module of a network, called on batches `[B, ...]`."""
    return Tabular(spec) if isinstance(spec.torso, Table) else TorsoAndHeads(spec)


class TorsoAndHeads(nn.Module):
    """Layers shared by several heads."""

    spec: NetworkSpec

    @nn.compact
    def __call__(self, *inputs: Any) -> Any:
        if self.spec.cell is None:
            return self._heads(self._torso(joined(inputs), self.spec.layers))
        obs, carry = inputs
        features = self._torso(joined((obs,)), self.spec.layers)
        features, carry = self._cell(features, carry, self.spec.cell)
        return self._heads(features), carry

    def _heads(self, features: jax.Array) -> dict[str, jax.Array]:
        return {name: self._head(features, name, head) for name, head in sorted(self.spec.heads)}

    def _cell(
        self, features: jax.Array, carry: dict[str, jax.Array], cell: RecurrentCell
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        if cell.kind == "gru":
            hidden, features = nn.GRUCell(cell.size, name="cell")(carry["hidden"], features)
            return features, {"hidden": hidden}
        lstm = nn.OptimizedLSTMCell(cell.size, name="cell")
        (cell_state, hidden), features = lstm((carry["cell"], carry["hidden"]), features)
        return features, {"hidden": hidden, "cell": cell_state}

    def _torso(self, features: jax.Array, torso: Layers) -> jax.Array:
        activation = getattr(nn, torso.activation)
        init = kernel_initializer(torso.scale, default_kernel_init)
        for index, (width, size, stride) in enumerate(torso.convolutions):
            convolution = nn.Conv(
                width,
                (size, size),
                (stride, stride),
                padding="VALID",
                kernel_init=init,
                name=f"torso_{index}",
            )
            features = activation(convolution(features))
        features = features.reshape((features.shape[0], -1))
        for index, width in enumerate(torso.hidden_sizes, len(torso.channels)):
            dense = nn.Dense(width, kernel_init=init, name=f"torso_{index}")
            features = activation(dense(features))
        return features

    def _head(self, features: jax.Array, name: str, head: Head) -> jax.Array:
        def dense(size: int, suffix: str = "") -> jax.Array:
            init = kernel_initializer(head.scale, default_kernel_init)
            return nn.Dense(size, kernel_init=init, name=f"head_{name}{suffix}")(features)

        if head.size is None:
            return dense(1)[:, 0]
        if (start := head.state_independent) is not None:
            return StateIndependent(head.size, start, name=f"head_{name}")(features)
        if not head.dueling:
            return dense(head.size)
        advantage = dense(head.size, "_advantage")
        return dense(1, "_value") + advantage - advantage.mean(axis=-1, keepdims=True)


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
    def __call__(self, obs: Any) -> dict[str, jax.Array]:
        outputs = {}
        for name, head in sorted(self.spec.heads):
            init = nn.initializers.constant(self.spec.table.init)
            rows = self.spec.num_rows
            row = nn.Embed(rows, head.size or 1, embedding_init=init, name=f"head_{name}")(obs)
            outputs[name] = row[:, 0] if head.size is None else row
        return outputs
