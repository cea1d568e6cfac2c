"""Target networks: copies of a network's variables that follow it slowly."""

import jax
import jax.numpy as jnp
import optax

from ..hyper import Number
from ..network import Variables


def target_of(variables: Variables) -> Variables:
    """Copy the variables: donated buffers must not alias."""
    return jax.tree.map(jnp.copy, variables)


def polyak(online: Variables, target: Variables, tau: Number) -> Variables:
    """Average parameters, target <- tau * online + (1 - tau) * target; the state is the online one.

    Args:
      online, target: variables of one network.
      tau: float `[]` within [0, 1]; 1 copies the online parameters.

    Source: Lillicrap et al. 2016, algorithm 1, https://arxiv.org/abs/1509.02971.
    """
    params = optax.incremental_update(
        online.params,
        target.params,
        tau,  # pyright: ignore[reportArgumentType] (declared a Python number, arrays work)
    )
    return Variables(params=params, state=online.state)


def is_multiple(count: jax.Array, period: Number) -> jax.Array:
    """Return whether a count is a multiple of a period, so that a target is updated, bool `[]`.

    Args:
      count: of gradient steps, int32 `[]`.
      period: at least 1; rounded down.
    """
    return count % jnp.asarray(period).astype(jnp.int32) == 0
