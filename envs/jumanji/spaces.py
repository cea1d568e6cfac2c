"""Conversion of jumanji's specs: flat or nested observations, actions of one or several parts."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.errors import TriglotError
from ...core.specs import Box, Dict, Discrete, MultiDiscrete, Spec, bound_of
from ...core.types import PyTree

# Limit on the joint actions of one categorical distribution.
MAX_ACTIONS = 10_000
# Fields excluded from vectors: the mask is a field of TimeStep, and the step count is irrelevant to
# a task whose time limit truncates.
_NOT_IN_VECTOR = ("action_mask", "step_count")


@dataclass(frozen=True)
class Actions:
    """Conversion of triglot's actions to jumanji's.

    Attributes:
      spec: triglot's action spec.
      shape: shape of jumanji's action.
      dtype: dtype of jumanji's action.
      sizes: number of values of each entry of jumanji's action; empty for a continuous action.
    """

    spec: Discrete | MultiDiscrete | Box
    shape: tuple[int, ...]
    dtype: str
    sizes: tuple[int, ...] = ()

    def to_library(self, action: jax.Array) -> jax.Array:
        """Convert an action; a joint action is a row-major index of its entries."""
        if not isinstance(self.spec, Discrete) or not self.shape:
            return action.reshape(self.shape).astype(self.dtype)
        return jnp.stack(jnp.unravel_index(action, self.sizes)).astype(self.dtype)

    def mask(self, mask: jax.Array) -> jax.Array:
        """Compute the mask of joint actions, bool `[num_actions]`, or of all parts' values.

        If jumanji allows no action, all are allowed: FlatPack then waits, other episodes are over.

        Args:
          mask: one entry per joint action, of shape `sizes`; or one row per agent, and a joint
            action is allowed if every agent's part is.
        """
        if isinstance(self.spec, MultiDiscrete):
            return (mask | ~mask.any(axis=-1, keepdims=True)).reshape(-1)
        if mask.shape == self.sizes:
            joint = mask.reshape(-1)
        else:
            joint = mask[0]
            for own in mask[1:]:
                joint = (joint[:, None] & own[None, :]).reshape(-1)
        return joint | ~joint.any()


def actions_of(
    name: str, spec: Any, mask_shape: tuple[int, ...] | None, joint: bool | None = None
) -> Actions:
    """Convert jumanji's action spec.

    Args:
      name: the environment's name, for errors.
      spec: a `DiscreteArray`, a `MultiDiscreteArray` or a `BoundedArray`.
      mask_shape: shape of jumanji's action mask, or None if there is none.
      joint: whether an action of several parts is one `Discrete` over all combinations, instead of
        a `MultiDiscrete`; None: where these are at most `MAX_ACTIONS`.

    Raises:
      TriglotError: if there are more than `MAX_ACTIONS` joint actions and one is wanted, or the
        mask allows combinations, which no `MultiDiscrete` can express.
    """
    dtype = str(spec.dtype)
    if np.issubdtype(spec.dtype, np.floating):
        if joint is not None:
            raise TriglotError(f"{name} has continuous actions: leave out joint_actions.")
        low, high = (bound_of(np.broadcast_to(b, spec.shape)) for b in (spec.minimum, spec.maximum))
        return Actions(Box((math.prod(spec.shape),), dtype, low, high), spec.shape, dtype)
    if hasattr(spec, "num_values"):
        sizes = tuple(np.ravel(spec.num_values).tolist())
    else:  # MultiCVRP: one integer per vehicle, whose declared maximum is too large by 1
        assert mask_shape is not None
        sizes = (mask_shape[-1],) * spec.shape[0]
    count, each = math.prod(sizes), " x ".join(map(str, sizes))
    by_part = len(set(sizes)) == 1 and mask_shape == (len(sizes), sizes[0])
    separable = len(sizes) > 1 and (mask_shape is None or (by_part and mask_shape != sizes))
    if joint is False and not separable:
        raise TriglotError(
            f"the mask of {name} allows combinations of parts ({each}), and joint_actions=False "
            "needs a mask of each part: leave it out."
            if len(sizes) > 1
            else f"an action of {name} has one part: leave out joint_actions=False."
        )
    if separable and (joint is False or (joint is None and count > MAX_ACTIONS)):
        return Actions(MultiDiscrete(sizes), spec.shape, dtype, sizes)
    if count > MAX_ACTIONS:
        raise TriglotError(
            f"{name} has {count:,} joint actions ({each}), more than the limit of "
            f"{MAX_ACTIONS:,}: make the environment smaller with options"
            f"{', or leave out joint_actions=True' if separable else ''}."
        )
    return Actions(Discrete(count), spec.shape, dtype, sizes)


def dict_spec(spec: Any, returned: Any) -> Spec:
    """Convert jumanji's observation spec, with the dtypes of the returned observation."""
    children = getattr(spec, "_specs", None)
    if children:
        return Dict({n: dict_spec(child, getattr(returned, n)) for n, child in children.items()})
    dtype = str(returned.dtype)
    if hasattr(spec, "num_values"):
        # Values include -1 (no position yet) and `num_values` (after the last step).
        return Box((), dtype, -1, spec.num_values)
    if not hasattr(spec, "minimum"):
        return Box(tuple(spec.shape), dtype)
    low, high = (bound_of(np.broadcast_to(b, spec.shape)) for b in (spec.minimum, spec.maximum))
    return Box(tuple(spec.shape), dtype, low, high)


def to_dict(spec: Any, obs: Any) -> PyTree:
    """Convert jumanji's observation to nested dictionaries."""
    children = getattr(spec, "_specs", None)
    if not children:
        return obs
    return {name: to_dict(child, getattr(obs, name)) for name, child in children.items()}


def vector_spec(spec: Any, returned: Any) -> Box:
    """Build the spec of `to_vector`'s result."""
    low, high = [], []
    for leaf, _ in _leaves(spec, returned):
        if hasattr(leaf, "num_values"):
            low += [0.0] * leaf.num_values
            high += [1.0] * leaf.num_values
        else:
            size = math.prod(leaf.shape)
            for bounds, name, default in ((low, "minimum", -math.inf), (high, "maximum", math.inf)):
                bound = np.asarray(getattr(leaf, name, default), np.float64)
                bounds += np.broadcast_to(bound, leaf.shape).ravel().tolist() if size else []
    return Box((len(low),), "float32", bound_of(np.array(low)), bound_of(np.array(high)))


def to_vector(spec: Any, obs: Any) -> jax.Array:
    """Flatten an observation to one float32 vector, in jumanji's order.

    A `DiscreteArray` becomes one-hot, with zeros for -1.
    """
    parts = [
        jax.nn.one_hot(value, leaf.num_values, dtype=jnp.float32)
        if hasattr(leaf, "num_values")
        else value.astype(jnp.float32).reshape(-1)
        for leaf, value in _leaves(spec, obs)
    ]
    return jnp.concatenate(parts)


def _leaves(spec: Any, obs: Any) -> Iterator[tuple[Any, Any]]:
    for name, child in spec._specs.items():
        value = getattr(obs, name)
        if getattr(child, "_specs", None):
            yield from _leaves(child, value)
        elif name not in _NOT_IN_VECTOR:
            yield child, value
