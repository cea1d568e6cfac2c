"""The matrix peak of this machine, and the matrix products of a program: how far speed can go."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jex

SIZE = 1024
"""Rows and columns of the product that is timed; three such float32 matrices are 12 MB."""
FLOPS = 2 * SIZE**3 * 16
"""Of one call of `product`."""


@jax.jit
def _product(matrix: jax.Array) -> jax.Array:
    def again(left: jax.Array, _: None) -> tuple[jax.Array, None]:
        return left @ matrix, None

    return jax.lax.scan(again, matrix, length=FLOPS // (2 * SIZE**3))[0]


def product() -> jax.Array:
    """Multiply square float32 matrices, `FLOPS` in all; the first call compiles."""
    return _product(jnp.eye(SIZE, dtype=jnp.float32))


def matrix_flops(jaxpr: Any) -> int:
    """Count the floating-point operations of the matrix products in a jaxpr.

    The body of a scan counts as often as it runs, a `cond` as its most expensive branch, the body
    of a `while` once.
    """
    total = 0
    for equation in jaxpr.eqns:
        inner = [matrix_flops(one) for one in jex.jaxprs_in_params(equation.params)]
        match equation.primitive.name:
            case "dot_general":
                (contracted, _), _ = equation.params["dimension_numbers"]
                left, result = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
                total += 2 * math.prod(result) * math.prod(left[axis] for axis in contracted)
            case "scan":
                total += equation.params["length"] * sum(inner)
            case "cond":
                total += max(inner)
            case _:
                total += sum(inner)
    return total
