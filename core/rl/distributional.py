"""Return distributions by action, given by atoms or by quantiles."""

import functools

import jax
import jax.numpy as jnp
import rlax
from jaxtyping import Array, Float

from ..hyper import Number
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


def categorical_target(
    sample: Sample,
    next_logits: Float[Array, "B num_actions num_atoms"],
    next_q: Float[Array, "B num_actions"],
    atoms: Float[Array, " num_atoms"],
) -> Float[Array, "B num_atoms"]:
    """Project r + discount * Z(s', a*), a* = argmax_a next_q, onto the atoms.

    Each atom of it gives its probability to its two neighbours, in proportion to their nearness;
    those beyond the range give it to the first or the last atom.

    Args:
      sample: `[B, ...]`.
      next_logits: of Z, of the next observations.
      next_q: the values by which the next action is chosen; those of forbidden actions the lowest.
      atoms: increasing.

    Returns:
      Probabilities, float `[B, num_atoms]`, without gradient.

    Source: Bellemare et al. 2017, equation 7, https://arxiv.org/abs/1707.06887, by
    `rlax.categorical_l2_project`.
    """

    def project(reward: Array, discount: Array, logits: Array, q: Array) -> Array:
        probabilities = jax.nn.softmax(logits[q.argmax()])
        support = reward + discount * atoms
        return jnp.asarray(rlax.categorical_l2_project(support, probabilities, atoms))

    target = jax.vmap(project)(sample.reward, sample.discount, next_logits, next_q)
    return jax.lax.stop_gradient(target)


def tau_midpoints(batch_size: int, count: int) -> Float[Array, "B N"]:
    """Compute the midpoints of `count` equal parts of [0, 1], tau_i = (i - 1/2) / count, each row.

    Source: Dabney et al. 2017, lemma 2, https://arxiv.org/abs/1710.10044.

    >>> tau_midpoints(1, 4).tolist()
    [[0.125, 0.375, 0.625, 0.875]]
    """
    midpoints = (jnp.arange(count, dtype=jnp.float32) + 0.5) / count
    return jnp.broadcast_to(midpoints, (batch_size, count))


def huber_quantile_losses(
    quantiles: Float[Array, "B N num_actions"],
    tau: Float[Array, "B N"],
    sample: Sample,
    next_q: Float[Array, "B num_actions"],
    next_quantiles: Float[Array, "B M num_actions"],
    threshold: Number,
) -> Float[Array, " B"]:
    """Compute the quantile regression losses sum_i E_j[|tau_i - 1{u_ij < 0}| Huber(u_ij)].

    u_ij = r + discount * next_quantiles_j(a*) - quantiles_i(a), a* = argmax_a next_q. `rlax` takes
    the threshold k as a Python number; so it gets errors divided by it: Huber_k(u) = k^2
    Huber_1(u / k).

    Args:
      quantiles: of the observations, at `tau`.
      tau: within [0, 1].
      sample: `[B, ...]`.
      next_q: the values by which the next action is chosen; those of forbidden actions the lowest.
      next_quantiles: of the next observations.
      threshold: error from which the loss is linear, above 0, float `[]`.

    Source: Dabney et al. 2017, equations 9 and 10, https://arxiv.org/abs/1710.10044, by
    `rlax.quantile_q_learning`.
    """
    regress = jax.vmap(functools.partial(rlax.quantile_q_learning, huber_param=1.0))
    scaled, after = quantiles / threshold, next_quantiles / threshold
    data = sample.action, sample.reward / threshold, sample.discount
    return threshold**2 * jnp.asarray(regress(scaled, tau, *data, next_q[:, None], after))


def lowest_quantiles(quantiles: Float[Array, "N B M"], num_dropped: int) -> Float[Array, "B kept"]:
    """Join the quantiles of an ensemble, without the highest ones.

    Args:
      quantiles: of `N` members.
      num_dropped: how many are left out for each member, below `M`.

    Returns:
      The `N * (M - num_dropped)` lowest ones, in increasing order, float `[B, N * (M - d)]`.

    Source: Kuznetsov et al. 2020, section 3, https://arxiv.org/abs/2005.04269.
    """
    num_members, batch_size, count = quantiles.shape
    joined = jnp.moveaxis(quantiles, 0, 1).reshape((batch_size, num_members * count))
    return jnp.sort(joined, axis=-1)[:, : num_members * (count - num_dropped)]


def ensemble_quantile_losses(
    quantiles: Float[Array, "N B M"], target: Float[Array, "B K"], threshold: Number
) -> Float[Array, "N B"]:
    """Compute E_{i, m}[|tau_m - 1{u < 0}| Huber(u) / threshold], u = target_i - quantiles_m.

    The tau_m are midpoints, see `tau_midpoints`.

    Args:
      quantiles: of `N` members.
      target: samples of the same distribution for all members.
      threshold: error from which the loss is linear, above 0, float `[]`.

    Source: Kuznetsov et al. 2020, section 3, https://arxiv.org/abs/2005.04269; Dabney et al. 2017,
    equation 10, https://arxiv.org/abs/1710.10044, by `rlax.quantile_regression_loss`, which gets
    errors divided by the threshold, as in `huber_quantile_losses`.
    """
    target = jax.lax.stop_gradient(target) / threshold
    (tau,) = tau_midpoints(1, quantiles.shape[-1])
    regress = functools.partial(rlax.quantile_regression_loss, huber_param=1.0)
    of_batch = jax.vmap(regress, in_axes=(0, None, 0))
    losses = jax.vmap(of_batch, in_axes=(0, None, None))(quantiles / threshold, tau, target)
    return threshold * jnp.asarray(losses) / quantiles.shape[-1]
