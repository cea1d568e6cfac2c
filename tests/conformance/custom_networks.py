"""Networks as people bring them: one of each library, with what each makes hard."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

NUM_ACTIONS = 2


def attentive(obs: jax.Array) -> dict[str, jax.Array]:
    """A Haiku function: each number of the observation is a token, and tokens attend."""
    tokens = hk.Linear(8, name="embed")(obs[:, :, None])
    attend = hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling(), model_size=8)
    features = jnp.tanh(hk.Flatten()(tokens + attend(tokens, tokens, tokens)))
    return {
        "logits": hk.Linear(NUM_ACTIONS, name="logits")(features),
        "value": hk.Linear(1, name="value")(features)[:, 0],
    }


class Normalised(nn.Module):
    """A Linen module with BatchNorm and dropout, told by `train`."""

    @nn.compact
    def __call__(self, obs: jax.Array, train: bool = False) -> dict[str, jax.Array]:
        features = nn.BatchNorm(use_running_average=not train, momentum=0.9)(obs)
        features = nn.relu(nn.Dense(32)(features))
        features = nn.Dropout(0.1, deterministic=not train)(features)
        return {"logits": nn.Dense(NUM_ACTIONS)(features), "value": nn.Dense(1)(features)[:, 0]}


class Sharing(nnx.Module):
    """An NNX module in which one layer is used twice and stands under two names."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Linear(4, 16, rngs=rngs)
        self.first = nnx.Linear(16, 16, rngs=rngs)
        self.second = self.first
        self.logits = nnx.Linear(16, NUM_ACTIONS, rngs=rngs)
        self.value = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, obs: jax.Array) -> dict[str, jax.Array]:
        features = jnp.tanh(self.embed(obs))
        features = jnp.tanh(self.second(jnp.tanh(self.first(features))))
        return {"logits": self.logits(features), "value": self.value(features)[:, 0]}


class SelfAttention(eqx.Module):
    """Attention with one head, whose constant is computed with JAX and kept as a Python float.

    It is the layer by which the first of the walk-throughs shows why a module that holds its
    parameters must keep constants out of the gradient.
    """

    q: eqx.nn.Linear
    k: eqx.nn.Linear
    v: eqx.nn.Linear
    sqrt_d_attn: float

    def __init__(self, d_model: int, d_attn: int, *, key: jax.Array) -> None:
        q, k, v = jax.random.split(key, 3)
        self.q = eqx.nn.Linear(d_model, d_attn, use_bias=False, key=q)
        self.k = eqx.nn.Linear(d_model, d_attn, use_bias=False, key=k)
        self.v = eqx.nn.Linear(d_model, d_attn, use_bias=False, key=v)
        self.sqrt_d_attn = float(jnp.sqrt(d_attn))

    def __call__(self, tokens: jax.Array) -> jax.Array:
        q, k, v = (jax.vmap(layer)(tokens) for layer in (self.q, self.k, self.v))
        return jax.nn.softmax(q @ k.T / self.sqrt_d_attn) @ v


class Attentive(eqx.Module):
    """An Equinox module with self-attention and an integer buffer."""

    embed: eqx.nn.Linear
    attention: SelfAttention
    logits: eqx.nn.Linear
    value: eqx.nn.Linear
    order: jax.Array

    def __init__(self, *, key: jax.Array) -> None:
        embed, attention, logits, value = jax.random.split(key, 4)
        self.embed = eqx.nn.Linear(1, 8, key=embed)
        self.attention = SelfAttention(8, 8, key=attention)
        self.logits = eqx.nn.Linear(32, NUM_ACTIONS, key=logits)
        self.value = eqx.nn.Linear(32, "scalar", key=value)
        self.order = jnp.arange(4)[::-1]

    def __call__(self, obs: jax.Array) -> dict[str, jax.Array]:
        tokens = jax.vmap(self.embed)(obs[self.order, None])
        features = jnp.tanh(jnp.ravel(tokens + self.attention(tokens)))
        return {"logits": self.logits(features), "value": self.value(features)}


class NormalisedEquinox(eqx.Module):
    """An Equinox module with BatchNorm, whose state it takes and returns, and dropout."""

    norm: eqx.nn.BatchNorm
    torso: eqx.nn.Linear
    dropout: eqx.nn.Dropout
    logits: eqx.nn.Linear
    value: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        torso, logits, value = jax.random.split(key, 3)
        self.norm = eqx.nn.BatchNorm(4, axis_name="batch", mode="batch")
        self.torso = eqx.nn.Linear(4, 32, key=torso)
        self.dropout = eqx.nn.Dropout(0.1)
        self.logits = eqx.nn.Linear(32, NUM_ACTIONS, key=logits)
        self.value = eqx.nn.Linear(32, "scalar", key=value)

    def __call__(
        self, obs: jax.Array, state: eqx.nn.State, *, key: jax.Array | None = None
    ) -> tuple[dict[str, jax.Array], eqx.nn.State]:
        features, state = self.norm(obs, state)
        features = self.dropout(jax.nn.relu(self.torso(features)), key=key)
        return {"logits": self.logits(features), "value": self.value(features)}, state


def normalised_haiku(obs: jax.Array, is_training: bool) -> dict[str, jax.Array]:
    """A Haiku function with BatchNorm and dropout, told by `is_training`."""
    features = hk.BatchNorm(create_scale=True, create_offset=True, decay_rate=0.9)(
        obs, is_training=is_training
    )
    features = jax.nn.relu(hk.Linear(32)(features))
    if is_training:
        features = hk.dropout(hk.next_rng_key(), 0.1, features)
    return {
        "logits": hk.Linear(NUM_ACTIONS, name="logits")(features),
        "value": hk.Linear(1, name="value")(features)[:, 0],
    }


class NormalisedNNX(nnx.Module):
    """An NNX module with BatchNorm and dropout, switched by `train()` and `eval()`."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.norm = nnx.BatchNorm(4, momentum=0.9, rngs=rngs)
        self.torso = nnx.Linear(4, 32, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.logits = nnx.Linear(32, NUM_ACTIONS, rngs=rngs)
        self.value = nnx.Linear(32, 1, rngs=rngs)

    def __call__(self, obs: jax.Array) -> dict[str, jax.Array]:
        features = self.dropout(nnx.relu(self.torso(self.norm(obs))))
        return {"logits": self.logits(features), "value": self.value(features)[:, 0]}


class Scaling(eqx.Module):
    """An Equinox module with two NumPy arrays, a scale and an order of the inputs."""

    logits: eqx.nn.Linear
    value: eqx.nn.Linear
    scale: np.ndarray
    order: np.ndarray

    def __init__(self, key: jax.Array) -> None:
        logits, value = jax.random.split(key)
        self.logits = eqx.nn.Linear(4, NUM_ACTIONS, key=logits)
        self.value = eqx.nn.Linear(4, "scalar", key=value)
        self.scale = np.array([0.5, 1.0, 2.0, 4.0], np.float32)
        self.order = np.array([3, 2, 1, 0])

    def __call__(self, obs: jax.Array) -> dict[str, jax.Array]:
        features = obs[self.order] * self.scale
        return {"logits": self.logits(features), "value": self.value(features)}
