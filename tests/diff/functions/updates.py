"""One step of Adam on given gradients and averages, with differences that a test plants."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

INPUTS = {
    "grad_w": "gradient:6,5",
    "grad_b": "gradient:5",
    "mean_w": "gradient:6,5",
    "mean_b": "gradient:5",
    "square_w": "square:6,5",
    "square_b": "square:5",
    "step": "step:",
}


def init(key: jax.Array) -> Any:
    first, second = jax.random.split(key)
    return {"w": jax.random.normal(first, (6, 5)), "b": jax.random.normal(second, (5,))}


def adam(
    eps: float = 1e-8,
    b1: float = 0.9,
    b2: float = 0.999,
    decoupled: float = 0.0,
    coupled: float = 0.0,
    corrected: bool = True,
    clip: str = "global",
    scale: str = "",
    schedule: str = "",
    rate: float = 1e-3,
) -> Any:
    """Build the update with some differences from the defaults."""

    def update(
        params: Any,
        grad_w: jax.Array,
        grad_b: jax.Array,
        mean_w: jax.Array,
        mean_b: jax.Array,
        square_w: jax.Array,
        square_b: jax.Array,
        step: jax.Array,
    ) -> Any:
        grads = {"w": grad_w, "b": grad_b}
        means, squares = {"w": mean_w, "b": mean_b}, {"w": square_w, "b": square_b}
        if scale == "before":
            grads = jax.tree.map(lambda g: g / 128, grads)
        if clip == "global":
            norm = jnp.sqrt(sum(jnp.sum(g**2) for g in grads.values()))
            grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 0.5 / (norm + 1e-6)), grads)
        elif clip == "each":
            grads = jax.tree.map(
                lambda g: g * jnp.minimum(1.0, 0.5 / (jnp.sqrt(jnp.sum(g**2)) + 1e-6)), grads
            )
        elif clip == "element":
            grads = jax.tree.map(lambda g: jnp.clip(g, -0.5, 0.5), grads)
        if scale == "after":
            grads = jax.tree.map(lambda g: g / 128, grads)
        if coupled:
            grads = jax.tree.map(lambda g, p: g + coupled * p, grads, params)
        means = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, means, grads)
        squares = jax.tree.map(lambda s, g: b2 * s + (1 - b2) * g**2, squares, grads)
        count = step.astype(jnp.float32)
        first, second = (1 - b1**count, 1 - b2**count) if corrected else (1.0, 1.0)
        moves = jax.tree.map(
            lambda m, s: (m / first) / (jnp.sqrt(s / second) + eps), means, squares
        )
        if decoupled:
            moves = jax.tree.map(lambda u, p: u + decoupled * p, moves, params)
        size = rate
        if schedule == "steps":
            size = rate * (1 - count / 1000)
        elif schedule == "updates":
            size = rate * (1 - count / 16000)
        params = jax.tree.map(lambda p, u: p - size * u, params, moves)
        return {"params": params, "means": means, "squares": squares}

    return init, update


def with_optax(clip: float | None = None) -> Any:
    """Build the same update from optax's parts."""

    def update(
        params: Any,
        grad_w: jax.Array,
        grad_b: jax.Array,
        mean_w: jax.Array,
        mean_b: jax.Array,
        square_w: jax.Array,
        square_b: jax.Array,
        step: jax.Array,
    ) -> Any:
        grads = {"w": grad_w, "b": grad_b}
        if clip is not None:
            grads, _ = optax.clip(clip).update(grads, optax.EmptyState())
        adam = optax.scale_by_adam()
        known = optax.ScaleByAdamState(
            count=step - 1, mu={"w": mean_w, "b": mean_b}, nu={"w": square_w, "b": square_b}
        )
        with jax.numpy_dtype_promotion("standard"):
            moves, state = adam.update(grads, known, params)
        after: Any = state
        params = jax.tree.map(lambda p, u: p - 1e-3 * u, params, moves)
        return {"params": params, "means": after.mu, "squares": after.nu}

    return init, update
