"""Two hidden layers with a skip connection, as plain functions."""

import math

import jax
import jax.numpy as jnp

import triglot

DENSE = {f"{name}/w": "in out" for name in ("first", "second", "logits", "value")}


def dense(layer, features):
    return features @ layer["w"] + layer["b"][None]


def my_network(obs_spec, action_spec):
    num_inputs, num_actions = math.prod(obs_spec.shape), action_spec.num_values
    sizes = {
        "first": (num_inputs, 64),
        "second": (64, 64),
        "logits": (64, num_actions),
        "value": (64, 1),
    }

    def init(key):
        draw, keys = jax.nn.initializers.lecun_normal(), jax.random.split(key, len(sizes))
        return {
            name: {"w": draw(key, size), "b": jnp.zeros(size[1])}
            for key, (name, size) in zip(keys, sizes.items(), strict=True)
        }

    def apply(params, obs):  # a batch of observations [B, ...]
        first = jax.nn.relu(dense(params["first"], obs.reshape(obs.shape[0], -1)))
        features = first + jax.nn.relu(dense(params["second"], first))
        return {
            "logits": dense(params["logits"], features),
            "value": jnp.squeeze(dense(params["value"], features), axis=-1),
        }

    return triglot.from_functions(init, apply, obs_spec=obs_spec, name="my_network", layouts=DENSE)
