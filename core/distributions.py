"""Policies' distributions over actions, apart from the networks that emit their raw arrays."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Categorical:
    """A distribution over `num_actions` actions; make it with `categorical`.

    Attributes:
      log_probs: float `[..., num_actions]`, normalised.
    """

    log_probs: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw int32 actions `[...]`."""
        return jax.random.categorical(key, self.log_probs)

    def mode(self) -> jax.Array:
        """Choose the likeliest action, int32 `[...]`; the first of several."""
        return jnp.argmax(self.log_probs, axis=-1)

    def log_prob(self, action: jax.Array) -> jax.Array:
        """Give the log-probability `[...]` of integer actions `[...]`."""
        return jnp.take_along_axis(self.log_probs, action[..., None], axis=-1)[..., 0]

    def entropy(self) -> jax.Array:
        """Give the entropy `[...]` in nats."""
        return -jnp.sum(jnp.exp(self.log_probs) * self.log_probs, axis=-1)


def categorical(logits: jax.Array, action_mask: jax.Array | None = None) -> Categorical:
    """Build a categorical distribution over the allowed actions.

    Args:
      logits: float `[..., num_actions]`, unnormalised.
      action_mask: bool `[..., num_actions]`, True where an action is allowed; None allows all.

    Returns:
      A distribution in which a forbidden action has probability 0 and adds nothing to the entropy
      or its gradient.
    """
    if action_mask is not None:
        logits = jnp.where(action_mask, logits, jnp.finfo(logits.dtype).min)
    return Categorical(jax.nn.log_softmax(logits))
