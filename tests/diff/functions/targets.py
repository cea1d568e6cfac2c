"""Generalized advantages and n-step returns, with differences that a test plants."""

from typing import Any

import jax
import jax.numpy as jnp

INPUTS = {
    "reward": "reward:8,4",
    "value": "value:8,4",
    "last_value": "value:4",
    "terminated": "flag:8,4",
    "truncated": "flag:8,4",
}


def gae(planted: str = "", discount: float = 0.99, trace: float = 0.95) -> Any:
    """Build an estimator of advantages with one difference."""

    def estimate(
        reward: jax.Array,
        value: jax.Array,
        last_value: jax.Array,
        terminated: jax.Array,
        truncated: jax.Array,
    ) -> dict[str, jax.Array]:
        done = jnp.maximum(terminated, truncated)
        cut = done if planted in ("done", "joined") else terminated
        next_value = jnp.concatenate([value[1:], last_value[None]])
        if planted == "value_shift":
            next_value = value
        if planted == "done_shift":
            done = jnp.concatenate([done[1:], done[:1]])
        if planted == "reward_shift":
            reward = jnp.concatenate([reward[1:], reward[:1]])

        def step(carry: jax.Array, row: Any) -> tuple[jax.Array, jax.Array]:
            r, v, after, is_cut, is_done = row
            kept = 1.0 if planted == "no_cut" else 1.0 - is_cut
            delta = r + discount * after * kept - v
            going = 1.0 if planted == "no_done" else 1.0 - is_done
            advantage = delta + discount * trace * going * carry
            return advantage, advantage

        rows = (reward, value, next_value, cut, done)
        _, advantage = jax.lax.scan(step, jnp.zeros_like(last_value), rows, reverse=True)
        target = advantage if planted == "no_value" else advantage + value
        return {"advantage": advantage, "target": target}

    return estimate


def gae_in_a_loop(
    reward: jax.Array,
    value: jax.Array,
    last_value: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
) -> dict[str, jax.Array]:
    """Compute the same advantages in a loop of Python."""
    advantage, after, rows = jnp.zeros_like(last_value), last_value, []
    for t in reversed(range(reward.shape[0])):
        ended = 1 - (1 - terminated[t]) * (1 - truncated[t])
        error = reward[t] + 0.99 * after * (1 - terminated[t]) - value[t]
        advantage = error + 0.99 * 0.95 * (1 - ended) * advantage
        rows.append(advantage)
        after = value[t]
    stacked = jnp.stack(rows[::-1])
    return {"advantage": stacked, "target": value + stacked}


def gae_of_returns(
    reward: jax.Array,
    value: jax.Array,
    last_value: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
) -> dict[str, jax.Array]:
    """Compute lambda-returns, and the advantages from them, where a time limit ends an episode."""
    going = jnp.where((terminated > 0) | (truncated > 0), 0.0, 0.99)

    def step(carry: jax.Array, row: Any) -> tuple[jax.Array, jax.Array]:
        r, after, discount = row
        target = r + discount * (0.05 * after + 0.95 * carry)
        return target, target

    rows = (reward, jnp.concatenate([value[1:], last_value[None]]), going)
    _, target = jax.lax.scan(step, last_value, rows, reverse=True)
    return {"advantage": target - value, "target": target}


def q_loss(planted: str = "", joined: bool = False) -> Any:
    """Build a loss of Q-learning with one difference, or with another flag besides."""

    def loss(
        q: jax.Array,
        next_q: jax.Array,
        next_target_q: jax.Array,
        reward: jax.Array,
        terminated: jax.Array,
        truncated: jax.Array,
    ) -> jax.Array:
        done = jnp.maximum(terminated, truncated) if joined else terminated
        after = next_target_q.max(axis=1)
        if planted == "double":
            best = jnp.argmax(next_q, axis=1, keepdims=True)
            after = jnp.take_along_axis(next_target_q, best, axis=1)[:, 0]
        error = jnp.abs(reward + 0.99 * (1 - done) * after - q[:, 0])
        if planted == "huber":
            return jnp.where(error < 1.0, 0.5 * error**2, error - 0.5).mean()
        return (error**2).mean() if planted == "square" else 0.5 * (error**2).mean()

    return loss


Q_LOSS = {
    "q": "param:32,3",
    "next_q": "value:32,3",
    "next_target_q": "value:32,3",
    "reward": "reward:32",
    "terminated": "flag:32",
    "truncated": "flag:32",
}
N_STEP = {"reward": "reward:8,4", "discount": "discount:8,4", "value": "value:8,4"}


def n_step(planted: str = "") -> Any:
    """Build 3-step returns with one difference."""

    def returns(reward: jax.Array, discount: jax.Array, value: jax.Array) -> jax.Array:
        after = value[3:] if planted != "one_later" else value[2:-1]
        total = after
        for k in reversed(range(3)):
            rate = discount[k : k + 5]
            if planted == "no_discount" and k == 1:
                rate = jnp.ones_like(rate)
            total = reward[k : k + 5] + rate * total
        return 0.5 * total if planted == "half" else total

    return returns
