"""Returns and losses, through rlax where it has them; terminated and truncated stay apart."""

import jax
import jax.numpy as jnp
import rlax

from ..hyper import Number
from ..numerics import divide_or_nan


def gae(
    reward: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    discount: Number,
    gae_lambda: Number,
) -> tuple[jax.Array, jax.Array]:
    """Estimate generalized advantages and lambda-returns.

    A_t = delta_t + discount * gae_lambda * (1 - ended_t) * A_{t+1}, with
    delta_t = r_t + discount * (1 - terminated_t) * V(s'_t) - V(s_t).

    Args:
      reward: float `[T, N]`.
      terminated: bool `[T, N]`, no bootstrap after termination.
      truncated: bool `[T, N]`, where the sum stops and V of the true successor is added.
      value: float `[T, N]`, V(s_t).
      next_value: float `[T, N]`, V(s'_t) of the true successor, from before any reset.
      discount: float `[]` within [0, 1].
      gae_lambda: float `[]` within [0, 1].

    Returns:
      Advantages and value targets (advantage + value), float `[T, N]` each, without gradient.

    Source: Schulman et al. 2016, equations 11-16, https://arxiv.org/abs/1506.02438; through
    `rlax.lambda_returns`, since `rlax.truncated_generalized_advantage_estimation` takes one
    `values[T+1]` and so cannot use V of the true successor in the middle of a rollout.
    """
    discount_t = discount * (1.0 - terminated.astype(jnp.float32))
    lambda_t = gae_lambda * (1.0 - truncated.astype(jnp.float32))
    target = jax.vmap(rlax.lambda_returns, in_axes=1, out_axes=1)(
        reward, discount_t, next_value, lambda_t
    )
    target = jax.lax.stop_gradient(jnp.asarray(target))
    return target - jax.lax.stop_gradient(value), target


def clipped_value_loss(
    value: jax.Array, old_value: jax.Array, target: jax.Array, epsilon: Number
) -> jax.Array:
    """Average half the squared error, or that of the clipped value where it is greater.

    L = mean(0.5 * max((v - target)^2, (old + clip(v - old, -epsilon, epsilon) - target)^2))

    Args:
      value: float `[B]`, of the network in training.
      old_value: float `[B]`, of the network that collected the data.
      target: float `[B]`.
      epsilon: float `[]`, clip range of the change of a value.

    Returns:
      float `[]`.

    Source: OpenAI baselines' PPO2, described by Huang et al. 2022, detail 9,
    https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/.
    """
    clipped = old_value + jnp.clip(value - old_value, -epsilon, epsilon)
    return 0.5 * jnp.mean(jnp.maximum((value - target) ** 2, (clipped - target) ** 2))


def explained_variance(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """Compute the share of the target's variance that the prediction explains; at most 1.

    Args:
      prediction, target: float, of one shape.

    Returns:
      float `[]`; NaN where the target is constant.
    """
    return 1.0 - divide_or_nan(jnp.var(target - prediction), jnp.var(target))
