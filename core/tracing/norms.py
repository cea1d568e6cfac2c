"""Normalizations in one order, so that those of several libraries round alike.

A normalized array is (x - mean) * rsqrt(variance + epsilon) * scale + bias. Libraries compute a
mean once or twice, multiply by the scale before or after, and sum gradients in the order of their
equations. Here nothing is computed twice, parameters are multiplied last, and equations are
ordered by what they compute.
"""

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

from ..types import is_key
from .jaxprs import bind, context_of, walk

BROADCASTING = ("add", "sub", "mul", "div", "max", "min")
COMMUTATIVE = ("add", "mul")
Compute = Callable[[list[jax.Array]], Sequence[jax.Array]]


def has_norms(jaxpr: Any) -> bool:
    """Check whether a program takes a reciprocal root, as normalizations do."""
    return any(equation.primitive.name == "rsqrt" for equation, _ in walk(jaxpr))


def in_one_order(closed: Any, num_params: int) -> Any:
    """Rewrite a closed jaxpr whose first `num_params` inputs are parameters.

    One with side effects is returned as it is.
    """
    jaxpr = closed.jaxpr
    if jaxpr.effects:
        return closed

    def evaluate(*inputs: jax.Array) -> list[jax.Array]:
        graph, known = _Graph(), {}
        for index, (variable, array) in enumerate(zip(jaxpr.invars, inputs, strict=True)):
            known[variable] = graph.given(array, f"input {index}", index >= num_params)
        for variable, array in zip(jaxpr.constvars, closed.consts, strict=True):
            known[variable] = graph.constant(array)
        return graph.compute(graph.add(jaxpr, known))

    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in jaxpr.invars]
    return jax.make_jaxpr(evaluate)(*shapes)


@dataclass(frozen=True, eq=False)
class _Value:
    """A result of an equation, or a given array.

    Attributes:
      name: of how it is computed, the same for equal values; results of one equation differ in
        their number after a `#`.
      depth: the longest chain of equations to it.
      shape: of the array.
      reads_inputs: whether it depends on more than parameters and constants.
      array: of a given one.
      compute: of its equation's operands, all results.
      operands: of its equation.
      factors: of a product of a value that reads inputs and one that does not, in this order.
    """

    name: str
    depth: int
    shape: tuple[int, ...]
    reads_inputs: bool
    array: Any = None
    compute: Compute | None = None
    operands: "tuple[_Value, ...]" = ()
    factors: "tuple[_Value, ...]" = ()

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_number(self) -> bool:
        return isinstance(self.array, np.ndarray)


