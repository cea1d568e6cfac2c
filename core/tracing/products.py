"""Recurrent cells in one order, so that those of several libraries round alike.

A gate of a cell reads x W + h U + b. Libraries join the kernels of all gates or of both inputs,
keep the kernels transposed, add the bias to one of the products, or hold part of it as a constant.
Here a product of joined arrays is taken apart into products of the parts, sums are added in one
order, and all products of one array with parameters become one product with the joined parameters.
A step w (e - s) from s is (1 - w) s + w e.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from .jaxprs import aval_of, context_of
from .norms import Graph, Value, kept_axes


def in_one_order(closed: jex.ClosedJaxpr, num_params: int) -> jex.ClosedJaxpr:
    """Rewrite a closed jaxpr whose first `num_params` inputs are parameters.

    One with side effects is returned as it is.
    """
    jaxpr = closed.jaxpr
    if jaxpr.effects:
        return closed

    def evaluate(*inputs: jax.Array) -> list[jax.Array]:
        graph, known = Products(), {}
        for index, (variable, array) in enumerate(zip(jaxpr.invars, inputs, strict=True)):
            known[variable] = graph.input(array, f"input {index}", index >= num_params)
        for variable, array in zip(jaxpr.constvars, closed.consts, strict=True):
            known[variable] = graph.constant(array)
        return graph.compute(graph.add(jaxpr, known))

    return jax.make_jaxpr(evaluate)(*map(aval_of, jaxpr.invars))


@dataclass(frozen=True)
class Products(Graph):
    """The values of a program, with products and their sums in one order.

    Attributes:
      factors: of each product of an array and a parameter, by the product's name: both, the
        precision and the equation.
      sums: the terms and the number of each sum, by its name.
      wholes: the product that computes several, and where each is in it, by their names.
    """

    factors: dict[str, tuple[Value, Value, jax.lax.PrecisionLike, jex.JaxprEqn]] = field(
        default_factory=dict
    )
    sums: dict[str, tuple[tuple[Value, ...], float]] = field(default_factory=dict)
    wholes: dict[str, tuple[Value, int, int]] = field(default_factory=dict)

    def _apply(self, equation: jex.JaxprEqn, operands: list[Value]) -> Sequence[Value]:
        name, params = equation.primitive.name, equation.params
        if not operands or aval_of(equation.outvars[0]).dtype != np.float32:
            return super()._apply(equation, operands)
        first, shape = operands[0], tuple(aval_of(equation.outvars[0]).shape)
        if name == "concatenate":
            return [self.join(operands, params["dimension"])]
        if name == "split":
            borders = _borders(int(size) for size in params["sizes"])
            return [self._piece(first, params["axis"], *border) for border in borders]
        if name == "slice" and (piece := _border_of(params, first.shape)):
            return [self._piece(first, *piece)]
        if name == "transpose":
            return [self._turn(first, tuple(params["permutation"]))]
        if name == "conv_general_dilated":
            return [self._convolved(equation, operands)]
        if name == "reduce_sum" and first.before is not None:
            return [self._sum_of_turned(first.before, first.order_of_axes, tuple(params["axes"]))]
        if name == "dot_general" and (product := self._multiply(equation, *operands)):
            return [product]
        if name == "reshape" and (axes := kept_axes(shape, first.shape)) is not None:
            return [self._squeeze(first, axes)]
        if name in ("add", "sub") and (total := self._add(equation, *operands)):
            return [total]
        if name == "add":
            for start, step in (operands, operands[::-1]):
                if between := _interpolated(start, step):
                    weight, end = between
                    return [self.through(_mix, np.float32, start, weight, end)]
        return super()._apply(equation, operands)

    def join(self, parts: Sequence[Value], axis: int) -> Value:
        """Concatenate values along an axis."""
        flat: list[Value] = []
        for part in parts:
            flat += _parts(part, axis) or [part]
        if len(flat) == 1:
            return flat[0]
        shape = list(flat[0].shape)
        shape[axis] = sum(part.shape[axis] for part in flat)

        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            return [jax.lax.concatenate(arrays, axis)]

        params = {"dimension": axis}
        (joined,) = self._named("concatenate", params, flat, compute, [tuple(shape)])
        return replace(joined, parts=tuple(flat), axis=axis)

    def _piece(self, value: Value, axis: int, start: int, stop: int) -> Value:
        """Slice a value along an axis; a slice of joined parts is made of those, if it can be."""
        if (start, stop) == (0, value.shape[axis]):
            return value
        if parts := _parts(value, axis):
            ends = list(accumulate((part.shape[axis] for part in parts), initial=0))
            if start in ends and stop in ends:
                return self.join(parts[ends.index(start) : ends.index(stop)], axis)

        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            return [jax.lax.slice_in_dim(arrays[0], start, stop, axis=axis)]

        shape = tuple(stop - start if i == axis else size for i, size in enumerate(value.shape))
        params = {"start": start, "stop": stop, "axis": axis}
        return self._named("slice", params, [value], compute, [shape])[0]

    def _turn(self, value: Value, axes: tuple[int, ...]) -> Value:
        """Transpose a value; two transpositions cancel."""
        if value.before is not None:
            value, axes = value.before, tuple(value.order_of_axes[axis] for axis in axes)
        if axes == tuple(range(len(axes))):
            return value
        if value.parts:
            parts = [self._turn(part, axes) for part in value.parts]
            return self.join(parts, axes.index(value.axis))

        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            return [jnp.transpose(arrays[0], axes)]

        shape = tuple(value.shape[axis] for axis in axes)
        (turned,) = self._named("transpose", {"axes": axes}, [value], compute, [shape])
        return replace(turned, before=value, order_of_axes=axes)

    def _elementwise(
        self, equation: jex.JaxprEqn, operands: list[Value], shape: tuple[int, ...]
    ) -> Value:
        """Compute it of arrays before they are transposed, and transpose the result."""
        for turned in operands if len(shape) > 2 else ():
            if turned.before is not None and turned.shape == shape:
                axes = turned.order_of_axes
                turned_back = [self._turned_back(operand, axes, shape) for operand in operands]
                before = [operand for operand in turned_back if operand is not None]
                if len(before) == len(operands):
                    return self._turn(
                        self._elementwise(equation, before, turned.before.shape), axes
                    )
        return super()._elementwise(equation, operands, shape)

    def _turned_back(
        self, value: Value, axes: tuple[int, ...], shape: tuple[int, ...]
    ) -> Value | None:
        """Return a value whose transposition, or whose copy along other axes, is this one."""
        if value.shape == () or (value.before is not None and value.order_of_axes == axes):
            return value.before or value
        spread = self._spread(value, shape)
        if spread.source is None:
            return None
        source_axes = tuple(axes[axis] for axis in spread.axes)
        before = {axis: size for axis, size in zip(axes, shape, strict=True)}
        in_order = list(source_axes) == sorted(source_axes)
        shape = tuple(before[axis] for axis in range(len(axes)))
        return self._broadcast(spread.source, shape, source_axes) if in_order else None

    def _sum_of_turned(self, before: Value, order: tuple[int, ...], axes: tuple[int, ...]) -> Value:
        """Sum an array before it is transposed."""
        summed = tuple(sorted(order[axis] for axis in axes))
        kept = [axis for place, axis in enumerate(order) if place not in axes]
        total = self.through(lambda x: x.sum(summed), np.float32, before)
        return self._turn(total, tuple(sorted(kept).index(axis) for axis in kept))

    def _convolved(self, equation: jex.JaxprEqn, operands: list[Value]) -> Value:
        """Transpose a convolution's result whose channels do not come last."""
        layout = equation.params["dimension_numbers"].out_spec  # where batch, channels, pixels are
        last = (layout[0], *sorted(layout[2:]), layout[1])
        (result,) = self._new(equation, operands)
        if last == tuple(range(len(last))):
            return result

        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            assert result.compute is not None  # for the type checker
            return [jnp.transpose(result.compute(arrays)[0], last)]

        shape = tuple(result.shape[axis] for axis in last)
        params = {"layout": last, "of": result.name}
        (turned,) = self._named(
            "conv_general_dilated", params, list(result.operands), compute, [shape]
        )
        return self._turn(turned, tuple(last.index(axis) for axis in range(len(last))))

    def _broadcast(self, value: Value, shape: tuple[int, ...], axes: tuple[int, ...]) -> Value:
        if value.parts and shape[axes[value.axis]] == value.shape[value.axis]:
            axis, spread = axes[value.axis], []
            for part in value.parts:
                part_shape = (*shape[:axis], part.shape[value.axis], *shape[axis + 1 :])
                spread.append(self._broadcast(part, part_shape, axes))
            return self.join(spread, axis)
        if value.terms and not value.reads_inputs:
            terms = [self._broadcast(term, shape, axes) for term in value.terms]
            return self._sum(terms, value.number)
        return super()._broadcast(value, shape, axes)

    def _squeeze(self, value: Value, axes: tuple[int, ...]) -> Value:
        """Remove all axes of size 1 but `axes`."""
        shape = tuple(value.shape[axis] for axis in axes)
        if value.source is not None and value.source.shape == shape:
            return value.source
        if value.parts and value.axis in axes:
            parts = [self._squeeze(part, axes) for part in value.parts]
            return self.join(parts, axes.index(value.axis))
        if value.terms and not value.reads_inputs:
            terms = [self._squeeze(term, axes) for term in value.terms]
            return self._sum(terms, value.number)

        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            return [arrays[0].reshape(shape)]

        return self._named("reshape", {"new_sizes": shape}, [value], compute, [shape])[0]

    def _multiply(self, equation: jex.JaxprEqn, left: Value, right: Value) -> Value | None:
        """Multiply a matrix and one of parameters; None for other products."""
        contracted, batch = equation.params["dimension_numbers"]
        plain = len(left.shape) == len(right.shape) == 2 and not any(batch)
        if not plain or any(len(axes) != 1 for axes in contracted):
            return None
        if left.reads_inputs == right.reads_inputs:
            return None
        swapped, ((left_axis,), (right_axis,)) = right.reads_inputs, contracted
        left = left if left_axis == 1 else self._turn(left, (1, 0))
        right = right if right_axis == 0 else self._turn(right, (1, 0))
        if not swapped:
            return self._product_of(equation, left, right)
        product = self._product_of(equation, self._turn(right, (1, 0)), self._turn(left, (1, 0)))
        return self._turn(product, (1, 0))

    def _product_of(self, equation: jex.JaxprEqn, left: Value, right: Value) -> Value:
        columns, rows = _parts(left, 1), _parts(right, 0)
        fits = [part.shape[1] for part in columns] == [part.shape[0] for part in rows]
        if columns and rows and fits:
            both = zip(columns, rows, strict=True)
            total, *products = (self._product_of(equation, *pair) for pair in both)
            for product in products:
                total = self._sum_of(total, product) or self._plain_add(total, product)
            return total
        if parts := _parts(right, 1):
            return self.join([self._product_of(equation, left, part) for part in parts], 1)
        precision = equation.params["precision"]

        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            with context_of(equation):
                return [_dot(arrays[0], arrays[1], precision)]

        shape = (left.shape[0], right.shape[1])
        params = {"precision": str(precision)}
        (product,) = self._named("dot_general", params, [left, right], compute, [shape])
        self.factors[product.name] = (left, right, precision, equation)
        return replace(product, terms=(product,))

    def _add(self, equation: jex.JaxprEqn, value: Value, number: Value) -> Value | None:
        """Add two values of which one is a sum, joined or transposed; None for others."""
        if equation.primitive.name == "sub":
            if not number.is_number or number.array.shape != () or value.is_number:
                return None
            number = self.constant(-number.array)
        shape = tuple(aval_of(equation.outvars[0]).shape)
        return self._sum_of(self._spread(value, shape), self._spread(number, shape))

    def _sum_of(self, one: Value, other: Value) -> Value | None:
        if one.is_number:
            one, other = other, one
        number = other.is_number and other.array.shape == ()
        if one.is_number or not (number or one.shape == other.shape):
            return None
        if other.parts and not one.parts:
            one, other = other, one
        if one.parts:
            others: list[Value] = [other] * len(one.parts)
            if not number:
                borders = _borders(part.shape[one.axis] for part in one.parts)
                others = [self._piece(other, one.axis, *border) for border in borders]
            sums = [
                self._sum_of(*pair) or self._plain_add(*pair)
                for pair in zip(one.parts, others, strict=True)
            ]
            return self.join(sums, one.axis)
        if one.before is not None and other.before is not None:
            if one.order_of_axes != other.order_of_axes:
                return None
            total = self._sum_of(one.before, other.before)
            total = total or self._plain_add(one.before, other.before)
            return self._turn(total, one.order_of_axes)
        terms: list[Value] = []
        for value in (one,) if number else (one, other):
            if value.terms:
                terms += value.terms
            elif not value.reads_inputs:
                terms.append(value)
            else:
                return None
        if not number and not any(term.reads_inputs for term in terms):
            return None
        rest = one.number + other.number + (other.array.item() if number else 0.0)
        return self._sum(terms, rest)

    def _sum(self, terms: Sequence[Value], number: float) -> Value:
        """Add terms: the last product to be known, parameters, other products, then the number.

        In a scan the first two are known for all steps before the loop.
        """
        products = sorted((term for term in terms if term.reads_inputs), key=self._place)
        rest = sorted(
            (term for term in terms if not term.reads_inputs), key=lambda term: term.order
        )
        ordered = [*products[:1], *rest, *products[1:]]
        total = self._chain(ordered, number)
        self.sums[total.name] = tuple(ordered), number
        return replace(total, parts=(), before=None, terms=tuple(ordered), number=number)

    def _place(self, term: Value) -> tuple[int, str, tuple[int, tuple[str, ...], str]]:
        """Sort products by what they multiply, which is the same for all gates."""
        left = self.factors[term.name][0].name if term.name in self.factors else ""
        return -term.order[0], left, term.order

    def _chain(self, values: Sequence[Value], number: float) -> Value:
        """Add values one after the other, and a number unless it is 0."""
        total = values[0]
        for value in values[1:]:
            total = self._plain_add(total, value)
        return self._plain_add(total, self.constant(np.float32(number))) if number else total

    def _plain_add(self, one: Value, other: Value) -> Value:
        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            return [jax.lax.add(arrays[0], jnp.broadcast_to(arrays[1], arrays[0].shape))]

        return self._named("add", {}, [one, other], compute, [one.shape])[0]

    def compute(self, values: Sequence[Value]) -> list[jax.Array]:
        """Compute values; products of one array with several parameters become one product."""
        groups: dict[tuple[str, str], list[Value]] = {}
        for value in self._needed(values):
            if value.name in self.factors:
                left, right, precision, _ = self.factors[value.name]
                if right.compute is None:
                    groups.setdefault((left.name, str(precision)), []).append(value)
        for group in groups.values():
            if len(group) > 1:
                self._join_products(group)
        sums_by_parts: dict[tuple[str | float, ...], list[Value]] = {}
        for value in self._needed(values):
            terms, number = self.sums.get(value.name, ((), 0.0))
            wholes = [self.wholes[term.name][0].name for term in terms if term.name in self.wholes]
            num_biases = sum(map(_is_bias, terms))
            if wholes and 1 < len(terms) == len(wholes) + num_biases:
                sums_by_parts.setdefault((*wholes, num_biases, number), []).append(value)
        for group in sums_by_parts.values():
            if len(group) > 1:
                self._join_sums(group)
        return super().compute(values)

    def _join_products(self, products: list[Value]) -> None:
        """Let one product compute several that have the left operand in common."""
        products = sorted(products, key=lambda value: _number(self.factors[value.name][1]))
        left, _, precision, equation = self.factors[products[0].name]
        rights = [self.factors[product.name][1] for product in products]
        borders = _borders(right.shape[1] for right in rights)

        def compute(arrays: list[jax.Array]) -> list[jax.Array]:
            with context_of(equation):
                return [_dot(arrays[0], jnp.concatenate(arrays[1:], axis=1), precision)]

        shape = (left.shape[0], borders[-1][1])
        params = {"joined": True}
        (whole,) = self._named("dot_general", params, [left, *rights], compute, [shape])
        for product, border in zip(products, borders, strict=True):
            piece = self._piece(whole, 1, *border)
            self.instead[product.name] = replace(piece, name=product.name)
            self.wholes[product.name] = (whole, *border)

    def _join_sums(self, group: list[Value]) -> None:
        """Let one sum compute several whose products lie side by side."""
        terms = {value.name: self.sums[value.name][0] for value in group}
        places = {
            name: [self.wholes[term.name] for term in terms_of_sum if term.name in self.wholes]
            for name, terms_of_sum in terms.items()
        }
        group = sorted(group, key=lambda value: places[value.name][0][1])
        for before, after in pairwise(group):
            both = zip(places[before.name], places[after.name], strict=True)
            if any(left[2] != right[1] for left, right in both):
                return
        pieces: list[Value] = []
        for terms_at_place in zip(*(terms[value.name] for value in group), strict=True):
            if terms_at_place[0].name in self.wholes:
                (whole, start, _), (_, _, stop) = (
                    self.wholes[terms_at_place[end].name] for end in (0, -1)
                )
                pieces.append(self._piece(whole, 1, start, stop))
            else:
                biases = [term.source for term in terms_at_place if term.source is not None]
                whole = replace(self.join(biases, 0), parts=())  # to be spread as one array
                pieces.append(self._broadcast(whole, pieces[0].shape, (1,)))
        whole = self._chain(pieces, self.sums[group[0].name][1])
        borders = _borders(value.shape[1] for value in group)
        for value, border in zip(group, borders, strict=True):
            self.instead[value.name] = replace(self._piece(whole, 1, *border), name=value.name)


