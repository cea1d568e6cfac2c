"""Flattening and joining: equal numbers in another order."""

import itertools
from dataclasses import replace

import numpy as np

from ...outputs import layout_hint
from ..divergence import Divergence
from ..tape import Tape
from ..values import View, close, layouts
from .features import Finding

MAX_JOINS = 8  # of each program that are looked at


def concatenation(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find arrays that are joined in another order, confirmed by joining them as the first does."""
    one, other = (part.view for part in divergence.parts)
    ends = [part.tape.producers.get(part.end or 0, 0) for part in divergence.parts]
    for first in _joins(one.tape, ends[0]):
        for second in _joins(other.tape, ends[1]):
            joined, order = (
                other.tape.steps[second].results[0],
                _other_order(one, first, other, second),
            )
            if not order:
                continue
            array = _rejoined(other, second, order)
            if close(array, np.asarray(other.arrays[joined])) or not divergence.agrees(
                {joined: array}
            ):
                continue
            evidence = (
                f"{labels[1]} joins at positions {tuple(order)} what {labels[0]} joins at "
                f"{tuple(sorted(order))}; in one order, the results are equal"
            )
            whole = replace(divergence, values={joined: array}, operands={})
            at = one.tape.steps[first].results[0], joined
            return Finding("concatenation", evidence, whole, at=at)
    return None


def _joins(tape: Tape, end: int) -> list[int]:
    """Return the last steps before another that join several arrays."""
    joins = [i for i, step in enumerate(tape.steps[: end + 1]) if step.name == "concatenate"]
    return joins[::-1][:MAX_JOINS]


def _other_order(one: View, first: int, other: View, second: int) -> list[int]:
    """Return the places, in the second join, of the arrays of the first.

    Empty if they are not the same arrays, or in the same order.
    """
    ours = [one.core(value) for value in one.tape.steps[first].operands]
    theirs = [other.core(value) for value in other.tape.steps[second].operands]
    if len(ours) != len(theirs):
        return []
    places = [
        index for our in ours for index, core in enumerate(theirs) if core.same(our, one.tolerance)
    ]
    return places if len(places) == len(ours) and places != sorted(places) else []


def _rejoined(view: View, index: int, places: list[int]) -> np.ndarray:
    """Join the arrays that a program joins in another order."""
    step = view.tape.steps[index]
    arrays = [np.asarray(view.arrays[step.operands[place]]) for place in places]
    return np.concatenate(arrays, step.equation.params["dimension"])


def flatten_order(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operand that holds the same numbers in another order, confirmed by exchanging it."""
    one, other = (part.view for part in divergence.parts)
    for first, second in itertools.product(*(part.steps for part in divergence.parts)):
        left, right = one.tape.steps[first], other.tape.steps[second]
        if left.name != right.name:
            continue
        for a, (position, b) in itertools.product(left.operands, enumerate(right.operands)):
            mine, theirs = np.asarray(one.arrays[a]), np.asarray(other.arrays[b])
            cores = one.core(a), other.core(b)
            if (
                mine.size != theirs.size
                or cores[0].array.size < 2
                or not (cores[0].same(cores[1], one.tolerance) or _same_repeated(one, a, other, b))
                or any(close(array, theirs, one.tolerance) for array in layouts(mine, theirs.shape))
            ):
                continue
            for array in layouts(mine, theirs.shape):
                if divergence.agrees({}, {(second, position): array}):
                    orders = _orders(np.asarray(one.arrays[one.tape.roots[a]]), mine, theirs)
                    evidence = (
                        f"the same numbers in another order: {orders[0]} in {labels[0]}, "
                        f"{orders[1]} in {labels[1]}; in one order, the results are equal"
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


def _same_repeated(one: View, a: int, other: View, b: int) -> bool:
    """Return whether two values hold the same numbers, repeated, of which one has fewer."""
    if one.core(a).array.size == other.core(b).array.size:
        return False
    first, second = (np.ravel(view.arrays[value]) for view, value in ((one, a), (other, b)))
    if "c" in (first.dtype.kind, second.dtype.kind):
        return False
    first, second = (np.sort(side.astype(np.float64)) for side in (first, second))
    return close(first, second, one.tolerance)


def _orders(whole: np.ndarray, *flat: np.ndarray) -> list[str]:
    """Write the orders in which the axes of an array are read to give each flat one."""
    shown = []
    for array in flat:
        for axes in itertools.permutations(range(whole.ndim)):
            if any(close(each, array) for each in _reshaped(whole.transpose(axes), array.shape)):
                shown.append(f"axes {axes} of {whole.shape}".replace("'", ""))
                break
        else:
            shown.append("another order")
    return shown


def _reshaped(array: np.ndarray, shape: tuple[int, ...]) -> list[np.ndarray]:
    return [array.reshape(shape)] if array.size == int(np.prod(shape)) else []


def output_layout(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find outputs that are those of the other program with their axes permuted."""
    pair, search = divergence.results(), divergence.search
    if pair is None or any(region.values or region.leaves for region in (search.one, search.other)):
        return None
    one, other = pair
    for axes in itertools.permutations(range(1, one.ndim)):
        moved = one.transpose(0, *axes) if one.ndim else one
        if moved.shape == other.shape and close(moved, other, search.tolerance):
            evidence = f"{layout_hint(axes, labels)}; with that, the outputs are equal"
            return Finding("output_layout", evidence, divergence)
    return None
