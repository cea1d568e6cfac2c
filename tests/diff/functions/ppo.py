"""PPO's loss as `(init, apply)`, with differences that a test plants."""

from typing import Any

import jax
import jax.numpy as jnp

INPUTS = {
    "obs": "float32:32,4",
    "action": "action:32",
    "old_log_prob": "log_prob:32",
    "old_value": "value:32",
    "advantage": "advantage:32",
    "target": "return:32",
    "mask": "flag:32",
}


def init(key: jax.Array) -> Any:
    hidden, policy, value = jax.random.split(key, 3)
    return {
        "hidden": {"w": jax.random.normal(hidden, (4, 16)) * 0.5, "b": jnp.zeros(16)},
        "policy": {"w": jax.random.normal(policy, (16, 2)) * 0.1, "b": jnp.zeros(2)},
        "value": {"w": jax.random.normal(value, (16, 1)) * 0.1, "b": jnp.zeros(1)},
    }


def heads(params: Any, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    hidden = jnp.tanh(obs @ params["hidden"]["w"] + params["hidden"]["b"][None])
    value = hidden @ params["value"]["w"] + params["value"]["b"][None]
    return hidden @ params["policy"]["w"] + params["policy"]["b"][None], value[..., 0]


def mean_of(losses: jax.Array, mask: jax.Array, how: str) -> jax.Array:
    if how == "sum":
        return losses.sum()
    if how == "mask":
        return (losses * mask).sum() / mask.sum()
    if how == "mask_mean":
        return (losses * mask).mean()
    return losses.mean()


def make(
    standardize: bool = True,
    ddof: int = 0,
    std_eps: float = 1e-8,
    clip: float = 0.2,
    surrogate: str = "min",
    clip_value: str = "max",
    value_coef: float = 0.5,
    entropy: str = "subtract",
    average: str = "mean",
    stop: str = "",
    sign: float = 1.0,
    order: str = "",
) -> Any:
    """Build the loss with some differences from the defaults."""

    def apply(
        params: Any,
        obs: jax.Array,
        action: jax.Array,
        old_log_prob: jax.Array,
        old_value: jax.Array,
        advantage: jax.Array,
        target: jax.Array,
        mask: jax.Array,
    ) -> jax.Array:
        logits, value = heads(params, obs)
        log_probs = jax.nn.log_softmax(logits)
        log_prob = jnp.take_along_axis(log_probs, action[:, None], -1)[:, 0]
        ratio = jnp.exp(log_prob - old_log_prob)
        if standardize:
            deviation = advantage.std(ddof=ddof) + std_eps
            advantage = (advantage - advantage.mean()) / deviation
        if stop == "ratio":
            ratio = jax.lax.stop_gradient(ratio)
        plain, clipped = ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage
        if surrogate == "min":
            surrogates = jnp.minimum(plain, clipped)
        elif surrogate == "max":
            surrogates = jnp.maximum(plain, clipped)
        else:
            surrogates = {"plain": plain, "clipped": clipped}[surrogate]
        policy_loss = -mean_of(surrogates, mask, average)
        error = (value - target) ** 2
        near = (old_value + jnp.clip(value - old_value, -clip, clip) - target) ** 2
        if clip_value == "max":
            error = jnp.maximum(error, near)
        elif clip_value == "only":
            error = near
        value_loss = mean_of(error, mask, "mean")
        bonus = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
        if order == "value last":
            return sign * (policy_loss + 0.01 * -bonus + value_coef * value_loss)
        total = policy_loss + value_coef * value_loss
        if entropy == "subtract":
            total = total - 0.01 * bonus
        elif entropy == "add":
            total = total + 0.01 * bonus
        return sign * total

    return init, apply


def reformulated() -> Any:
    """Compute the same loss by other formulas, in another order."""

    def apply(
        params: Any,
        obs: jax.Array,
        action: jax.Array,
        old_log_prob: jax.Array,
        old_value: jax.Array,
        advantage: jax.Array,
        target: jax.Array,
        mask: jax.Array,
    ) -> jax.Array:
        del mask
        logits, value = heads(params, obs)
        probabilities = jax.nn.softmax(logits)
        entropy = -jnp.mean(jnp.sum(probabilities * jnp.log(probabilities), axis=-1))
        chosen = jnp.sum(jax.nn.one_hot(action, 2) * jnp.log(probabilities), axis=-1)
        centred = advantage - jnp.sum(advantage) / 32
        advantage = centred / (jnp.sqrt(jnp.mean(centred**2)) + 1e-8)
        ratio = jnp.exp(chosen - old_log_prob)
        bounded = jnp.where(ratio > 1.2, 1.2, jnp.where(ratio < 0.8, 0.8, ratio))
        policy_loss = jnp.maximum(-advantage * ratio, -advantage * bounded).mean()
        moved = jnp.clip(value, old_value - 0.2, old_value + 0.2)
        errors = jnp.stack([(value - target) ** 2, (target - moved) ** 2])
        value_loss = 0.5 * errors.max(axis=0).mean()
        return policy_loss - 0.01 * entropy + value_loss

    return init, apply