def _borders(sizes: Iterable[int]) -> list[tuple[int, int]]:
    """Return where parts of these sizes start and stop, side by side."""
    return list(pairwise(accumulate(sizes, initial=0)))


def _border_of(params: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Find the axis of a slice along one axis, and where it starts and stops; None for another."""
    borders = list(zip(params["start_indices"], params["limit_indices"], strict=True))
    cut = [axis for axis, size in enumerate(shape) if borders[axis] != (0, size)]
    if len(cut) != 1 or set(params["strides"] or ()) - {1}:
        return None
    return (cut[0], *borders[cut[0]])


def _is_bias(term: Value) -> bool:
    """Check whether a term is a parameter that is spread over the rows."""
    return term.source is not None and term.source.compute is None and term.axes == (1,)


def _number(parameter: Value) -> tuple[int, str]:
    """Sort parameters as they are given."""
    words = parameter.name.split()
    return int(words[1]) if words[0] == "input" else 0, parameter.name


def _parts(value: Value, axis: int) -> tuple[Value, ...]:
    """List what a value was joined from along an axis; nothing for another value."""
    return value.parts if value.axis == axis else ()


def _interpolated(start: Value, step: Value) -> tuple[Value, Value] | None:
    """Find w and e of a step w (e - s) from s, which interpolates; None for another sum."""
    if step.name.startswith("mul "):
        for weight, way in (step.operands, step.operands[::-1]):
            if way.name.startswith("sub ") and way.operands[1].name == start.name:
                return weight, way.operands[0]
    return None


def _mix(start: jax.Array, weight: jax.Array, end: jax.Array) -> jax.Array:
    return (1.0 - weight) * start + weight * end


def _dot(left: jax.Array, right: jax.Array, precision: jax.lax.PrecisionLike) -> jax.Array:
    return jax.lax.dot_general(left, right, (((1,), (0,)), ((), ())), precision=precision)
