"""Distributions over actions, built from the raw arrays that networks output."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import distrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, PRNGKeyArray

from ..specs import Box, Discrete, Spec


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Categorical:
    """A distribution over `num_actions` actions; make it with `categorical`.

    Attributes:
      log_probs: float `[..., num_actions]`, normalised.
    """

    log_probs: jax.Array

    def sample(self, key: PRNGKeyArray) -> Integer[Array, "..."]:
        """Draw int32 actions `[...]`."""
        return jax.random.categorical(key, self.log_probs)

    def mode(self) -> Integer[Array, "..."]:
        """Return the likeliest action, int32 `[...]`; the first where several tie."""
        return jnp.argmax(self.log_probs, axis=-1)

    def log_prob(self, action: Integer[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Compute the log-probability `[...]` of integer actions `[...]`."""
        return jnp.take_along_axis(self.log_probs, action[..., None], axis=-1)[..., 0]

    def entropy(self) -> Float[Array, "..."]:
        """Compute the entropy `[...]` in nats."""
        return -jnp.sum(jnp.exp(self.log_probs) * self.log_probs, axis=-1)


def categorical(
    logits: Float[Array, "*batch num_actions"],
    action_mask: Bool[Array, "*batch num_actions"] | None = None,
) -> Categorical:
    """Build a categorical distribution over the allowed actions.

    Args:
      logits: float `[..., num_actions]`, unnormalised.
      action_mask: bool `[..., num_actions]`, True where an action is allowed; None allows all.

    Returns:
      The distribution. A masked action has probability 0 and contributes 0 to the entropy and its
      gradient.
    """
    if action_mask is not None:
        logits = jnp.where(action_mask, logits, jnp.finfo(logits.dtype).min)
    return Categorical(jax.nn.log_softmax(logits))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SquashedGaussian:
    """A diagonal Gaussian over raw actions, squashed by a tanh; make it with `squashed_gaussian`.

    Samples and densities are of the raw action: at the ends of its range the tanh has no finite
    inverse. In a ratio of two probabilities of one action the tanh's Jacobian cancels.

    Attributes:
      mean, log_std: float `[..., n]`, before the tanh.
    """

    mean: jax.Array
    log_std: jax.Array

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        """Draw raw actions `[..., n]`, before the tanh."""
        return self._gaussian.sample(seed=key)

    def mode(self) -> Float[Array, "..."]:
        """Return the likeliest raw action `[..., n]`."""
        return self.mean

    def log_prob(self, raw: Float[Array, "*batch {self.mean.shape[-1]}"]) -> Float[Array, "*batch"]:
        """Compute the log-density `[...]` of raw actions `[..., n]`, before the tanh."""
        return self._gaussian.log_prob(raw)

    def squashed_log_prob(
        self, raw: Float[Array, "*batch {self.mean.shape[-1]}"]
    ) -> Float[Array, "*batch"]:
        """Compute the log-density `[...]` of the actions `tanh(raw)`.

        Source: Haarnoja et al. 2018, appendix C, equation 21, https://arxiv.org/abs/1801.01290;
        log(1 - tanh(x)^2) is written as 2 (log 2 - x - softplus(-2 x)), which does not overflow.
        """
        correction = 2.0 * (math.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
        return self.log_prob(raw) - correction.sum(axis=-1)

    def entropy(self) -> Float[Array, "..."]:
        """Compute the entropy `[...]` in nats, before the tanh."""
        return self._gaussian.entropy()

    @property
    def _gaussian(self) -> Any:
        return distrax.MultivariateNormalDiag(self.mean, jnp.exp(self.log_std))


def squashed_gaussian(
    mean: Float[Array, "*batch n"], log_std: Float[Array, "*batch n"]
) -> SquashedGaussian:
    """Build a squashed Gaussian from its parameters before the tanh, float `[..., n]` each."""
    return SquashedGaussian(mean, log_std)


def policy(
    action_spec: Spec, heads: Mapping[str, jax.Array], action_mask: jax.Array | None = None
) -> Categorical | SquashedGaussian:
    """Build the distribution over actions from a network's heads.

    Args:
      action_spec: `Discrete`, which reads the head `logits` `[..., num_actions]`, or a bounded
        `Box` of `n` elements, which reads `mean` and `log_std` `[..., n]`.
      heads: arrays by name.
      action_mask: as in `categorical`; for discrete actions only.
    """
    if isinstance(action_spec, Discrete):
        return categorical(heads["logits"], action_mask)
    return squashed_gaussian(heads["mean"], heads["log_std"])


def to_action(action_spec: Spec, sample: jax.Array) -> jax.Array:
    """Convert a sample of `policy`, `[B]` or `[B, n]`, to an action `[B, *shape]`."""
    if not isinstance(action_spec, Box):
        return sample
    unit = jnp.tanh(sample).reshape((-1, *action_spec.shape))
    return to_bounds(action_spec, unit).astype(action_spec.dtype)


def to_bounds(spec: Box, unit: jax.Array) -> jax.Array:
    """Scale values within [-1, 1] to the bounds of a box, `[..., *shape]`."""
    low, high = (jnp.asarray(bound) for bound in spec.bounds())
    return jax.vmap(lambda one: low + (one + 1.0) * 0.5 * (high - low))(
        unit.reshape((-1, *spec.shape))
    ).reshape(unit.shape)
