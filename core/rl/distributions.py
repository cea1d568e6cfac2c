"""Distributions over actions, built from the raw arrays that networks output."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import distrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, PRNGKeyArray

from ..errors import TriglotError
from ..specs import HOW_TO_BOUND, Box, Discrete, MultiDiscrete, Spec


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Categorical:
    """A distribution over `num_actions` actions; make it with `categorical`.

    Attributes:
      log_probs: float `[..., num_actions]`, normalised and finite.
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

    def kl_terms(self, other: "Categorical") -> dict[str, jax.Array]:
        """Compute the KL divergence `policy` `[...]` from this to `other`, which has its mask."""
        difference = self.log_probs - other.log_probs
        return {"policy": jnp.sum(jnp.exp(self.log_probs) * difference, axis=-1)}


def categorical(
    logits: Float[Array, "*batch num_actions"],
    action_mask: Bool[Array, "*batch num_actions"] | None = None,
) -> Categorical:
    """Build a categorical distribution over the allowed actions.

    Args:
      logits: float `[..., num_actions]`, unnormalised.
      action_mask: bool `[..., num_actions]`, True where an action is allowed; None allows all.

    Returns:
      The distribution. A masked action, and one whose logit is -inf, has probability 0, a finite
      log-probability, and contributes 0 to the entropy and its gradient.
    """
    lowest = jnp.finfo(logits.dtype).min
    if action_mask is not None:
        logits = jnp.where(action_mask, logits, lowest)
    # -65504 - 1 is -inf in float16, and 0 * -inf in the entropy would be NaN.
    return Categorical(jnp.maximum(jax.nn.log_softmax(logits), lowest))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MultiCategorical:
    """Independent distributions over `n` integers; make it with `multi_categorical`.

    Attributes:
      parts: of each integer, `[..., n]`; values that an integer does not have are masked.
    """

    parts: Categorical

    def sample(self, key: PRNGKeyArray) -> Integer[Array, "..."]:
        """Draw int32 actions `[..., n]`."""
        return self.parts.sample(key)

    def mode(self) -> Integer[Array, "..."]:
        """Return the likeliest action, int32 `[..., n]`."""
        return self.parts.mode()

    def log_prob(self, action: Integer[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """Compute the log-probability `[...]` of integer actions `[..., n]`: the parts' sum."""
        return self.parts.log_prob(action).sum(axis=-1)

    def entropy(self) -> Float[Array, "..."]:
        """Compute the entropy `[...]` in nats: the parts' sum."""
        return self.parts.entropy().sum(axis=-1)

    def kl_terms(self, other: "MultiCategorical") -> dict[str, jax.Array]:
        """Compute the KL divergence `policy` `[...]` from this to `other`: the parts' sum."""
        terms = self.parts.kl_terms(other.parts)
        return {name: term.sum(axis=-1) for name, term in terms.items()}


def multi_categorical(
    num_values: tuple[int, ...],
    logits: Float[Array, "*batch values"],
    action_mask: Bool[Array, "*batch values"] | None = None,
) -> MultiCategorical:
    """Build independent categorical distributions over several integers.

    Args:
      num_values: of each integer.
      logits: float `[..., sum(num_values)]`, unnormalised: those of the first integer's values,
        then those of the second's, and so on.
      action_mask: bool `[..., sum(num_values)]`, True where an integer may have a value; None
        allows all.

    >>> actor = multi_categorical((2, 3), jnp.log(jnp.array([1.0, 3.0, 2.0, 1.0, 1.0])))
    >>> actor.mode().tolist(), round(float(jnp.exp(actor.log_prob(actor.mode()))), 3)
    ([1, 0], 0.375)
    """
    ends, largest = list(itertools.accumulate(num_values))[:-1], max(num_values)

    def rows(array: jax.Array, fill: float | bool) -> jax.Array:
        """Reshape `[..., sum(num_values)]` to `[..., n, largest]`."""
        parts = jnp.split(array, ends, axis=-1)
        before = [(0, 0)] * (array.ndim - 1)
        padded = (
            jnp.pad(part, [*before, (0, largest - part.shape[-1])], constant_values=fill)
            for part in parts
        )
        return jnp.stack(list(padded), axis=-2)

    mask = None if action_mask is None else rows(action_mask, False)
    return MultiCategorical(categorical(rows(logits, -jnp.inf), mask))


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

    def kl_terms(self, other: "SquashedGaussian") -> dict[str, jax.Array]:
        """Compute the KL divergences `[...]` to `other`, of the `mean` and of the `std` alone.

        `mean` is to the Gaussian with the other's mean and this one's deviation, `std` to the one
        with this mean and the other's deviation; the tanh changes neither.

        Source: Abdolmaleki et al. 2018, https://arxiv.org/abs/1812.02256, section 4.3.
        """
        shift = (self.mean - other.mean) * jnp.exp(-self.log_std)
        log_ratio = other.log_std - self.log_std
        spread = log_ratio + 0.5 * (jnp.exp(-2.0 * log_ratio) - 1.0)
        return {"mean": 0.5 * jnp.sum(shift**2, axis=-1), "std": jnp.sum(spread, axis=-1)}

    @property
    def _gaussian(self) -> Any:
        return distrax.MultivariateNormalDiag(self.mean, jnp.exp(self.log_std))


def squashed_gaussian(
    mean: Float[Array, "*batch n"], log_std: Float[Array, "*batch n"]
) -> SquashedGaussian:
    """Build a squashed Gaussian from its parameters before the tanh, float `[..., n]` each."""
    return SquashedGaussian(mean, log_std)


Policy: TypeAlias = Categorical | MultiCategorical | SquashedGaussian
"""A distribution over actions: `sample`, `mode`, `log_prob` and `entropy`."""


def policy(
    action_spec: Spec, heads: Mapping[str, jax.Array], action_mask: jax.Array | None = None
) -> Policy:
    """Build the distribution over actions from a network's heads.

    Args:
      action_spec: `Discrete`, which reads the head `logits` `[..., num_actions]`; `MultiDiscrete`,
        which reads `logits` `[..., sum(num_values)]`; or a bounded `Box` of `n` elements, which
        reads `mean` and `log_std` `[..., n]`.
      heads: arrays by name.
      action_mask: as in `categorical` and `multi_categorical`; not for a `Box`.
    """
    if isinstance(action_spec, Discrete):
        return categorical(heads["logits"], action_mask)
    if isinstance(action_spec, MultiDiscrete):
        return multi_categorical(action_spec.num_values, heads["logits"], action_mask)
    return squashed_gaussian(heads["mean"], heads["log_std"])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WeightedActions:
    """Actions that estimate a policy's expectations; make it with `weighted_actions`.

    Attributes:
      policy: at `B` states.
      raw: one drawn action for each state, float `[B, n]` before the tanh; None where actions are
        discrete: all count, with their probabilities.
    """

    policy: Categorical | SquashedGaussian
    raw: jax.Array | None

    @property
    def action(self) -> jax.Array | None:
        """The drawn actions, float `[B, n]` within [-1, 1]; None for all discrete ones."""
        return None if self.raw is None else jnp.tanh(self.raw)

    @property
    def log_prob(self) -> jax.Array:
        """The log-probabilities `[B, num_actions]`, or log-densities `[B]` of the drawn actions."""
        if isinstance(self.policy, Categorical):
            return self.policy.log_probs
        assert self.raw is not None
        return self.policy.squashed_log_prob(self.raw)

    def mean(self, values: Float[Array, "B ..."]) -> Float[Array, " B"]:
        """Average values `[B, num_actions]` by their probabilities; those of drawn actions stay."""
        if isinstance(self.policy, Categorical):
            return jnp.sum(jnp.exp(self.policy.log_probs) * values, axis=-1)
        return values


def weighted_actions(policy: Categorical | SquashedGaussian, key: PRNGKeyArray) -> WeightedActions:
    """Draw an action of a continuous policy; take all actions of a discrete one.

    The gradient of an expectation passes through the drawn action, or through the probabilities.
    """
    return WeightedActions(policy, None if isinstance(policy, Categorical) else policy.sample(key))


def squashed(policy: Categorical | SquashedGaussian, raw: jax.Array) -> jax.Array:
    """Convert raw actions of a policy to those within [-1, 1]; discrete ones are unchanged."""
    return raw if isinstance(policy, Categorical) else jnp.tanh(raw)


def to_action(action_spec: Spec, raw: jax.Array, *, clipped: bool = False) -> jax.Array:
    """Convert samples of `policy`, `[B]` or `[B, n]` before the bounds, to actions `[B, *shape]`.

    Args:
      action_spec: one action.
      raw: the samples.
      clipped: whether those of a Box are clipped to its bounds, which nothing scales, as in
        Stable-Baselines3 and CleanRL; else they are squashed by a tanh, and scaled.
    """
    if isinstance(action_spec, Box) and clipped:
        low, high = (jnp.asarray(bound) for bound in action_spec.bounds())
        clip = jax.vmap(lambda value: jnp.clip(value, low, high))
        return clip(raw.reshape((-1, *action_spec.shape))).astype(action_spec.dtype)
    if isinstance(action_spec, Box):
        return from_unit_box(action_spec, jnp.tanh(raw))
    return raw.astype(action_spec.dtype) if isinstance(action_spec, MultiDiscrete) else raw


def unit_box(action_spec: Spec, *, algorithm: str) -> Box:
    """Describe continuous actions rescaled to [-1, 1] and flattened, as critics read them.

    Args:
      action_spec: a bounded `Box` of floats.
      algorithm: its name, for the message.

    Raises:
      TriglotError: if the actions are something else.
    """
    floats = isinstance(action_spec, Box) and jnp.issubdtype(action_spec.dtype, jnp.floating)
    if not isinstance(action_spec, Box) or not floats or not action_spec.bounded:
        advice = "choose an environment with such actions, or PPO, which takes all kinds of actions"
        raise TriglotError(
            f"{algorithm} needs a bounded Box of float actions, but this environment has "
            f"{action_spec}: {HOW_TO_BOUND if floats else advice}."
        )
    return Box((math.prod(action_spec.shape),), "float32", -1.0, 1.0)


def unit_actions(action_spec: Spec, *, algorithm: str, discrete: bool = True) -> Box | Discrete:
    """Describe actions as critics read them: `Discrete` unchanged if `discrete`, or `unit_box`.

    Raises:
      TriglotError: if the actions are something else.
    """
    if discrete and isinstance(action_spec, Discrete):
        return action_spec
    return unit_box(action_spec, algorithm=algorithm)


def from_unit_box(action_spec: Spec, unit: jax.Array) -> jax.Array:
    """Scale actions `[B, n]` within [-1, 1] to a box's bounds, `[B, *shape]`.

    Raises:
      TriglotError: if the actions are not a box.
    """
    if not isinstance(action_spec, Box):
        raise TriglotError(f"only actions of a Box have bounds, got {action_spec}.")
    low, high = (jnp.asarray(bound) for bound in action_spec.bounds())
    scale = jax.vmap(lambda value: low + (value + 1.0) * 0.5 * (high - low))
    return scale(unit.reshape((-1, *action_spec.shape))).astype(action_spec.dtype)
