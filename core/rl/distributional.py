"""Temporal-difference errors of return distributions, given by atoms or by quantiles."""

import functools

import jax
import jax.numpy as jnp
import optax
import rlax
from jaxtyping import Array, Float

from .replay import Sample


def categorical_mean(
    logits: Float[Array, "B num_actions num_atoms"], atoms: Float[Array, " num_atoms"]
) -> Float[Array, "B num_actions"]:
    """Compute the means of categorical distributions.

    Args:
      logits: float `[B, num_actions, num_atoms]`.
      atoms: float `[num_atoms]`.

    Returns:
      Float `[B, num_actions]`.
    """
    return jnp.sum(jax.nn.softmax(logits) * atoms[None, None], axis=-1)


def categorical_q_learning(
    logits: Float[Array, "B num_actions num_atoms"],
    sample: Sample,
    next_logits: Float[Array, "B num_actions num_atoms"],
    next_q: Float[Array, "B num_actions"],
    atoms: Float[Array, " num_atoms"],
) -> Float[Array, " B"]:
    """Compute the divergence KL(Phi(r + discount * Z'(s', a*)) || Z(s, a)), a* = argmax_a next_q.

    Phi projects onto the atoms: each atom of the target gives its probability to its neighbours in
    proportion to their nearness, and those beyond the range to the first or the last atom.

    Args:
      logits: of Z, of the sampled observations.
      sample: `[B, ...]`.
      next_logits: of Z', of the next observations, by the target network.
      next_q: the values by which the next action is chosen; those of forbidden actions the lowest.
      atoms: increasing.

    Returns:
      Float `[B]`, at least 0; no gradient flows into the target.

    Source: Bellemare et al. 2017, equation 7 and algorithm 1, https://arxiv.org/abs/1707.06887. The
    gradient is that of `rlax.categorical_double_q_learning`, which returns the cross-entropy: the
    divergence and the target's entropy.
    """

    def project(reward: Array, discount: Array, logits: Array, q: Array) -> Array:
        support = reward + discount * atoms
        probabilities = jax.nn.softmax(logits[q.argmax()])
        return jnp.asarray(rlax.categorical_l2_project(support, probabilities, atoms))

    target = jax.vmap(project)(sample.reward, sample.discount, next_logits, next_q)
    chosen = jax.vmap(lambda row, action: row[action])(logits, sample.action)
    target = jax.lax.stop_gradient(target)
    return optax.losses.kl_divergence(jax.nn.log_softmax(chosen), target)


def tau_midpoints(batch_size: int, count: int) -> Float[Array, "B N"]:
    """Compute the midpoints of `count` equal parts of [0, 1], tau_i = (i - 1/2) / count, each row.

    Source: Dabney et al. 2017, lemma 2, https://arxiv.org/abs/1710.10044.

    >>> tau_midpoints(1, 4).tolist()
    [[0.125, 0.375, 0.625, 0.875]]
    """
    midpoints = (jnp.arange(count, dtype=jnp.float32) + 0.5) / count
    return jnp.broadcast_to(midpoints, (batch_size, count))


def quantile_q_learning(
    quantiles: Float[Array, "B N num_actions"],
    tau: Float[Array, "B N"],
    sample: Sample,
    next_quantiles: Float[Array, "B M num_actions"],
    next_q: Float[Array, "B num_actions"],
    huber_threshold: float,
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """Compute quantile regression losses, and the temporal-difference errors of the means.

    L = sum_i mean_j |tau_i - 1{u_ij < 0}| Huber(u_ij), u_ij = r + discount * theta'_j(s', a*) -
    theta_i(s, a), a* = argmax_a next_q; the error is the mean of u_ij.

    Args:
      quantiles: theta, of the sampled observations.
      tau: the quantiles' fractions, within [0, 1].
      sample: `[B, ...]`.
      next_quantiles: theta', of the next observations, by the target network.
      next_q: the values by which the next action is chosen; those of forbidden actions the lowest.
      huber_threshold: error from which the Huber loss is linear; 0 for the absolute error.

    Returns:
      Losses and errors, float `[B]` each; no gradient flows into the target.

    Source: Dabney et al. 2017, equations 9 and 10, https://arxiv.org/abs/1710.10044, by
    `rlax.quantile_q_learning`.
    """
    learn = functools.partial(rlax.quantile_q_learning, huber_param=huber_threshold)
    data = sample.action, sample.reward, sample.discount
    losses = jax.vmap(learn)(quantiles, tau, *data, next_q[:, None], next_quantiles)
    means = quantiles.mean(axis=1), *data, next_quantiles.mean(axis=1), next_q
    return jnp.asarray(losses), jnp.asarray(jax.vmap(rlax.double_q_learning)(*means))