@dataclass(frozen=True)
class _Graph:
    """The values of a program; `seen` counts equations and constants that cannot be compared."""

    seen: Counter[str] = field(default_factory=Counter)

    def given(self, array: Any, name: str, reads_inputs: bool = False) -> _Value:
        return _Value(name, 0, jnp.shape(array), reads_inputs, array)

    def constant(self, array: Any) -> _Value:
        if isinstance(array, np.ndarray | np.generic | float | int) and np.size(array) == 1:
            number = np.asarray(array)
            return self.given(number, f"number {number.dtype}{number.shape}{number.tolist()}")
        return self.given(array, self._unique("constant"))

    def add(self, jaxpr: Any, known: dict[Any, _Value]) -> list[_Value]:
        """Add a jaxpr's equations and return its results."""

        def read(atom: Any) -> _Value:
            return self.constant(atom.val) if isinstance(atom, jex.Literal) else known[atom]

        for equation in jaxpr.eqns:
            results = self._apply(equation, [read(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def compute(self, values: Sequence[_Value]) -> list[jax.Array]:
        """Compute values after their operands, those of equal depth in the order of names."""
        needed: dict[str, _Value] = {}
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value.name not in needed:
                needed[value.name] = value
                waiting.extend(value.operands)
        found: dict[str, Any] = {}
        for value in sorted(needed.values(), key=lambda each: (each.depth, each.name)):
            if value.compute is None:
                found[value.name] = value.array
            elif value.name not in found:
                results = value.compute([found[operand.name] for operand in value.operands])
                equation = value.name.rpartition("#")[0]
                found |= {f"{equation}#{number}": array for number, array in enumerate(results)}
        return [jnp.asarray(found[value.name]) for value in values]

    def _apply(self, equation: Any, operands: list[_Value]) -> Sequence[_Value]:
        name, params = equation.primitive.name, equation.params
        if name in ("jit", "pjit"):
            inner = params["jaxpr"]
            known = dict(zip(inner.jaxpr.invars, operands, strict=True))
            constants = zip(inner.jaxpr.constvars, inner.consts, strict=True)
            known |= {variable: self.constant(array) for variable, array in constants}
            return self.add(inner.jaxpr, known)
        results = [variable.aval for variable in equation.outvars]
        are_numbers = all(result.size == 1 and not is_key(result) for result in results)
        if operands and are_numbers and all(operand.is_number for operand in operands):
            with jax.ensure_compile_time_eval():
                arrays = bind(equation, [jnp.asarray(operand.array) for operand in operands])
                return [self.constant(np.asarray(array)) for array in arrays]
        if name == "select_n" and operands[0].is_number:
            return [operands[1 + int(operands[0].array.item())]]
        if name in ("reshape", "broadcast_in_dim") and operands[0].size == results[0].size:
            return [self._reshaped(operands[0], results[0].shape)]
        in_place = tuple(range(len(results[0].shape)))
        is_spread = name == "broadcast_in_dim" and params["broadcast_dimensions"] == in_place
        if is_spread and operands[0].reads_inputs:
            return [self._spread(operands[0], results[0].shape)]
        if name in BROADCASTING:
            operands = [self._spread(operand, results[0].shape) for operand in operands]
        if name == "mul":
            return [self._product(equation, *operands)]
        if name in COMMUTATIVE:
            operands = sorted(operands, key=lambda each: each.name)
        return self._new(equation, operands)

    def _product(self, equation: Any, one: _Value, other: _Value) -> _Value:
        """Multiply by what does not read inputs last: (a * scale) * b as (a * b) * scale."""
        for left, right in ((one, other), (other, one)):
            if left.factors and right.reads_inputs and not right.factors:
                rest, factor = left.factors
                return self._product(equation, self._product(equation, rest, right), factor)
        one, other = sorted((one, other), key=lambda each: (not each.reads_inputs, each.name))
        (product,) = self._new(equation, [one, other])
        is_scaled = one.reads_inputs and not other.reads_inputs and not other.is_number
        return replace(product, factors=(one, other)) if is_scaled else product

    def _reshaped(self, value: _Value, shape: tuple[int, ...]) -> _Value:
        if value.shape == shape:
            return value

        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            return [arrays[0].reshape(shape)]

        return self._named("reshape", {"shape": shape}, [value], compute, [shape])[0]

    def _spread(self, value: _Value, shape: tuple[int, ...]) -> _Value:
        """Broadcast what reads inputs along its axes of size 1, as an equation of its own.

        All other arrays broadcast where they are used.
        """
        if value.shape in ((), shape) or not value.reads_inputs:
            return value
        axes = tuple(range(len(shape)))
        dims = {"shape": shape, "broadcast_dimensions": axes}

        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            return [jax.lax.broadcast_in_dim(arrays[0], shape, axes)]

        (spread,) = self._named("broadcast", dims, [value], compute, [shape])
        if not value.factors:
            return spread
        rest, factor = value.factors
        return replace(spread, factors=(self._spread(rest, shape), factor))

    def _new(self, equation: Any, operands: list[_Value]) -> list[_Value]:
        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            with context_of(equation):
                return bind(equation, [jnp.asarray(array) for array in arrays])

        shapes = [variable.aval.shape for variable in equation.outvars]
        name, params = equation.primitive.name, equation.params
        comparable = not any(callable(one) for one in params.values())
        comparable = comparable and not list(jex.jaxprs_in_params(params))
        return self._named(name, params if comparable else None, operands, compute, shapes)

    def _named(
        self,
        primitive: str,
        params: Any,
        operands: list[_Value],
        compute: Compute,
        shapes: list[tuple[int, ...]],
    ) -> list[_Value]:
        text = f"{[operand.name for operand in operands]}"
        text += self._unique(text) if params is None else str(sorted(_plain(params).items()))
        name = f"{primitive} {hashlib.sha256(text.encode()).hexdigest()}"
        depth = 1 + max((operand.depth for operand in operands), default=0)
        reads = any(operand.reads_inputs for operand in operands)
        given: Any = {"compute": compute, "operands": tuple(operands)}
        return [
            _Value(f"{name}#{number}", depth, tuple(shape), reads, **given)
            for number, shape in enumerate(shapes)
        ]

    def _unique(self, text: str) -> str:
        self.seen[text] += 1
        return f"{text} {self.seen[text]}"


def _plain(value: Any) -> Any:
    """Write NumPy's integers as Python's, so that equal parameters have equal texts."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value
