"""Evaluate equations in float64, whatever floating type they were traced with.

In float64 two programs that compute the same function agree to about 1e-7, the rounding of their
float32 constants, so that a difference of 1e-5 such as another epsilon stands out; and a lower
precision on one side has no effect.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.typing import ArrayLike, DTypeLike

from ...core.tracing.jaxprs import aval_of, bind
from .. import host
from ..types import Array

DTYPES = ("new_dtype", "dtype", "preferred_element_type")
BITS = ("bitcast_convert_type", "random_bits")


def is_floating(dtype: DTypeLike) -> bool:
    """Return whether a dtype is of real floating-point numbers, bfloat16 included."""
    return jnp.issubdtype(dtype, jnp.floating)


def widen(array: ArrayLike) -> Array:
    """Convert an array to NumPy, and to float64 if it is floating. Keys are left alone.

    A scalar becomes the shortest decimal number that rounds to it: 1e-05, not 9.99999975e-06.
    """
    host_array = host.on_host(array)
    if not is_floating(host_array.dtype) or host_array.dtype == np.float64:
        return host_array
    if host_array.ndim == 0:
        return np.asarray(float(str(host_array[()])))
    return host_array.astype(np.float64)


def bind_native(equation: jex.JaxprEqn, arrays: Sequence[Array]) -> list[Array]:
    """Evaluate one equation as it was traced."""
    typed = _in_traced_types(equation, arrays)
    result = host.evaluate(equation.primitive.name, typed, equation.params, exact=True)
    return [host.on_host(array) for array in bind(equation, typed)] if result is None else [result]


def bind_wide(equation: jex.JaxprEqn, arrays: Sequence[Array]) -> list[Array]:
    """Evaluate one equation in float64; call it under `jax.enable_x64(True)`.

    An equation that holds another program (a loop, a custom reduction) or reads the bits of a
    number is evaluated with its own types.
    """
    name = equation.primitive.name
    if name == "reduce_precision":
        return list(arrays)
    if name in BITS or any(True for _ in jex.jaxprs_in_params(equation.params)):
        operands = _in_traced_types(equation, arrays)
        return [widen(array) for array in bind(equation, operands)]
    arrays = [
        array if is_floating(aval_of(atom).dtype) else _cast(array, aval_of(atom).dtype)
        for array, atom in zip(arrays, equation.invars, strict=True)
    ]
    changed: dict[str, np.dtype | None] = {
        key: np.dtype(np.float64)
        for key in DTYPES
        if equation.params.get(key) is not None and is_floating(equation.params[key])
    }
    if name in ("dot_general", "conv_general_dilated"):
        changed["precision"] = None
    params = {**equation.params, **changed}
    result = host.evaluate(name, arrays, params, exact=False)
    if result is not None:
        return [result]
    if changed:
        equation = equation.replace(params=params)
    return [widen(array) for array in bind(equation, arrays)]


def _in_traced_types(equation: jex.JaxprEqn, arrays: Sequence[Array]) -> list[Array]:
    """Convert operands to the dtypes with which an equation was traced."""
    return [
        _cast(array, aval_of(atom).dtype)
        for array, atom in zip(arrays, equation.invars, strict=True)
    ]


def _cast(array: Array, dtype: np.dtype) -> Array:
    return np.asarray(array, dtype) if isinstance(array, np.ndarray) else array
