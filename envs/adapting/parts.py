"""Actions of several parts, such as a row and a column, as one integer or one for each part."""

import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from ...core.errors import TriglotError
from ...core.specs import Box, Dict, Discrete, MultiDiscrete, Spec

MAX_ACTIONS = 10_000  # joint actions of one categorical distribution


@dataclass(frozen=True)
class Actions:
    """Conversion of triglot's actions to a library's.

    Attributes:
      spec: triglot's action spec.
      shape: shape of the library's action.
      dtype: dtype of the library's action.
      sizes: number of values of each entry of the library's action; empty for a continuous action.
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

        If no action is allowed, all are: a library then waits, or the episode is over.

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
            for part_mask in mask[1:]:
                joint = (joint[:, None] & part_mask[None, :]).reshape(-1)
        return joint | ~joint.any()


def actions_of(
    name: str,
    spec: Spec,
    mask_shape: tuple[int, ...] | None,
    joint: bool | None = None,
) -> Actions:
    """Convert a library's actions, perhaps of several parts, to triglot's.

    Args:
      name: the environment's name, for errors.
      spec: describes the library's action, with its dtype: a `Discrete`, a `MultiDiscrete`, a `Box`
        of floats, or a `Box` of integers, each with the values that the mask has.
      mask_shape: shape of the library's action mask, or None if there is none.
      joint: whether an action of several parts is one `Discrete` over all combinations, instead of
        a `MultiDiscrete`; None: where these are at most `MAX_ACTIONS`.

    Raises:
      TriglotError: if there are more than `MAX_ACTIONS` joint actions and one is wanted, or the
        mask allows combinations, which no `MultiDiscrete` can express.
    """
    assert not isinstance(spec, Dict)
    shape, dtype = spec.shape, spec.dtype
    if isinstance(spec, Box) and np.issubdtype(dtype, np.floating):
        if joint is not None:
            raise TriglotError(f"{name} has continuous actions: leave out joint_actions.")
        return Actions(replace(spec, shape=(math.prod(shape),)), shape, dtype)
    if isinstance(spec, MultiDiscrete):
        sizes = spec.num_values
    elif isinstance(spec, Discrete):
        sizes = (spec.num_values,)
    else:
        assert mask_shape is not None
        sizes = (mask_shape[-1],) * shape[0]
    count, factors = math.prod(sizes), " x ".join(map(str, sizes))
    by_part = len(set(sizes)) == 1 and mask_shape == (len(sizes), sizes[0])
    separable = len(sizes) > 1 and (mask_shape is None or (by_part and mask_shape != sizes))
    if joint is False and not separable:
        raise TriglotError(
            f"the mask of {name} allows combinations of parts ({factors}), and joint_actions=False "
            "needs a mask of each part: leave it out."
            if len(sizes) > 1
            else f"an action of {name} has one part: leave out joint_actions=False."
        )
    if separable and (joint is False or (joint is None and count > MAX_ACTIONS)):
        return Actions(MultiDiscrete(sizes), shape, dtype, sizes)
    if count > MAX_ACTIONS:
        raise TriglotError(
            f"{name} has {count:,} joint actions ({factors}), more than the limit of "
            f"{MAX_ACTIONS:,}: make the environment smaller with options"
            f"{', or leave out joint_actions=True' if separable else ''}."
        )
    return Actions(Discrete(count), shape, dtype, sizes)
