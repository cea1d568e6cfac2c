"""Evaluate equations in float64, whatever floating type they were traced with.

In float64 two programs that compute the same function agree to about 1e-7, the rounding of their
float32 constants, so that a difference of 1e-5 such as another epsilon stands out; and a lower
precision on one side has no effect.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from ...core.tracing.jaxprs import bind

DTYPES = ("new_dtype", "dtype", "preferred_element_type")
BITS = ("bitcast_convert_type", "random_bits")


# What NumPy computes too, without compiling: most operations of a network are among these.
ON_HOST: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "add_any": np.add,
    "and": np.bitwise_and,
    "copy": np.copy,
    "div": np.divide,
    "eq": np.equal,
    "exp": np.exp,
    "expm1": np.expm1,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "or": np.bitwise_or,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sign": np.sign,
    "sqrt": np.sqrt,
    "square": np.square,
    "stop_gradient": np.copy,
    "sub": np.subtract,
    "tanh": np.tanh,
}
ARRANGED: dict[str, Callable[[np.ndarray, dict[str, Any]], np.ndarray]] = {
    "broadcast_in_dim": lambda x, how: _broadcast(x, how["shape"], how["broadcast_dimensions"]),
    "convert_element_type": lambda x, how: x.astype(how["new_dtype"]),
    "expand_dims": lambda x, how: np.expand_dims(x, how["dimensions"]),
    "integer_pow": lambda x, how: x ** how["y"],
    "reduce_max": lambda x, how: np.max(x, how["axes"]),
    "reduce_sum": lambda x, how: np.sum(x, how["axes"]),
    "reshape": lambda x, how: np.reshape(x, how["new_sizes"]),
    "slice": lambda x, how: _slice(x, how["start_indices"], how["limit_indices"], how["strides"]),
    "squeeze": lambda x, how: np.squeeze(x, how["dimensions"]),
    "transpose": lambda x, how: np.transpose(x, how["permutation"]),
}


def is_floating(dtype: Any) -> bool:
    """Return whether a dtype is of real floating-point numbers, bfloat16 included."""
    return jnp.issubdtype(dtype, jnp.floating)


def to_host(array: Any) -> Any:
    """Convert an array to NumPy. Keys are left alone."""
    is_key = jnp.issubdtype(jnp.result_type(array), jax.dtypes.prng_key)
    return array if is_key else np.asarray(array)


def widen(array: Any) -> Any:
    """Convert an array to NumPy, and to float64 if it is floating. Keys are left alone.

    A scalar becomes the shortest decimal number that rounds to it: 1e-05, not 9.99999975e-06.
    """
    known = to_host(array)
    if not is_floating(known.dtype) or known.dtype == np.float64:
        return known
    if known.ndim == 0:
        return np.asarray(float(str(known[()])))
    return known.astype(np.float64)


def bind_native(equation: Any, arrays: Sequence[Any]) -> list[Any]:
    """Evaluate one equation as it was traced."""
    typed = [_typed(a, v.aval.dtype) for a, v in zip(arrays, equation.invars, strict=True)]
    return [to_host(array) for array in bind(equation, typed)]


def bind_wide(equation: Any, arrays: Sequence[Any]) -> list[Any]:
    """Evaluate one equation in float64; call it under `jax.enable_x64(True)`.

    An equation that holds another program (a loop, a custom reduction) or reads the bits of a
    number is evaluated with its own types.
    """
    name = equation.primitive.name
    if name == "reduce_precision":
        return list(arrays)
    if name in BITS or any(True for _ in jex.jaxprs_in_params(equation.params)):
        own = [_typed(a, v.aval.dtype) for a, v in zip(arrays, equation.invars, strict=True)]
        return [widen(array) for array in bind(equation, own)]
    arrays = [
        array if is_floating(atom.aval.dtype) else _typed(array, atom.aval.dtype)
        for array, atom in zip(arrays, equation.invars, strict=True)
    ]
    changed: dict[str, Any] = {
        key: np.dtype(np.float64)
        for key in DTYPES
        if equation.params.get(key) is not None and is_floating(equation.params[key])
    }
    if name in ("dot_general", "conv_general_dilated"):
        changed["precision"] = None
    params = {**equation.params, **changed}
    if all(isinstance(array, np.ndarray) and is_floating(array.dtype) for array in arrays):
        with np.errstate(all="ignore"):
            if name in ON_HOST:
                return [np.asarray(ON_HOST[name](*arrays))]
            is_float64 = params.get("new_dtype", np.float64) == np.float64
            if name in ARRANGED and len(arrays) == 1 and is_float64:
                return [np.asarray(ARRANGED[name](arrays[0], params))]
    if name == "select_n" and all(isinstance(array, np.ndarray) for array in arrays):
        which = np.broadcast_to(arrays[0].astype(np.intp), arrays[1].shape)
        return [np.choose(which, arrays[1:])]
    if changed:
        equation = equation.replace(params=params)
    return [widen(array) for array in bind(equation, arrays)]


def _broadcast(array: np.ndarray, shape: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    sizes = [1] * len(shape)
    for axis, size in zip(axes, array.shape, strict=True):
        sizes[axis] = size
    return np.broadcast_to(array.reshape(sizes), shape)


def _slice(x: np.ndarray, starts: Any, limits: Any, strides: Any) -> np.ndarray:
    return x[tuple(map(slice, starts, limits, strides or [None] * x.ndim))]


def _typed(array: Any, dtype: Any) -> Any:
    return np.asarray(array, dtype) if isinstance(array, np.ndarray) else array
