"""Two hidden layers with a skip connection, as a Linen module."""

import flax.linen as nn
import jax.numpy as jnp

import triglot


class MyNetwork(nn.Module):
    num_actions: int

    @nn.compact
    def __call__(self, obs):  # a batch of observations [B, ...]
        first = nn.relu(nn.Dense(64)(obs.reshape(obs.shape[0], -1)))
        features = first + nn.relu(nn.Dense(64)(first))
        return {
            "logits": nn.Dense(self.num_actions, name="logits")(features),
            "value": jnp.squeeze(nn.Dense(1, name="value")(features), axis=-1),
        }


def my_network(obs_spec, action_spec):
    return triglot.from_linen(MyNetwork(action_spec.num_values), obs_spec, name="my_network")
