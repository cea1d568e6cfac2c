"""Two hidden layers with a skip connection, as an NNX module."""

import math

import jax.numpy as jnp
from flax import nnx

import triglot


class MyNetwork(nnx.Module):
    def __init__(self, num_inputs, num_actions, rngs):
        self.first = nnx.Linear(num_inputs, 64, rngs=rngs)
        self.second = nnx.Linear(64, 64, rngs=rngs)
        self.logits = nnx.Linear(64, num_actions, rngs=rngs)
        self.value = nnx.Linear(64, 1, rngs=rngs)

    def __call__(self, obs):  # a batch of observations [B, ...]
        first = nnx.relu(self.first(obs.reshape(obs.shape[0], -1)))
        features = first + nnx.relu(self.second(first))
        return {"logits": self.logits(features), "value": jnp.squeeze(self.value(features), -1)}


def my_network(obs_spec, action_spec):
    def make(rngs):
        return MyNetwork(math.prod(obs_spec.shape), action_spec.num_values, rngs)

    return triglot.from_nnx(make, name="my_network")
