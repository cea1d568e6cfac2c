"""The precision of products is read from the programs, since a CPU's values do not show it."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.lax import Precision

from triglot.diff.programs import precision_cause

X, W = jnp.ones((2, 3)), jnp.ones((3, 3))
IMAGE, KERNEL = jnp.ones((1, 4, 4, 1)), jnp.ones((2, 2, 1, 1))


def program(*precisions: Any, scanned: bool = False) -> Any:
    """Trace a chain of products with these precisions."""

    def layers(x: jax.Array) -> jax.Array:
        for precision in precisions:
            x = jnp.dot(x, W, precision=precision)
        return x

    def forward(x: jax.Array) -> jax.Array:
        if scanned:
            return jax.lax.scan(lambda x, _: (jax.jit(layers)(x), None), x, length=2)[0]
        return layers(x)

    return jax.make_jaxpr(forward)(X).jaxpr


HIGH, HIGHEST = Precision.HIGH, Precision.HIGHEST


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (program(None), program(HIGHEST), "HIGHEST in 0 of 1 products of A; HIGHEST in 1 of 1"),
        (program(HIGHEST, None), program(None, None), "HIGHEST in 1 of 2 products of A"),
        (program(HIGHEST, HIGHEST), program(None, HIGHEST), "HIGHEST in 2 of 2 products of A"),
        (program("high"), program("highest"), "HIGH in 1 of 1 products of A; HIGH in 0 of 1"),
        (program(None), program(HIGHEST, scanned=True), "HIGHEST in 1 of 1 products of B"),
    ],
)
def test_another_precision_is_named(one: Any, other: Any, words: str) -> None:
    cause = precision_cause([one, other], ("A", "B"))
    assert cause is not None and cause.name == "precision"
    assert words in cause.evidence and "does not change the verdict" in cause.evidence
    assert "test_precision.py:" in cause.where


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (program(None, None), program(Precision.DEFAULT)),
        (program(None, HIGHEST), program(HIGHEST, None)),
        (program(HIGHEST), program(HIGHEST, scanned=True)),
        (program(HIGHEST), program(HIGHEST, HIGHEST)),
    ],
)
def test_the_same_precision_is_not_named(one: Any, other: Any) -> None:
    assert precision_cause([one, other], ("A", "B")) is None


def test_the_precision_of_a_convolution() -> None:
    def forward(precision: Any) -> Any:
        options: Any = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "precision": precision}
        return jax.make_jaxpr(
            lambda x: jax.lax.conv_general_dilated(x, KERNEL, (1, 1), "SAME", **options)
        )(IMAGE).jaxpr

    cause = precision_cause([forward(HIGHEST), forward(None)], ("A", "B"))
    assert cause is not None and "A: conv_general_dilated" in cause.where
