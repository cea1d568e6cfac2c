"""Policies' distributions over actions, apart from the networks that emit their raw arrays."""

import distrax
import jax
import jax.numpy as jnp


def categorical(logits: jax.Array, action_mask: jax.Array | None = None) -> distrax.Categorical:
    """Build a categorical distribution over the allowed actions.

    Args:
      logits: float `[..., num_actions]`.
      action_mask: bool `[..., num_actions]`, True where an action is allowed; None allows all.

    Returns:
      A distribution with batch shape `[...]`; a forbidden action has probability 0, and adds
      nothing to the entropy or its gradient.
    """
    if action_mask is not None:
        logits = jnp.where(action_mask, logits, jnp.finfo(logits.dtype).min)
    return distrax.Categorical(logits=logits)
