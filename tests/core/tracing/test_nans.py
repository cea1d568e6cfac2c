"""The first operation behind a NaN is found through calls, branches and loops."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from triglot.core.tracing.nans import find_nan_source


def in_scan(x: jax.Array) -> jax.Array:
    def body(carry: jax.Array, _: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry = carry - 1.0
        return jnp.sqrt(carry), carry  # of -1 in the second step

    return jax.lax.scan(body, x[0], jnp.arange(4))[0]


def in_while(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, x.shape[0] + 6, lambda _, each: jnp.log(each), x)


def in_branch(x: jax.Array) -> jax.Array:
    return jax.lax.cond(x.sum() > 0, lambda: jnp.log(-x), lambda: x)


def in_gradient(x: jax.Array) -> jax.Array:
    return jax.grad(lambda x: jnp.where(x > 9, 0.0, jnp.sqrt(x - x)).sum())(x)


def after_another(x: jax.Array) -> jax.Array:
    """Computes a NaN that the result does not depend on."""
    return jnp.where(jnp.isnan(jnp.log(-x)), jnp.arccos(x + 1), 0.0)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("function", "operation"),
    [
        (in_scan, "sqrt"),
        (in_while, "log"),
        (in_branch, "log"),
        (in_gradient, "add_any"),  # of inf and -inf
        (after_another, "acos"),
    ],
)
def test_the_operation_is_named(
    function: Callable[[jax.Array], Any], operation: str, compiled: bool
) -> None:
    run = jax.jit(function) if compiled else function
    found = find_nan_source(run, jnp.array([2.0, 3.0]), of=lambda result: result)
    assert found is not None and found.operation == operation
    assert "test_nans.py" in found.where


def test_values_of_the_operands_are_shown() -> None:
    found = find_nan_source(lambda x: x / (x - x) * 0, jnp.zeros(2), of=lambda result: result)
    assert str(found).startswith("div(0, 0) at ")


def test_nothing_is_found_where_nothing_is_wrong_or_an_argument_was_nan() -> None:
    assert find_nan_source(jnp.sin, jnp.ones(2), of=lambda result: result) is None
    assert find_nan_source(jnp.sin, jnp.array([jnp.nan]), of=lambda result: result) is None
