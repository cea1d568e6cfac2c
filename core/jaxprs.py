"""What the two interpreters over traced programs share."""

from collections.abc import Sequence
from typing import Any

import jax


def bind(equation: Any, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Do what one equation of a jaxpr says, whatever its primitive."""
    params = equation.primitive.get_bind_params(equation.params)
    result = equation.primitive.bind(*arrays, **params)
    return list(result) if equation.primitive.multiple_results else [result]
