"""A mask that one of several layers lacks is not taken for that of another layer."""

from typing import Any

import jax
import jax.numpy as jnp

import triglot
from triglot.core.specs import Box

WIDTH, LENGTH = 4, 5


def attention(masked: tuple[bool, bool]) -> Any:
    """Make a network of two layers of attention, each with a causal mask or without."""

    def init(key: jax.Array) -> Any:
        keys = jax.random.split(key, 2)
        return [jax.random.normal(each, (3, WIDTH, WIDTH)) for each in keys]

    def apply(params: Any, inputs: jax.Array) -> jax.Array:
        x = inputs
        for weights, is_masked in zip(params, masked, strict=True):
            q, k, v = x @ weights[0], x @ weights[1], x @ weights[2]
            logits = jnp.einsum("bqd,bkd->bqk", q, k) / 2.0
            if is_masked:
                logits = jnp.where(jnp.tri(LENGTH, dtype=bool)[None], logits, -jnp.inf)
            x = x + jax.nn.softmax(logits) @ v
        return x

    return init, apply


def test_a_mask_that_the_first_layer_lacks_is_missing() -> None:
    report = triglot.diff_networks(
        attention((True, True)), attention((False, True)), Box((LENGTH, WIDTH))
    )
    assert {cause.name for cause in report.causes} == {"attention_mask"}
