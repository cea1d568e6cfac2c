"""Returns and losses, from rlax where it has them; terminated and truncated stay separate."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import rlax
from jaxtyping import Array, Bool, Float, Shaped
from jaxtyping import PyTree as TreeOf

from ..hyper import Number
from ..numerics import divide_or_nan
from ..types import PyTree


def gae(
    reward: Float[Array, "T N"],
    terminated: Bool[Array, "T N"],
    truncated: Bool[Array, "T N"],
    value: Float[Array, "T N"],
    next_value: Float[Array, "T N"],
    discount: Number,
    gae_lambda: Number,
) -> tuple[Float[Array, "T N"], Float[Array, "T N"]]:
    """Estimate generalized advantages and lambda-returns.

    A_t = G_t - V(s_t), where G_t is the lambda-return of `lambda_returns`. Where the true
    successor's value is the next step's, V(s'_t) = V(s_{t+1}), that is the paper's recursion
    A_t = delta_t + discount * gae_lambda * (1 - ended_t) * A_{t+1}, with
    delta_t = r_t + discount * (1 - terminated_t) * V(s'_t) - V(s_t); in general,
    discount * gae_lambda * (1 - ended_t) * (V(s_{t+1}) - V(s'_t)) is added to each A_t. They differ
    where V(s'_t) is another network's or an opponent's.

    Args:
      reward: float `[T, N]`.
      terminated: bool `[T, N]`; no bootstrap after a termination.
      truncated: bool `[T, N]`; the sum stops and bootstraps on V of the true successor.
      value: float `[T, N]`, V(s_t).
      next_value: float `[T, N]`, V(s'_t) of the true successor, from before any reset.
      discount: float `[]` or `[T, N]` within [0, 1]; negative where V(s'_t) is an opponent's.
      gae_lambda: float `[]` within [0, 1].

    Returns:
      Advantages and value targets (advantage + value), float `[T, N]` each, without gradient by the
      values and rewards; those by `discount` and `gae_lambda` are kept, for meta-gradients.

    Source: Schulman et al. 2016, equations 11-16, https://arxiv.org/abs/1506.02438; through
    `lambda_returns`, since `rlax.truncated_generalized_advantage_estimation` takes one
    `values[T+1]` and cannot use V of the true successor in the middle of a rollout.
    """
    target = lambda_returns(reward, terminated, truncated, next_value, discount, gae_lambda)
    return target - jax.lax.stop_gradient(value), target


def lambda_returns(
    reward: Float[Array, "T N"],
    terminated: Bool[Array, "T N"],
    truncated: Bool[Array, "T N"],
    next_value: Float[Array, "T N"],
    discount: Number,
    trace_decay: Number,
) -> Float[Array, "T N"]:
    """Mix the n-step returns of all n.

    G_t = r_t + discount * ((1 - trace_decay) * V(s'_t) + trace_decay * G_{t+1}), with
    G_t = r_t + discount * V(s'_t) where the rollout ends or a time limit ended the episode, and
    G_t = r_t where it terminated.

    Args:
      reward: float `[T, N]`.
      terminated, truncated: bool `[T, N]`.
      next_value: float `[T, N]`, V(s'_t) of the true successor, from before any reset.
      discount: float `[]` or `[T, N]` within [0, 1]; negative where V(s'_t) is an opponent's.
      trace_decay: float `[]` within [0, 1], lambda.

    Returns:
      float `[T, N]`, without gradient by the values and rewards.
    """
    reward, next_value = jax.lax.stop_gradient((reward, next_value))
    discount_t = discount * (1.0 - terminated.astype(jnp.float32))
    lambda_t = trace_decay * (1.0 - truncated.astype(jnp.float32))
    returns = jax.vmap(rlax.lambda_returns, in_axes=1, out_axes=1)
    return jnp.asarray(returns(reward, discount_t, next_value, lambda_t))


def vtrace(
    reward: Float[Array, "T N"],
    terminated: Bool[Array, "T N"],
    truncated: Bool[Array, "T N"],
    value: Float[Array, "T N"],
    next_value: Float[Array, "T N"],
    ratio: Float[Array, "T N"],
    discount: Number,
    trace_lambda: Number,
    rho_clip: Number,
    pg_rho_clip: Number,
) -> tuple[Float[Array, "T N"], Float[Array, "T N"]]:
    """Estimate advantages and value targets of a policy from the rollout of another.

    v_t = V(s_t) + min(rho_clip, ratio_t) * delta_t + discount * c_t * (v_{t+1} - V(s_{t+1})), with
    delta_t = r_t + discount * (1 - terminated_t) * V(s'_t) - V(s_t) and
    c_t = trace_lambda * min(1, ratio_t), which is 0 after an episode's end (equation 1);
    A_t = min(pg_rho_clip, ratio_t) * (r_t + discount * v_{t+1} - V(s_t)) (section 4.2), where
    v_{t+1} is V of the true successor at the end of an episode or of the rollout; before it,
    with a `trace_lambda` below 1, V(s_{t+1}) + trace_lambda * (v_{t+1} - V(s_{t+1})), as in rlax.

    Args:
      reward, terminated, truncated, value, next_value, discount: as `gae` takes them; the values
        are those of the policy that learns.
      ratio: float `[T, N]`, its probability of the action over that of the policy that acted.
      trace_lambda: float `[]` within [0, 1].
      rho_clip, pg_rho_clip: float `[]`, clip thresholds of the ratio.

    Returns:
      Advantages and value targets, float `[T, N]` each, without gradient.

    Source: Espeholt et al. 2018, https://arxiv.org/abs/1802.01561; through `rlax.vtrace`, since
    `rlax.vtrace_td_error_and_advantage` reads v_{t+1} of the next step, which is another episode's
    after a truncated one.
    """
    discount_t = discount * (1.0 - terminated.astype(jnp.float32))
    lambda_t = trace_lambda * (1.0 - truncated.astype(jnp.float32))
    clip: Any = rho_clip  # rlax declares a Python number, and takes arrays.

    def errors_of(*steps: jax.Array) -> jax.Array:
        errors = rlax.vtrace(*steps, clip_rho_threshold=clip, stop_target_gradients=False)
        return jnp.asarray(errors)

    steps = (value, next_value, reward, discount_t, ratio, lambda_t)
    # rlax multiplies by a mask of booleans, which strict promotion rejects.
    with jax.numpy_dtype_promotion("standard"):
        error = jax.vmap(errors_of, in_axes=1, out_axes=1)(*jax.lax.stop_gradient(steps))
    next_error = jnp.concatenate([error[1:], jnp.zeros_like(error[:1])])
    q = reward + discount_t * (next_value + lambda_t * next_error)
    advantage = jnp.minimum(pg_rho_clip, ratio) * (q - value)
    return jax.lax.stop_gradient((advantage, value + error))


def successor_values(
    value_of: Callable[[PyTree], Array],
    value: Float[Array, "T N *more"],
    successors: TreeOf[Shaped[Array, "T N ..."]],
    terminated: Bool[Array, "T N"],
    truncated: Bool[Array, "T N"],
) -> Float[Array, "T N *more"]:
    """Estimate V, or Q of all actions, of a rollout's true successors, from before any reset.

    The successor of a step is the next step's observation, whose value is known. The network is
    applied only where it is not: after the last step, and where a time limit ended an episode.

    Args:
      value_of: estimates V, float `[N]`, or Q, `[N, num_actions]`, of observations `[N, ...]`.
      value: V of each step's observation.
      successors: the true successors' observations.
      terminated: steps after which there is no bootstrap; their entries are not meaningful.
      truncated: steps after which a time limit ended the episode.

    Returns:
      float, of the shape of `value`.
    """
    steps = jnp.arange(len(value))
    unknown = (truncated | (steps == steps[-1])[:, None]) & ~terminated

    def estimate_first(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        # A conditional around a second pass over all steps would save nothing: under `vmap` over
        # seeds both of its branches are computed.
        unknown, values = carry
        index = jnp.argmax(unknown, axis=0, keepdims=True)  # of each environment, its first one

        def pick(leaf: Array) -> Array:
            one_each = index.reshape(index.shape + (1,) * (leaf.ndim - 2))
            return jnp.take_along_axis(leaf, one_each, axis=0)[0]

        estimates = value_of(jax.tree.map(pick, successors))
        here = unknown & (steps[:, None] == index)
        rows = here.reshape(here.shape + (1,) * (values.ndim - 2))
        return unknown & ~here, jnp.where(rows, estimates, values)

    known = jnp.concatenate([value[1:], jnp.zeros_like(value[:1])])
    start = (unknown, known)
    # Under `vmap`, each seed's passes are those that it would have alone: no seed depends on the
    # time limits of another.
    return jax.lax.while_loop(lambda carry: carry[0].any(), estimate_first, start)[1]


def clipped_value_loss(
    value: Float[Array, " B"],
    old_value: Float[Array, " B"],
    target: Float[Array, " B"],
    epsilon: Number,
) -> Float[Array, ""]:
    """Average the greater of the squared errors of the value and of the clipped value, halved.

    L = mean(0.5 * max((v - target)^2, (old + clip(v - old, -epsilon, epsilon) - target)^2))

    Args:
      value: float `[B]`, prediction of the current parameters.
      old_value: float `[B]`, prediction of the parameters that collected the data.
      target: float `[B]`.
      epsilon: float `[]`, clip range of the change in value.

    Returns:
      float `[]`.

    Source: OpenAI baselines' PPO2, described by Huang et al. 2022, detail 9,
    https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/.
    """
    clipped = old_value + jnp.clip(value - old_value, -epsilon, epsilon)
    return 0.5 * jnp.mean(jnp.maximum((value - target) ** 2, (clipped - target) ** 2))


def ensemble_loss(
    q: Float[Array, "M B"], target: Float[Array, " B"], weight: Float[Array, " B"] | None = None
) -> Float[Array, ""]:
    """Average half the squared errors over samples, and sum them over the members of an ensemble.

    L = sum_i mean(0.5 * w * (q_i - target)^2)

    Args:
      q: float `[M, B]`, of `M` critics.
      target: float `[B]`, the same for all.
      weight: of the samples, float `[B]`; None for 1.
    """
    losses = jax.vmap(lambda member_q: rlax.l2_loss(member_q, target))(q)
    return jnp.mean(losses if weight is None else losses * weight[None], axis=1).sum()


def explained_variance(
    prediction: Float[Array, "*batch"], target: Float[Array, "*batch"]
) -> Float[Array, ""]:
    """Compute the fraction of the target's variance that the prediction explains, at most 1.

    Args:
      prediction, target: float, of equal shapes.

    Returns:
      float `[]`; NaN for a constant target.
    """
    return 1.0 - divide_or_nan(jnp.var(target - prediction), jnp.var(target))
