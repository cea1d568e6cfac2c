"""Normalizations in one order, so that those of several libraries round alike.

A normalized array is (x - mean) * rsqrt(variance + epsilon) * scale + bias. Libraries compute a
mean once or twice, multiply by the scale before or after, divide by a root, take the variance as
mean(square(x - mean)) or as mean(square(x)) - square(mean), and sum gradients in the order of their
equations. Here nothing is computed twice, parameters are multiplied last, the variance is the
first, terms are sorted by their depth, then by their operation, and equations come in the order in
which their results are read.
"""

import functools
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.typing import ArrayLike, DTypeLike

from ..types import is_key
from .jaxprs import Atom, aval_of, bind, context_of, walk

ELEMENTWISE = ("add", "sub", "mul", "div", "max", "min", "square", "sqrt", "rsqrt", "neg")
COMMUTATIVE = ("add", "max", "min")
NEAR = 8  # steps before an equation whose operations place it among others of its depth
Compute = Callable[[list[jax.Array]], Sequence[jax.Array]]


def has_norms(jaxpr: jex.Jaxpr) -> bool:
    """Check whether a program takes a root, as normalizations do."""
    return any(equation.primitive.name in ("sqrt", "rsqrt") for equation, _ in walk(jaxpr))


@dataclass(frozen=True, eq=False)
class Value:
    """A result of an equation, or a given array.

    Attributes:
      name: of how it is computed, the same for equal values; results of one equation differ in
        their number after a `#`.
      order: sorts equations: by the longest chain of equations to its result, which comes first;
        by its operation alone, with the operations one step before it, and so on, up to `NEAR`
        steps; and by name. Where libraries differ at the beginning, as in the axes of a
        convolution, the names of all later values differ, and the nearest operations do not.
      shape: of the array.
      reads_inputs: whether it depends on more than parameters and constants.
      array: of a given one.
      compute: of its equation's operands, all results.
      operands: of its equation.
      factors: of a product with a factor, which comes second.
      source: the value that it is a reshaped or broadcast copy of.
      axes: of the source in it.
      not_negative: whether it is a square, or a sum or a quotient of squares.
      summed: of a sum over axes: what is summed, and the axes.
      mean_of: of such a sum divided by a number: the same, and the number.
      parts: of a joined array: what it was joined from.
      axis: along which the parts are joined.
      before: of a transposed array: `transpose(before, order_of_axes)`.
      order_of_axes: of the transposition.
      terms: of a sum of arrays: what is added, none a sum; one for a product that nothing was added
        to.
      number: what is added to the terms last.
    """

    name: str
    order: tuple[int, tuple[str, ...], str]
    shape: tuple[int, ...]
    reads_inputs: bool
    array: Any = None
    compute: Compute | None = None
    operands: "tuple[Value, ...]" = ()
    factors: "tuple[Value, ...]" = ()
    source: "Value | None" = None
    axes: tuple[int, ...] = ()
    not_negative: bool = False
    summed: "tuple[Value, tuple[int, ...]] | None" = None
    mean_of: "tuple[Value, tuple[int, ...], float] | None" = None
    parts: "tuple[Value, ...]" = ()
    axis: int = 0
    before: "Value | None" = None
    order_of_axes: tuple[int, ...] = ()
    terms: "tuple[Value, ...]" = ()
    number: float = 0.0

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_root(self) -> bool:
        return (self.source or self).name.startswith("rsqrt ")

    @property
    def is_factor(self) -> bool:
        """Whether it does not read inputs, and is not the root that normalizes."""
        return not self.reads_inputs and not self.is_root

    @property
    def is_number(self) -> bool:
        return isinstance(self.array, np.ndarray)

    @property
    def is_reshaped(self) -> bool:
        return self.source is not None and self.source.size == self.size and self.reads_inputs


