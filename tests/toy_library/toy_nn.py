"""A small neural-network library: modules are dataclasses, parameters are nested dictionaries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


class Module:
    """Base class: `init(key) -> params` and `module(params, inputs) -> outputs`."""

    def init(self, key: jax.Array) -> dict[str, Any]:
        raise NotImplementedError

    def __call__(self, params: dict[str, Any], inputs: jax.Array) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Dense(Module):
    """A dense layer with `weights` [in, out] and `offset` [out]."""

    num_inputs: int
    num_outputs: int
    scale: float = 1.0

    def init(self, key: jax.Array) -> dict[str, Any]:
        shape = (self.num_inputs, self.num_outputs)
        weights = jax.nn.initializers.orthogonal(self.scale)(key, shape, jnp.float32)
        return {"weights": weights, "offset": jnp.zeros(self.num_outputs, jnp.float32)}

    def __call__(self, params: dict[str, Any], inputs: jax.Array) -> jax.Array:
        return inputs @ params["weights"] + params["offset"][None]


@dataclass(frozen=True)
class TorsoAndHeads(Module):
    """Dense layers followed by named dense heads."""

    torso: tuple[Dense, ...]
    head: Mapping[str, Dense]
    activation: Callable[[jax.Array], jax.Array] = jnp.tanh

    def init(self, key: jax.Array) -> dict[str, Any]:
        keys = iter(jax.random.split(key, len(self.torso) + len(self.head)))
        return {
            "torso": [layer.init(next(keys)) for layer in self.torso],
            "head": {name: head.init(next(keys)) for name, head in self.head.items()},
        }

    def __call__(self, params: dict[str, Any], inputs: jax.Array) -> dict[str, jax.Array]:
        features = inputs.reshape(inputs.shape[0], -1)
        for layer, own in zip(self.torso, params["torso"], strict=True):
            features = self.activation(layer(own, features))
        return {name: head(params["head"][name], features) for name, head in self.head.items()}
