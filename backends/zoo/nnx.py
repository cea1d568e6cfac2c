"""The zoo in Flax NNX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ...core.architecture import CNN, MLP, Head, NetworkSpec, Table


def make(spec: NetworkSpec) -> Callable[[nnx.Rngs], nnx.Module]:
    """Return the constructor of a described network, called on batches `[B, ...]`."""
    module = Tabular if isinstance(spec.torso, Table) else TorsoAndHeads
    return lambda rngs: module(spec, rngs=rngs)


class TorsoAndHeads(nnx.Module):
    """Layers shared by several heads."""

    def __init__(self, spec: NetworkSpec, *, rngs: nnx.Rngs) -> None:
        torso: MLP | CNN = spec.torso
        init = nnx.initializers.orthogonal(torso.scale)
        shape = spec.obs_spec.shape
        layers: list[nnx.Module] = []
        if isinstance(torso, CNN):
            for width in torso.channels:
                window = (torso.kernel_size, torso.kernel_size)
                layers.append(
                    nnx.Conv(
                        shape[-1], width, window, padding="VALID", kernel_init=init, rngs=rngs
                    )
                )
                shape = (*(size - torso.kernel_size + 1 for size in shape[:2]), width)
        size = int(np.prod(shape))
        for width in torso.hidden_sizes:
            layers.append(nnx.Linear(size, width, kernel_init=init, rngs=rngs))
            size = width
        self.torso = nnx.List(layers)
        self.head = nnx.Dict(
            {name: _head(head, size, rngs=rngs) for name, head in spec.heads}
        )
        self.activation = getattr(nnx, torso.activation)

    def __call__(self, obs: Any) -> dict[str, jax.Array]:
        features = obs.astype(jnp.float32)
        for layer in self.torso:
            if isinstance(layer, nnx.Linear):
                features = features.reshape((features.shape[0], -1))
            features = self.activation(layer(features))
        features = features.reshape((features.shape[0], -1))
        return {name: head(features) for name, head in self.head.items()}


def _head(head: Head, size: int, *, rngs: nnx.Rngs) -> nnx.Module:
    if head.size is None:
        return Scalar(size, 1, kernel_init=nnx.initializers.orthogonal(head.scale), rngs=rngs)
    if head.dueling:
        return Dueling(head, size, rngs=rngs)
    init = nnx.initializers.orthogonal(head.scale)
    return nnx.Linear(size, head.size, kernel_init=init, rngs=rngs)


class Scalar(nnx.Linear):
    """A dense layer with one output, `[B]`."""

    def __call__(self, inputs: jax.Array) -> jax.Array:
        return super().__call__(inputs)[:, 0]


class Dueling(nnx.Module):
    """The sum of a value and mean-free advantages."""

    def __init__(self, head: Head, size: int, *, rngs: nnx.Rngs) -> None:
        init = nnx.initializers.orthogonal(head.scale)
        self.value = nnx.Linear(size, 1, kernel_init=init, rngs=rngs)
        self.advantage = nnx.Linear(size, head.size, kernel_init=init, rngs=rngs)

    def __call__(self, features: jax.Array) -> jax.Array:
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(axis=-1, keepdims=True)


class Tabular(nnx.Module):
    """One embedding per head, indexed by the observation."""

    def __init__(self, spec: NetworkSpec, *, rngs: nnx.Rngs) -> None:
        init = nnx.initializers.constant(spec.torso.init)
        rows = spec.obs_spec.num_values
        self.head = nnx.Dict(
            {
                name: nnx.Embed(rows, head.size or 1, embedding_init=init, rngs=rngs)
                for name, head in spec.heads
            }
        )
        self.is_scalar = {name: head.size is None for name, head in spec.heads}

    def __call__(self, obs: Any) -> dict[str, jax.Array]:
        rows = {name: embed(obs) for name, embed in self.head.items()}
        return {name: row[:, 0] if self.is_scalar[name] else row for name, row in rows.items()}
