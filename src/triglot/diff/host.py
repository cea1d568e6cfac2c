"""Evaluate operations with NumPy, which compiles nothing.

In float64, programs are compared up to rounding, so every operation below may be evaluated here. In
the dtypes of a traced program, only operations are evaluated here whose bits equal XLA's, because
IEEE 754 or the operation itself determines them.
"""

import contextlib
import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.typing import ArrayLike, DTypeLike
from scipy import special

from ..core.tracing import jaxprs
from ..core.types import PyTree
from .types import Array

# Elementwise operations of floating-point numbers.
EXACT: Mapping[str, Callable[..., np.ndarray]] = {
    "abs": np.abs,
    "add": np.add,
    "add_any": np.add,
    "ceil": np.ceil,
    "copy": np.copy,
    "div": np.divide,
    "floor": np.floor,
    "is_finite": np.isfinite,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "neg": np.negative,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "square": np.square,
    "stop_gradient": np.copy,
    "sub": np.subtract,
}
TRANSCENDENTAL: Mapping[str, Callable[..., np.ndarray]] = {
    "cos": np.cos,
    "erf": special.erf,
    "erf_inv": special.erfinv,
    "erfc": special.erfc,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "tanh": np.tanh,
}
# Comparisons, of any dtype but keys.
COMPARED: Mapping[str, Callable[..., np.ndarray]] = {
    "eq": np.equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "ne": np.not_equal,
}
BITWISE: Mapping[str, Callable[..., np.ndarray]] = {
    "and": np.bitwise_and,
    "not": np.bitwise_not,
    "or": np.bitwise_or,
    "shift_right_logical": lambda x, by: _shift_right(x, by),
    "xor": np.bitwise_xor,
}
Parameters: TypeAlias = Mapping[str, Any]  # of an equation, which differ by its primitive
Axes: TypeAlias = Sequence[int]
DimensionNumbers: TypeAlias = tuple[tuple[Axes, Axes], tuple[Axes, Axes]]  # summed, batched
# Operations that rearrange elements, by the parameters of their equation.
LAYOUT: Mapping[str, Callable[[Sequence[np.ndarray], Parameters], np.ndarray]] = {
    "broadcast_in_dim": lambda x, params: _broadcast(
        x[0], params["shape"], params["broadcast_dimensions"]
    ),
    "concatenate": lambda x, params: np.concatenate(x, params["dimension"]),
    "expand_dims": lambda x, params: np.expand_dims(x[0], params["dimensions"]),
    "reduce_max": lambda x, params: np.max(x[0], tuple(params["axes"])),
    "reduce_min": lambda x, params: np.min(x[0], tuple(params["axes"])),
    "reshape": lambda x, params: np.reshape(
        x[0] if params["dimensions"] is None else x[0].transpose(params["dimensions"]),
        params["new_sizes"],
    ),
    "rev": lambda x, params: np.flip(x[0], params["dimensions"]),
    "slice": lambda x, params: _slice(
        x[0], params["start_indices"], params["limit_indices"], params["strides"]
    ),
    "squeeze": lambda x, params: np.squeeze(x[0], params["dimensions"]),
    "transpose": lambda x, params: np.transpose(x[0], params["permutation"]),
}
# Sums, whose order of addition is not determined.
SUMS: Mapping[str, Callable[[Sequence[np.ndarray], Parameters], np.ndarray]] = {
    "conv_general_dilated": lambda x, params: _convolution(x[0], x[1], params),
    "cumsum": lambda x, params: _cumsum(x[0], params["axis"], params["reverse"]),
    "dot_general": lambda x, params: _product(x[0], x[1], params["dimension_numbers"]),
    "integer_pow": lambda x, params: x[0] ** params["y"],
    "reduce_sum": lambda x, params: np.sum(x[0], tuple(params["axes"])),
}
ELEMENTWISE = frozenset(
    {*EXACT, *TRANSCENDENTAL, *COMPARED, *BITWISE, "clamp", "select_n", "integer_pow"}
)
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def evaluate(
    name: str, arrays: Sequence[Array], params: Parameters, *, exact: bool
) -> np.ndarray | None:
    """Evaluate one operation.

    Args:
      name: the name of the primitive.
      arrays: the operands.
      params: the parameters of the equation.
      exact: whether to evaluate only operations whose bits equal XLA's.

    Returns:
      An array; None if the operation is not evaluated here.
    """
    if not arrays or not _all_numpy(arrays):
        return None
    with np.errstate(all="ignore"):
        if name in LAYOUT:
            return np.asarray(LAYOUT[name](arrays, params))
        if name in COMPARED or name in BITWISE:
            kinds, table = ("biuf", COMPARED) if name in COMPARED else ("biu", BITWISE)
            plain = all(array.dtype.kind in kinds for array in arrays)
            return np.asarray(table[name](*arrays)) if plain else None
        if (
            name == "bitcast_convert_type"
            and arrays[0].dtype.itemsize == params["new_dtype"].itemsize
        ):
            return np.ascontiguousarray(arrays[0]).view(params["new_dtype"])
        if name == "select_n":
            return _select(*arrays)
        if name == "convert_element_type":
            return _convert(arrays[0], params["new_dtype"])
        if not all(array.dtype in FLOATS for array in arrays):
            return None
        if name in EXACT:
            return np.asarray(EXACT[name](*arrays))
        if name == "clamp":
            return np.asarray(np.minimum(np.maximum(arrays[1], arrays[0]), arrays[2]))
        if not exact and name in TRANSCENDENTAL:
            return np.asarray(TRANSCENDENTAL[name](*arrays))
        if not exact and name in SUMS:
            return np.asarray(SUMS[name](arrays, params))
    return None


