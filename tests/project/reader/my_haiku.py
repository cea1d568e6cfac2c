"""A reader's network in Haiku, which docs/guide/port.md compares with its port."""

import haiku as hk
import jax


def net(obs: jax.Array) -> jax.Array:
    return hk.nets.MLP([16, 2])(obs)
