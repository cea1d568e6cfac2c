"""Two hidden layers with a skip connection, as a Haiku function."""

import haiku as hk
import jax
import jax.numpy as jnp

import triglot


def my_network(obs_spec, action_spec):
    def heads(obs):  # a batch of observations [B, ...]
        first = jax.nn.relu(hk.Linear(64)(hk.Flatten()(obs)))
        features = first + jax.nn.relu(hk.Linear(64)(first))
        return {
            "logits": hk.Linear(action_spec.num_values, name="logits")(features),
            "value": jnp.squeeze(hk.Linear(1, name="value")(features), axis=-1),
        }

    return triglot.from_haiku(heads, obs_spec, name="my_network")
