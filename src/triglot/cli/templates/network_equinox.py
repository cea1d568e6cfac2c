"""Two hidden layers with a skip connection, as an Equinox module."""

import math

import equinox as eqx
import jax

import triglot


class MyNetwork(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    logits: eqx.nn.Linear
    value: eqx.nn.Linear

    def __init__(self, num_inputs, num_actions, key):
        first, second, logits, value = jax.random.split(key, 4)
        self.first = eqx.nn.Linear(num_inputs, 64, key=first)
        self.second = eqx.nn.Linear(64, 64, key=second)
        self.logits = eqx.nn.Linear(64, num_actions, key=logits)
        self.value = eqx.nn.Linear(64, "scalar", key=value)

    def __call__(self, obs):  # one observation: triglot vmaps over the batch
        first = jax.nn.relu(self.first(obs.ravel()))
        features = first + jax.nn.relu(self.second(first))
        return {"logits": self.logits(features), "value": self.value(features)}


def my_network(obs_spec, action_spec):
    def make(key):
        return MyNetwork(math.prod(obs_spec.shape), action_spec.num_values, key)

    return triglot.from_equinox(make, name="my_network")
