"""Flattening and joining: equal numbers in another order."""

import itertools
from dataclasses import replace

import numpy as np

from ...outputs import layout_hint
from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import Step
from ..values import View, close, layouts
from .features import Finding, in_each

MAX_JOINS = 8  # of each program that are looked at


def concatenation(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find arrays that are joined in another order, confirmed by joining them as the first does."""
    first_view, second_view = (part.view for part in divergence.parts)
    for first in _joins(divergence.parts[0]):
        for second in _joins(divergence.parts[1]):
            joined_value = second.results[0]
            order = _other_order(first_view, first, second_view, second)
            if not order:
                continue
            array = _join_in_order(second_view, second, order)
            if close(array, second_view.array(joined_value)):
                continue
            if not divergence.agrees({joined_value: array}):
                continue
            evidence = (
                f"{labels[1]} joins at positions {tuple(order)} what {labels[0]} joins at "
                f"{tuple(sorted(order))}; in one order, the results are equal"
            )
            corrected = replace(divergence, values={joined_value: array}, operands={})
            at = first.results[0], joined_value
            return Finding("concatenation", evidence, corrected, at=at)
    return None


def _joins(part: RegionPart) -> list[Step]:
    """Return the last steps up to the end of a part that join several arrays."""
    last = part.tape.producers.get(part.end or 0)
    steps = part.tape.steps[: 1 if last is None else last.index + 1]
    return [step for step in steps if step.name == "concatenate"][::-1][:MAX_JOINS]


def _other_order(first_view: View, first: Step, second_view: View, second: Step) -> list[int]:
    """Return the places, in the second join, of the arrays of the first.

    Empty if they are not the same arrays, or in the same order.
    """
    first_cores = first_view.cores(first.operands)
    second_cores = second_view.cores(second.operands)
    if len(first_cores) != len(second_cores):
        return []
    places = [
        index
        for first_core in first_cores
        for index, second_core in enumerate(second_cores)
        if second_core.same(first_core, first_view.tolerance)
    ]
    return places if len(places) == len(first_cores) and places != sorted(places) else []


def _join_in_order(view: View, step: Step, places: list[int]) -> np.ndarray:
    """Join the arrays that a program joins in another order."""
    arrays = [view.array(step.operands[place]) for place in places]
    return np.concatenate(arrays, step.equation.params["dimension"])


def flatten_order(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operand that holds the same numbers in another order, confirmed by exchanging it."""
    first_view, second_view = (part.view for part in divergence.parts)
    for left, right in itertools.product(*(part.steps for part in divergence.parts)):
        if left.name != right.name:
            continue
        for a, (position, b) in itertools.product(left.operands, enumerate(right.operands)):
            first_array, second_array = first_view.array(a), second_view.array(b)
            cores = first_view.core(a), second_view.core(b)
            if (
                first_array.size != second_array.size
                or cores[0].array.size < 2
                or not (
                    cores[0].same(cores[1], first_view.tolerance)
                    or _same_repeated(first_view, a, second_view, b)
                )
                or any(
                    close(array, second_array, first_view.tolerance)
                    for array in layouts(first_array, second_array.shape)
                )
            ):
                continue
            for array in layouts(first_array, second_array.shape):
                if divergence.agrees({}, {(right, position): array}):
                    source = first_view.array(first_view.tape.roots[a])
                    orders = _orders(source, first_array, second_array)
                    evidence = (
                        f"the same numbers in another order: {in_each(orders, labels)}; in one "
                        "order, the results are equal"
                    )
                    if cores[0].array.size != cores[1].array.size:
                        evidence = (
                            "values, such as keys and values for groups of heads, are repeated one "
                            "by one in one network, and as a block in the other; in one order, "
                            "the results are equal"
                        )
                        return Finding("attention_heads", evidence, divergence)
                    return Finding("flatten_order", evidence, divergence)
    return None


def _same_repeated(first_view: View, a: int, second_view: View, b: int) -> bool:
    """Return whether two values hold the same numbers, repeated, of which one has fewer."""
    if first_view.core(a).array.size == second_view.core(b).array.size:
        return False
    first, second = (
        np.ravel(view.arrays[value]) for view, value in ((first_view, a), (second_view, b))
    )
    if "c" in (first.dtype.kind, second.dtype.kind):
        return False
    first, second = (np.sort(side.astype(np.float64)) for side in (first, second))
    return close(first, second, first_view.tolerance)


def _orders(source: np.ndarray, *flat: np.ndarray) -> list[str]:
    """Write the orders in which the axes of an array are read to give each flat one."""
    descriptions = []
    for array in flat:
        fits = source.size == array.size
        for axes in itertools.permutations(range(source.ndim)):
            if fits and close(source.transpose(axes).reshape(array.shape), array):
                descriptions.append(f"axes {axes} of {source.shape}".replace("'", ""))
                break
        else:
            descriptions.append("another order")
    return descriptions


def output_layout(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find outputs that are those of the other program with their axes permuted."""
    pair, search = divergence.results(), divergence.search
    if pair is None or any(region.values or region.leaves for region in search.regions):
        return None
    first_result, second_result = pair
    for axes in itertools.permutations(range(1, first_result.ndim)):
        transposed = first_result.transpose(0, *axes) if first_result.ndim else first_result
        if transposed.shape == second_result.shape and close(
            transposed, second_result, search.tolerance
        ):
            evidence = f"{layout_hint(axes, labels)}; with that, the outputs are equal"
            return Finding("output_layout", evidence, divergence)
    return None
