"""Episodes that are cut from outside, such as by a run that is resumed on the host.

The rule, for whatever an agent keeps from one rollout to the next: where an episode starts
(`first`) although the step before has no end, that step was truncated, and its `next_obs` is the
true last observation. `Replay` and `SequenceReplay` apply it to their newest steps when others are
added; `discounted_sums` and the scaling of rewards start anew by `first` alone.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..agent import Trajectory


def truncated_or_cut(
    terminated: Bool[Array, "*steps"],
    truncated: Bool[Array, "*steps"],
    next_first: Bool[Array, "*steps"],
) -> Bool[Array, "*steps"]:
    """Find the steps after which an episode was truncated, or cut from outside.

    Args:
      terminated, truncated: bool `[...]`, how the steps ended their episodes.
      next_first: bool `[...]`, whether an episode starts at the step after each.

    Returns:
      bool `[...]`: bootstrap from the step's `next_obs`, and let no return go on.
    """
    return truncated | (next_first & ~terminated)


def truncations(steps: Trajectory) -> Bool[Array, "T N"]:
    """Find the steps of a trajectory after which an episode was truncated, or cut from outside.

    Args:
      steps: `[T, N]`; what follows the last step is unknown, so that only its flag counts.

    Returns:
      bool `[T, N]`, as `truncated_or_cut`.
    """
    next_first = jnp.concatenate([steps.first[1:], jnp.zeros_like(steps.first[:1])])
    return truncated_or_cut(steps.terminated, steps.truncated, next_first)