@dataclass(frozen=True)
class Graph:
    """The values of a program.

    Attributes:
      known: results of equations by name.
      counts: of equations and constants that cannot be compared.
      instead: values that are computed in place of others, by the others' names.
    """

    known: dict[str, Value] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    instead: dict[str, Value] = field(default_factory=dict)

    def input(self, array: ArrayLike, name: str, reads_inputs: bool = False) -> Value:
        near = (name,) * (NEAR + 1)
        return Value(name, (0, near, name), jnp.shape(array), reads_inputs, array)

    def constant(self, array: ArrayLike) -> Value:
        if isinstance(array, np.ndarray | np.generic | float | int) and np.size(array) == 1:
            number = np.asarray(array)
            return self.input(number, f"number {number.dtype}{number.shape}{number.tolist()}")
        return self.input(array, self._unique("constant"))

    def add(self, jaxpr: jex.Jaxpr, known: dict[jex.Var, Value]) -> list[Value]:
        """Add a jaxpr's equations and return its results."""

        def read(atom: Atom) -> Value:
            return self.constant(atom.val) if isinstance(atom, jex.Literal) else known[atom]

        for equation in jaxpr.eqns:
            results = self._apply(equation, [read(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def compute(self, values: Sequence[Value]) -> list[jax.Array]:
        """Compute values, each after its operands, in the order in which these are first read.

        So the order does not depend on names: those of all later values differ where libraries
        differ at the beginning, as in the axes of a convolution.
        """
        arrays: dict[str, Any] = {}
        waiting = list(reversed(values))
        while waiting:
            value = self.instead.get(waiting[-1].name, waiting[-1])
            missing = [one for one in value.operands if one.name not in arrays]
            if value.name not in arrays and missing:
                waiting += reversed(missing)
                continue
            waiting.pop()
            if value.compute is None:
                arrays[value.name] = value.array
            elif value.name not in arrays:
                results = value.compute([arrays[operand.name] for operand in value.operands])
                equation = value.name.rpartition("#")[0]
                arrays |= {f"{equation}#{number}": array for number, array in enumerate(results)}
        return [jnp.asarray(arrays[value.name]) for value in values]

    def _needed(self, values: Sequence[Value]) -> list[Value]:
        """Find what values are computed from, and themselves."""
        needed: dict[str, Value] = {}
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            value = self.instead.get(value.name, value)
            if value.name not in needed:
                needed[value.name] = value
                waiting.extend(value.operands)
        return list(needed.values())

    def _apply(self, equation: jex.JaxprEqn, operands: list[Value]) -> Sequence[Value]:
        name, params = equation.primitive.name, equation.params
        if name in ("jit", "pjit"):
            inner = params["jaxpr"]
            known = dict(zip(inner.jaxpr.invars, operands, strict=True))
            constants = zip(inner.jaxpr.constvars, inner.consts, strict=True)
            known |= {variable: self.constant(array) for variable, array in constants}
            return self.add(inner.jaxpr, known)
        results = [aval_of(variable) for variable in equation.outvars]
        are_numbers = all(result.size == 1 and not is_key(result) for result in results)
        if operands and are_numbers and all(operand.is_number for operand in operands):
            with jax.ensure_compile_time_eval():
                arrays = bind(equation, [jnp.asarray(operand.array) for operand in operands])
                return [self.constant(np.asarray(array)) for array in arrays]
        if name == "select_n" and operands[0].is_number:
            return [operands[1 + int(operands[0].array.item())]]
        shape = tuple(results[0].shape)
        if name == "psum" and all(isinstance(axis, int) for axis in params["axes"]):  # no names
            # BatchNorm of Equinox leaves numbers of axes where `vmap` named an axis.
            axes = tuple(params["axes"])
            return [self.through(lambda x: x.sum(axes), results[0].dtype, operands[0])]
        if name == "reduce_sum" and not params["axes"]:
            return operands
        if name == "broadcast_in_dim":
            return [self._broadcast(operands[0], shape, tuple(params["broadcast_dimensions"]))]
        if name == "reshape" and (axes := kept_axes(operands[0].shape, shape)) is not None:
            return [self._broadcast(operands[0], shape, axes)]
        is_reshape = name in ("reshape", "squeeze")
        if is_reshape and (source := operands[0].source) and source.shape == shape:
            return [source]
        if name in ELEMENTWISE:
            return [self._elementwise(equation, operands, shape)]
        return self._new(equation, operands)

    def _elementwise(
        self, equation: jex.JaxprEqn, operands: list[Value], shape: tuple[int, ...]
    ) -> Value:
        name = equation.primitive.name
        arrays = [operand for operand in operands if not operand.is_number]
        numbers = [operand.array for operand in operands if operand.is_number]
        dtype = aval_of(equation.outvars[0]).dtype
        if name == "max" and numbers and not numbers[0].any() and arrays[0].not_negative:
            return arrays[0]
        if name == "div" and operands[1].is_number and (total := operands[0].summed):
            if total[0].mean_of is not None:  # as over a batch, of means over pixels
                of, axes, by = _mean_of_mean(*total, operands[1].array.item())
                return self.through(lambda x: x.sum(axes) / by, dtype, of)
            (mean,) = self._new(equation, operands, [shape])
            return replace(mean, mean_of=(*total, operands[1].array.item()))
        if name == "div" and operands[1].is_number and (operands[1].array == 1).all():
            return operands[0]
        are_scalars = all(number.shape == () for number in numbers)
        if len(arrays) == 1 and are_scalars and arrays[0].is_reshaped and arrays[0].source:
            # Reshape the result instead.
            source, axes = arrays[0].source, arrays[0].axes
            before = [operand if operand.is_number else source for operand in operands]
            result = self._elementwise(equation, before, source.shape)
            return self._broadcast(result, shape, axes)
        if name == "sub":
            squares, square = (
                operand.source if operand.is_reshaped and operand.source else operand
                for operand in operands
            )
            if variance := self._variance(squares, square, dtype):
                return self._broadcast(variance, shape, operands[0].axes or _all(shape))
        operands = [self._spread(operand, shape) for operand in operands]
        if name == "mul" and operands[0].name == operands[1].name:
            return self.through(jnp.square, dtype, operands[0])
        if name == "div" and (root := operands[1].source) and root.name.startswith("sqrt "):
            inverse = self.through(jax.lax.rsqrt, dtype, root.operands[0])
            spread = self._broadcast(inverse, operands[1].shape, operands[1].axes)
            return self.through(jnp.multiply, dtype, operands[0], spread)
        if name == "mul":
            return self._product(equation, *operands)
        if name == "add" and (shifted := self._shifted(operands, shape, dtype)):
            return shifted
        if name in COMMUTATIVE:
            operands = sorted(operands, key=lambda operand: operand.order)
        return self._new(equation, operands, [shape])[0]

    def _variance(self, squares: Value, square: Value, dtype: DTypeLike) -> Value | None:
        """Rewrite mean(square(x)) - square(mean) to mean(square(x - mean)); None if it is not.

        The difference cancels where the mean is large.
        """
        mean_of, squared = squares.mean_of, square.operands[0] if square.operands else square
        if not (mean_of and squared.mean_of and square.name.startswith("square ")):
            return None
        (of, axes, by), (x, *settings) = mean_of, squared.mean_of
        if (
            not of.name.startswith("square ")
            or of.operands[0].name != x.name
            or settings != [axes, by]
        ):
            return None

        def variance(x: jax.Array) -> jax.Array:
            mean = x.sum(axes) / by
            return jnp.square(x - jnp.expand_dims(mean, axes)).sum(axes) / by

        return self.through(variance, dtype, x)

    def through(
        self, function: Callable[..., jax.Array], dtype: DTypeLike, *values: Value
    ) -> Value:
        """Add what a function of arrays computes; `dtype` is that of all of them."""
        shapes = [jax.ShapeDtypeStruct(value.shape, dtype) for value in values]
        jaxpr = jax.make_jaxpr(function)(*shapes).jaxpr
        return self.add(jaxpr, dict(zip(jaxpr.invars, values, strict=True)))[0]

    def _product(self, equation: jex.JaxprEqn, first: Value, second: Value) -> Value:
        """Multiply by factors last: (a * scale) * b as (a * b) * scale."""
        for left, right in ((first, second), (second, first)):
            if left.factors and right.reads_inputs and not right.factors:
                rest, factor = left.factors
                product = self._product(equation, rest, right)
                if len(factor.shape) == len(product.shape):
                    factor = self._spread(factor, product.shape)
                return self._product(equation, product, factor)
        first, second = sorted((first, second), key=lambda factor: (factor.is_factor, factor.order))
        shape = jnp.broadcast_shapes(first.shape, second.shape)
        (product,) = self._new(equation, [first, second], [shape])
        is_scaled = second.is_factor and not first.is_factor and not second.is_number
        return replace(product, factors=(first, second)) if is_scaled else product

    def _shifted(
        self, operands: list[Value], shape: tuple[int, ...], dtype: DTypeLike
    ) -> Value | None:
        """Rewrite x * root + (bias - mean * root) to (x - mean) * root + bias; None for others."""
        for scaled, rest in (operands, operands[::-1]):
            factors = self._parts("mul ", scaled, shape)
            if not any(factor.is_root for factor in factors):
                continue
            addends = self._parts("add ", rest, shape)
            for index, term in enumerate(addends):
                result = self._difference(factors, self._parts("mul ", term, shape), shape, dtype)
                if result is not None:
                    others = addends[:index] + addends[index + 1 :]
                    add = functools.partial(self.through, jnp.add, dtype)
                    return functools.reduce(add, others, result)
        return None

    def _difference(
        self, one: list[Value], other: list[Value], shape: tuple[int, ...], dtype: DTypeLike
    ) -> Value | None:
        """Rewrite x * factors + (-mean) * factors to (x - mean) * factors; None for others."""
        names = [Counter(part.name for part in side) for side in (one, other)]
        shared = names[0] & names[1]
        factors = [part for part in one if part.name in shared]
        remaining = [[part for part in side if part.name not in shared] for side in (one, other)]
        if [len(terms) for terms in remaining] != [1, 1] or len(factors) != len(one) - 1:
            return None
        (x,), (negative,) = remaining
        source = negative.source or negative
        if not source.name.startswith("neg ") or not any(factor.is_root for factor in factors):
            return None
        axes = _all(shape) if negative.source is None else negative.axes
        mean = self._broadcast(source.operands[0], shape, axes)
        multiply = functools.partial(self.through, jnp.multiply, dtype)
        factors.sort(key=lambda factor: (factor.is_factor, factor.order))
        return functools.reduce(multiply, factors, self.through(jnp.subtract, dtype, x, mean))

    def _parts(
        self,
        name: str,
        value: Value,
        shape: tuple[int, ...],
        axes: tuple[int, ...] | None = None,
    ) -> list[Value]:
        """List what a product or a sum is computed from, each broadcast to its shape."""
        axes = _all(value.shape) if axes is None else axes
        if value.source is not None:
            return self._parts(name, value.source, shape, tuple(axes[axis] for axis in value.axes))
        if not value.name.startswith(name):
            return [self._broadcast(value, shape, axes)]
        parts = []
        for part in value.operands:
            parts += self._parts(name, part, shape, axes if part.shape else ())
        return parts

    def _spread(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Broadcast along axes of size 1; what has no axes stays."""
        if value.shape in ((), shape):
            return value
        spread = self._broadcast(value, shape, tuple(range(len(shape))))
        if not value.factors:
            return spread
        rest, factor = value.factors
        return replace(spread, factors=(self._spread(rest, shape), factor))

    def _broadcast(self, value: Value, shape: tuple[int, ...], axes: tuple[int, ...]) -> Value:
        """Broadcast in one step from the array before other reshapes and broadcasts."""
        source = value
        if (value.source is not None and value.source.size == value.size) or (
            value.source is not None and not value.reads_inputs
        ):
            source, axes = value.source, tuple(axes[axis] for axis in value.axes)
        if source.shape == shape:
            return source

        # It does not matter where axes of size 1 come from.
        long = tuple(axis for axis, size in zip(axes, source.shape, strict=True) if size != 1)

        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            array = arrays[0].reshape([shape[axis] for axis in long])
            return [jax.lax.broadcast_in_dim(array, shape, long)]

        params = {"shape": shape, "axes": long}
        (spread,) = self._named("broadcast_in_dim", params, [source], compute, [shape])
        spread = replace(spread, source=source, axes=axes, not_negative=source.not_negative)
        if source.factors and all(factor.shape == source.shape for factor in source.factors):
            factors = [self._broadcast(factor, shape, axes) for factor in source.factors]
            return replace(spread, factors=tuple(factors))
        return spread

    def _new(
        self,
        equation: jex.JaxprEqn,
        operands: list[Value],
        shapes: list[tuple[int, ...]] | None = None,
    ) -> list[Value]:
        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            with context_of(equation):
                return bind(equation, [jnp.asarray(array) for array in arrays])

        shapes = shapes or [aval_of(variable).shape for variable in equation.outvars]
        name, params = equation.primitive.name, equation.params
        if params.get("preferred_element_type", 0) is None:  # as if the result's type were stated
            params = {**params, "preferred_element_type": aval_of(equation.outvars[0]).dtype}
        comparable = not any(callable(param) for param in params.values())
        comparable = comparable and not list(jex.jaxprs_in_params(params))
        results = self._named(name, params if comparable else None, operands, compute, shapes)
        of_squares = name in ("reduce_sum", "div") and operands[0].not_negative
        divides = name == "div" and not (operands[1].is_number and operands[1].array.item() > 0)
        if name == "square" or (of_squares and not divides):
            results = [replace(result, not_negative=True) for result in results]
        if name == "reduce_sum":
            results = [
                replace(result, summed=(operands[0], tuple(params["axes"]))) for result in results
            ]
        return results

    def _named(
        self,
        primitive: str,
        params: dict[str, Any] | None,
        operands: list[Value],
        compute: Compute,
        shapes: list[tuple[int, ...]],
    ) -> list[Value]:
        text = f"{[operand.name for operand in operands]}"
        options = "" if params is None else str(sorted(_plain(params).items()))
        name = f"{primitive} {_digest(text + (options or self._unique(text)))}"
        near = [f"{primitive} {options}"]
        near += [
            _digest(near[0] + str([operand.order[1][level] for operand in operands]))
            for level in range(NEAR)
        ]
        depth = 1 + max((operand.order[0] for operand in operands), default=0)
        order = (depth, tuple(near), name)
        reads = any(operand.reads_inputs for operand in operands)
        for number, shape in enumerate(shapes):
            value = Value(
                f"{name}#{number}",
                order,
                tuple(shape),
                reads,
                compute=compute,
                operands=tuple(operands),
            )
            self.known.setdefault(value.name, value)
        return [self.known[f"{name}#{number}"] for number in range(len(shapes))]

    def _unique(self, text: str) -> str:
        self.counts[text] += 1
        return f"{text} {self.counts[text]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _mean_of_mean(
    mean: Value, axes: tuple[int, ...], by: float
) -> tuple[Value, tuple[int, ...], float]:
    """Find what a mean of means over more axes is the mean of, over which axes, by which number."""
    assert mean.mean_of is not None  # for the type checker
    of, first, count = mean.mean_of
    left = [axis for axis in range(len(of.shape)) if axis not in first]
    return of, tuple(sorted((*first, *(left[axis] for axis in axes)))), count * by


def _all(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(len(shape)))


def kept_axes(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...] | None:
    """Find the axes of a reshape that adds axes of size 1 only; None for another."""
    axes, left = [], list(enumerate(after))
    for size in reversed(before):
        while left and left[-1][1] != size and left[-1][1] == 1:
            left.pop()
        if not left or left[-1][1] != size:
            return None
        axes.append(left.pop()[0])
    return tuple(reversed(axes)) if all(size == 1 for _, size in left) else None


def _plain(value: Any) -> Any:
    """Write NumPy's integers and types in one way, so that equal parameters have equal texts."""
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    if isinstance(value, dict):
        return {name: _plain(child) for name, child in value.items()}
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value
