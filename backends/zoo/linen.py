"""The zoo in Flax Linen."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from ...core.architecture import Head, Layers, Memory, NetworkSpec, Table


def make(spec: NetworkSpec) -> nn.Module:
    """Return the Linen module of a described network, on batches `[B, ...]`."""
    return Tabular(spec) if isinstance(spec.torso, Table) else TorsoAndHeads(spec)


class TorsoAndHeads(nn.Module):
    """Layers shared by several heads."""

    spec: NetworkSpec

    @nn.compact
    def __call__(self, obs: Any, carry: dict[str, jax.Array] | None = None) -> Any:
        features = self._torso(obs.astype(jnp.float32), self.spec.layers)
        if self.spec.memory is None or carry is None:
            return self._heads(features)
        features, carry = self._cell(features, carry, self.spec.memory)
        return self._heads(features), carry

    def _heads(self, features: jax.Array) -> dict[str, jax.Array]:
        return {name: self._head(features, name, head) for name, head in self.spec.heads}

    def _cell(
        self, features: jax.Array, carry: dict[str, jax.Array], memory: Memory
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        if memory.cell == "gru":
            hidden, features = nn.GRUCell(memory.size, name="cell")(carry["hidden"], features)
            return features, {"hidden": hidden}
        lstm = nn.OptimizedLSTMCell(memory.size, name="cell")
        (cell, hidden), features = lstm((carry["cell"], carry["hidden"]), features)
        return features, {"hidden": hidden, "cell": cell}

    def _torso(self, features: jax.Array, torso: Layers) -> jax.Array:
        activation = getattr(nn, torso.activation)
        init = nn.initializers.orthogonal(torso.scale)
        for index, width in enumerate(torso.channels):
            window = (torso.kernel_size, torso.kernel_size)
            convolution = nn.Conv(
                width, window, padding="VALID", kernel_init=init, name=f"torso_{index}"
            )
            features = activation(convolution(features))
        features = features.reshape((features.shape[0], -1))
        for index, width in enumerate(torso.hidden_sizes, len(torso.channels)):
            dense = nn.Dense(width, kernel_init=init, name=f"torso_{index}")
            features = activation(dense(features))
        return features

    def _head(self, features: jax.Array, name: str, head: Head) -> jax.Array:
        def dense(size: int, suffix: str = "") -> jax.Array:
            init = nn.initializers.orthogonal(head.scale)
            return nn.Dense(size, kernel_init=init, name=f"head_{name}{suffix}")(features)

        if head.size is None:
            return dense(1)[:, 0]
        if not head.dueling:
            return dense(head.size)
        advantage = dense(head.size, "_advantage")
        return dense(1, "_value") + advantage - advantage.mean(axis=-1, keepdims=True)


class Tabular(nn.Module):
    """One embedding per head, indexed by the observation."""

    spec: NetworkSpec

    @nn.compact
    def __call__(self, obs: Any) -> dict[str, jax.Array]:
        outputs = {}
        for name, head in self.spec.heads:
            init = nn.initializers.constant(self.spec.table.init)
            rows = self.spec.num_rows
            embed = nn.Embed(rows, head.size or 1, embedding_init=init, name=f"head_{name}")
            row = embed(obs)
            outputs[name] = row[:, 0] if head.size is None else row
        return outputs
