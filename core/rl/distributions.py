"""Policies' distributions over actions, apart from the networks that emit their raw arrays."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import distrax
import jax
import jax.numpy as jnp

from ..specs import Box, Discrete, Spec


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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SquashedGaussian:
    """A diagonal Gaussian whose samples a tanh brings into an interval.

    What is kept and measured is the number before the tanh: at the interval's ends the tanh has no
    finite inverse. In a ratio of two probabilities of one action the tanh's part cancels.

    Attributes:
      mean, log_std: float `[..., n]`, before the tanh.
    """

    mean: jax.Array
    log_std: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw raw actions `[..., n]`, before the tanh."""
        return self._gaussian.sample(seed=key)

    def mode(self) -> jax.Array:
        """Give the likeliest raw action `[..., n]`."""
        return self.mean

    def log_prob(self, raw: jax.Array) -> jax.Array:
        """Give the log-density `[...]` of raw actions `[..., n]`, before the tanh."""
        return self._gaussian.log_prob(raw)

    def squashed_log_prob(self, raw: jax.Array) -> jax.Array:
        """Give the log-density `[...]` of the actions `tanh(raw)`.

        Source: Haarnoja et al. 2018, appendix C, equation 21, https://arxiv.org/abs/1801.01290;
        log(1 - tanh(x)^2) is written as 2 (log 2 - x - softplus(-2 x)), which does not overflow.
        """
        correction = 2.0 * (math.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
        return self.log_prob(raw) - correction.sum(axis=-1)

    def entropy(self) -> jax.Array:
        """Give the entropy `[...]` before the tanh, in nats; after it there is no closed form."""
        return self._gaussian.entropy()

    @property
    def _gaussian(self) -> Any:
        return distrax.MultivariateNormalDiag(self.mean, jnp.exp(self.log_std))


def policy(
    action_spec: Spec, heads: Mapping[str, jax.Array], action_mask: jax.Array | None = None
) -> Categorical | SquashedGaussian:
    """Build the distribution over actions that a network's heads describe.

    Args:
      action_spec: `Discrete`, for `logits` `[..., num_actions]`; else a bounded `Box` of `n`
        numbers, for `mean` and `log_std` `[..., n]`.
      heads: by name.
      action_mask: of discrete actions, as in `categorical`.
    """
    if isinstance(action_spec, Discrete):
        return categorical(heads["logits"], action_mask)
    return SquashedGaussian(heads["mean"], heads["log_std"])


def to_action(action_spec: Spec, sample: jax.Array) -> jax.Array:
    """Make an action `[B, *shape]` of what `policy` drew, `[B]` or `[B, n]`."""
    if not isinstance(action_spec, Box):
        return sample
    unit = jnp.tanh(sample).reshape((-1, *action_spec.shape))
    return to_bounds(action_spec, unit).astype(action_spec.dtype)


def to_bounds(spec: Box, unit: jax.Array) -> jax.Array:
    """Stretch numbers within [-1, 1] to the bounds of a box, `[..., *shape]`."""
    low, high = (jnp.asarray(bound) for bound in spec.bounds())
    return jax.vmap(lambda one: low + (one + 1.0) * 0.5 * (high - low))(
        unit.reshape((-1, *spec.shape))
    ).reshape(unit.shape)
