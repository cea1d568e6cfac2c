"""Exploration with action values: epsilon-greedy actions, probabilities and values, masks."""

import jax
import jax.numpy as jnp

from ..hyper import Number


def linear_schedule(start: Number, end: Number, num_steps: Number, step: jax.Array) -> jax.Array:
    """Change a number linearly from `start` at step 0 to `end` from step `num_steps` on.

    Args:
      start, end: float `[]`.
      num_steps: float `[]`, above 0.
      step: int32 `[]`, steps so far.

    Returns:
      float32 `[]`.

    >>> linear_schedule(1.0, 0.5, 4.0, jnp.array([0, 2, 9])).tolist()
    [1.0, 0.75, 0.5]
    """
    share = jnp.minimum(step.astype(jnp.float32) / num_steps, 1.0)
    return start + share * (end - start)


def greedy(q: jax.Array, action_mask: jax.Array | None) -> jax.Array:
    """Choose the allowed action of maximum value, the first of equal ones.

    Args:
      q: float `[N, num_actions]`.
      action_mask: bool `[N, num_actions]`, or None where all are allowed.

    Returns:
      int32 `[N]`.
    """
    return jnp.argmax(mask_q(q, action_mask), axis=-1).astype(jnp.int32)


def epsilon_greedy(
    greedy: jax.Array,
    num_actions: int,
    action_mask: jax.Array | None,
    epsilon: Number,
    key: jax.Array,
) -> jax.Array:
    """Replace greedy actions by random allowed ones with probability `epsilon`.

    Args:
      greedy: int32 `[N]`.
      num_actions: number of actions.
      action_mask: bool `[N, num_actions]`, or None where all are allowed.
      epsilon: float `[]` within [0, 1].
      key: a typed key.

    Returns:
      int32 `[N]`.
    """
    # One draw serves both decisions, since in a small loop a draw costs as much as all the rest: a
    # uniform number below epsilon, divided by epsilon, is uniform again.
    drawn = jax.random.uniform(key, greedy.shape)
    again = jnp.minimum(drawn / jnp.maximum(epsilon, 1e-8), 1.0 - 1e-6)
    if action_mask is None:
        chosen = (again * num_actions).astype(jnp.int32)
    else:
        rank = jnp.cumsum(action_mask.astype(jnp.int32), axis=-1)
        wanted = (again * rank[:, -1].astype(jnp.float32)).astype(jnp.int32)
        chosen = jnp.argmax(rank > wanted[:, None], axis=-1).astype(jnp.int32)
    return jnp.where(drawn < epsilon, chosen, greedy)


def epsilon_greedy_probs(
    q: jax.Array, epsilon: Number, action_mask: jax.Array | None = None
) -> jax.Array:
    """Compute the probabilities of an epsilon-greedy policy; equal values share them equally.

    Args:
      q: float `[B, num_actions]`.
      epsilon: probability of drawing uniformly from the allowed actions.
      action_mask: bool `[B, num_actions]`, or None where all are allowed.

    Returns:
      Float `[B, num_actions]`; sums to 1 up to rounding.

    >>> epsilon_greedy_probs(jnp.array([[1.0, 3.0, 3.0, 0.0]]), 0.5).tolist()
    [[0.125, 0.375, 0.375, 0.125]]
    """
    allowed = jnp.ones_like(q) if action_mask is None else action_mask.astype(q.dtype)
    q = mask_q(q, action_mask)
    best = (q == q.max(axis=-1, keepdims=True)).astype(q.dtype)

    def share(actions: jax.Array) -> jax.Array:
        return actions / actions.sum(axis=-1, keepdims=True)

    return epsilon * share(allowed) + (1.0 - epsilon) * share(best)


def mask_q(q: jax.Array, action_mask: jax.Array | None) -> jax.Array:
    """Set the values of forbidden actions to the lowest finite number.

    It is finite, so that it may be multiplied by the discount 0 of a terminal step.

    Args:
      q: float `[B, num_actions]`.
      action_mask: bool `[B, num_actions]`, or None where all are allowed.
    """
    return q if action_mask is None else jnp.where(action_mask, q, jnp.finfo(q.dtype).min)


def epsilon_greedy_value(
    q: jax.Array, epsilon: Number, action_mask: jax.Array | None = None
) -> jax.Array:
    """Average action values under their epsilon-greedy policy, `[B]`.

    Args:
      q, epsilon, action_mask: as in `epsilon_greedy_probs`.
    """
    # Equal maximum values share the rest of the probability, so that their mean is the maximum.
    maximum = jnp.max(mask_q(q, action_mask), axis=-1)
    return epsilon * jnp.mean(q, axis=-1, where=action_mask) + (1.0 - epsilon) * maximum


def sample_probs(probs: jax.Array, uniform: jax.Array) -> jax.Array:
    """Draw an action, int32 `[B]`, from each row of probabilities, with one random number each.

    Args:
      probs: float `[B, num_actions]`.
      uniform: float `[B]` within [0, 1).

    Source: inversion of the distribution function, Devroye 1986, section III.2.1.
    """
    num_actions = probs.shape[-1]
    up_to = jnp.tril(jnp.ones((num_actions, num_actions), probs.dtype))
    cumulative = jnp.sum(up_to[None] * probs[:, None, :], axis=-1)
    # Scaled to the sum, so that rounding never makes the last action more likely than it is.
    reached = uniform * cumulative[:, -1]
    return jnp.sum((reached[:, None] >= cumulative).astype(jnp.int32), axis=-1)


def at_action(q: jax.Array, action: jax.Array) -> jax.Array:
    """Pick `q[b, action[b]]`, `[B]`; its gradient is dense, which a small row is faster with."""
    chosen = jnp.arange(q.shape[-1], dtype=action.dtype)[None] == action[:, None]
    return jnp.sum(jnp.where(chosen, q, 0.0), axis=-1)


def soft_value(q: jax.Array, action_mask: jax.Array | None, temperature: Number) -> jax.Array:
    """Compute the value of the softmax policy with its entropy, a smooth maximum.

    V = temperature * log sum_a exp(Q(a) / temperature), the sum over a of pi(a) * (Q(a) -
    temperature * log pi(a)) with pi = softmax(Q / temperature), over allowed actions.

    Args:
      q: float `[B, num_actions]`.
      action_mask: bool `[B, num_actions]`, or None where all are allowed.
      temperature: float `[]`, above 0.

    Returns:
      Float `[B]`; the lowest finite number where no action is allowed.

    >>> float(soft_value(jnp.array([[1.0, 1.0]]), None, 2.0)[0])  # 1 + 2 log 2 = 2.38629...
    2.386...
    """
    value = temperature * jax.nn.logsumexp(mask_q(q, action_mask) / temperature, axis=-1)
    return jnp.maximum(value, jnp.finfo(q.dtype).min)


def noisy(
    action: jax.Array, std: Number, key: jax.Array, *, limit: Number | None = None
) -> jax.Array:
    """Add independent Gaussian noise to actions; the result is clipped to [-1, 1].

    Args:
      action: float `[B, n]` within [-1, 1].
      std: standard deviation of the noise.
      key: a typed key.
      limit: the noise itself is clipped to `[-limit, limit]`; None: it is not.
    """
    noise = std * jax.random.normal(key, action.shape, action.dtype)
    noise = noise if limit is None else jnp.clip(noise, -limit, limit)
    return jnp.clip(action + noise, -1.0, 1.0)