def _all_numpy(arrays: Sequence[Array]) -> TypeGuard[Sequence[np.ndarray]]:
    return all(isinstance(array, np.ndarray) for array in arrays)


def call(function: Callable[..., PyTree], *arguments: PyTree, exact: bool = True) -> PyTree:
    """Evaluate a function of arrays operation by operation.

    Nothing is compiled for a function that only arranges its arguments.

    Args:
      function: a function that JAX can trace.
      arguments: pytrees of arrays.
      exact: whether the bits equal XLA's. Otherwise rounding differs, and random bits come from
        NumPy with the keys as seeds; most initializers then compile nothing.

    Returns:
      NumPy arrays, and keys.
    """
    leaves = jax.tree.leaves(arguments)
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)

    def rule(equation: jex.JaxprEqn, operands: list[Array]) -> Sequence[Array]:
        if (program := jaxprs.called_program(equation)) is not None:
            return run(program, operands)
        name, params = equation.primitive.name, equation.params
        if not exact and name in RANDOM:
            return [RANDOM[name](operands, equation)]
        result = evaluate(name, operands, params, exact=exact)
        if result is not None:
            return [result]
        return list(map(on_host, jaxprs.bind(equation, operands)))

    def run(closed: jex.ClosedJaxpr, operands: Sequence[Array]) -> list[Array]:
        jaxpr = closed.jaxpr
        values = dict(zip(jaxpr.constvars, map(on_host, closed.consts), strict=True))
        values.update(zip(jaxpr.invars, operands, strict=True))
        equations = jaxprs.needed(jaxpr.eqns, jaxpr.outvars)
        read_atom = jaxprs.evaluate(equations, values, rule, np.asarray)
        return [read_atom(atom) for atom in jaxpr.outvars]

    results = run(closed, list(map(on_host, leaves)))
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def _draw_integers(operands: Sequence[Array], shape: Sequence[int], dtype: DTypeLike) -> np.ndarray:
    """Draw random bits, seeded by keys and by the numbers that are folded in."""
    keys, *numbers = operands
    seeds = [np.ravel(jax.random.key_data(keys)), *map(np.ravel, numbers)]
    random = np.random.default_rng(np.concatenate(seeds).astype(np.uint32))
    return random.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def _random_bits(operands: Sequence[Array], equation: jex.JaxprEqn) -> np.ndarray:
    result = jaxprs.aval_of(equation.outvars[0])
    return _draw_integers(operands, result.shape, result.dtype)


def _random_keys(operands: Sequence[Array], equation: jex.JaxprEqn) -> jax.Array:
    size = jax.random.key_data(operands[0]).shape[operands[0].ndim :]
    data = _draw_integers(operands, (*jaxprs.aval_of(equation.outvars[0]).shape, *size), np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(data), impl=jax.random.key_impl(operands[0]))


RANDOM: Mapping[str, Callable[[Sequence[Array], jex.JaxprEqn], Array]] = {
    "random_bits": _random_bits,
    "random_fold_in": _random_keys,
    "random_split": _random_keys,
}


def trim() -> None:
    """Return freed memory to the system; glibc keeps that of arrays below 32 MB."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # of other C libraries
        ctypes.CDLL(None).malloc_trim(0)


def on_host(array: ArrayLike) -> Array:
    """Convert an array to NumPy. Keys are left alone."""
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return array
    return np.asarray(array)


def _broadcast(array: np.ndarray, shape: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    sizes = [1] * len(shape)
    for axis, size in zip(axes, array.shape, strict=True):
        sizes[axis] = size
    return np.broadcast_to(array.reshape(sizes), shape)


def _shift_right(x: np.ndarray, by: np.ndarray) -> np.ndarray:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.right_shift(x.view(unsigned), by.astype(unsigned)).view(x.dtype)


def _slice(
    x: np.ndarray, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None
) -> np.ndarray:
    return x[tuple(map(slice, starts, limits, strides or [None] * x.ndim))]


def _select(predicate: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    if len(cases) != 2 or predicate.dtype != np.bool_:
        return np.choose(np.broadcast_to(predicate.astype(np.intp), cases[0].shape), cases)
    return np.where(predicate, cases[1], cases[0])


def _convert(array: np.ndarray, dtype: DTypeLike) -> np.ndarray | None:
    target = np.dtype(dtype)
    from_float, to_float = (jnp.issubdtype(kind, jnp.floating) for kind in (array.dtype, target))
    is_exact = array.dtype.kind in "biu" and (
        to_float or (target.kind in "iu" and array.dtype.kind == "b")
    )
    return array.astype(target, copy=False) if (from_float and to_float) or is_exact else None


def _cumsum(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    if reverse:
        return np.flip(np.cumsum(np.flip(x, axis), axis), axis)
    return np.cumsum(x, axis)


def _product(x: np.ndarray, y: np.ndarray, numbers: DimensionNumbers) -> np.ndarray:
    """Compute `dot_general`: batch axes first, then the others of `x` and of `y`."""
    (summed_x, summed_y), (batch_x, batch_y) = numbers
    free_x = [axis for axis in range(x.ndim) if axis not in (*summed_x, *batch_x)]
    free_y = [axis for axis in range(y.ndim) if axis not in (*summed_y, *batch_y)]
    batch, x_sizes, y_sizes, summed_sizes = (
        [array.shape[axis] for axis in axes]
        for array, axes in ((x, batch_x), (x, free_x), (y, free_y), (x, summed_x))
    )
    rows, columns, size = (int(np.prod(sizes)) for sizes in (x_sizes, y_sizes, summed_sizes))
    left = x.transpose([*batch_x, *free_x, *summed_x]).reshape([*batch, rows, size])
    right = y.transpose([*batch_y, *summed_y, *free_y]).reshape([*batch, size, columns])
    return np.matmul(left, right).reshape([*batch, *x_sizes, *y_sizes])


def _convolution(x: np.ndarray, kernel: np.ndarray, params: Parameters) -> np.ndarray:
    """Compute `conv_general_dilated` as a product of all windows with the kernel."""
    numbers, strides, steps = (
        params["dimension_numbers"], params["window_strides"], params["rhs_dilation"]
    )  # fmt: skip
    spatial = tuple(range(2, x.ndim))
    x = _pad(x.transpose(numbers.lhs_spec), params["padding"], params["lhs_dilation"])
    kernel = kernel.transpose(numbers.rhs_spec)  # [outputs, inputs, *sizes]
    sizes = kernel.shape[2:]
    reach = [(size - 1) * step + 1 for size, step in zip(sizes, steps, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, spatial)
    examples_and_channels = (slice(None), slice(None))
    windows = windows[(*examples_and_channels, *(slice(None, None, stride) for stride in strides))]
    windows = windows[(..., *(slice(None, None, step) for step in steps))]
    batch, channels, *out = windows.shape[: x.ndim]
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    count = max(groups, batches)
    if batches > 1:
        windows = windows.reshape(batches, batch // batches, channels, *out, *sizes)
    else:
        windows = windows.reshape(batch, groups, channels // groups, *out, *sizes).swapaxes(0, 1)
    # Now [groups, examples, inputs, *out, *sizes]: bring the inputs behind the places.
    windows = np.moveaxis(windows, 2, 2 + len(out))
    left = windows.reshape(count, -1, kernel[0].size)
    right = kernel.reshape(count, kernel.shape[0] // count, -1).swapaxes(1, 2)
    result = np.matmul(left, right).reshape(count, -1, *out, kernel.shape[0] // count)
    result = np.moveaxis(result, (0, -1), (1, 2)).reshape(-1, kernel.shape[0], *out)
    return result.transpose(np.argsort(numbers.out_spec))


def _pad(x: np.ndarray, padding: Sequence[tuple[int, int]], dilation: Sequence[int]) -> np.ndarray:
    """Put zeros between and around the elements of the spatial axes; negative ones cut."""
    if any(step > 1 for step in dilation):
        sizes = [(n - 1) * step + 1 for n, step in zip(x.shape[2:], dilation, strict=True)]
        spread = np.zeros((*x.shape[:2], *sizes), x.dtype)
        spread[(..., *(slice(None, None, step) for step in dilation))] = x
        x = spread
    x = np.pad(x, [(0, 0), (0, 0), *((max(low, 0), max(high, 0)) for low, high in padding)])
    ends = zip(x.shape[2:], padding, strict=True)
    return x[(..., *(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in ends))]
