"""Flattening: equal numbers in another order."""

import itertools

import numpy as np

from ..divergence import Divergence
from ..values import Core, View, close, layouts
from . import features
from .features import Finding


def flatten_order(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operand that holds the same numbers in another order, confirmed by exchanging it."""
    one, other = (part.view for part in found.parts)
    for first, second in itertools.product(*(part.steps for part in found.parts)):
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
                if found.agrees({}, {(second, position): array}):
                    orders = _orders(np.asarray(one.arrays[one.tape.roots[a]]), mine, theirs)
                    evidence = (
                        f"the same numbers in another order: {orders[0]} in {labels[0]}, "
                        f"{orders[1]} in {labels[1]}; in one order, the results are equal"
                    )
                    if _joined_otherwise(one, a, other, b):
                        joined = _join(one, a), _join(other, b)
                        return Finding("concatenation", evidence, found, at=joined)
                    if cores[0].array.size != cores[1].array.size:
                        evidence = (
                            "numbers are repeated one by one in one network, all together in the "
                            "other, as keys and values for groups of heads; in one order, the "
                            "results are equal"
                        )
                        return Finding("attention_heads", evidence, found)
                    return Finding("flatten_order", evidence, found)
    return None


def _same_repeated(one: View, a: int, other: View, b: int) -> bool:
    """Return whether two values hold the same numbers, repeated, of which one has fewer."""
    if one.core(a).array.size == other.core(b).array.size:
        return False
    first, second = (
        np.sort(np.ravel(view.arrays[value]).astype(np.float64))
        for view, value in ((one, a), (other, b))
    )
    return close(first, second, one.tolerance)


def _join(view: View, value: int) -> int:
    """Return the value that joins what a value is read from."""
    index = features.comes_from(view.tape, value, ("concatenate",), 6)
    return value if index is None else view.tape.steps[index].results[0]


def _joined_otherwise(one: View, a: int, other: View, b: int) -> bool:
    """Return whether two values come from the same arrays, joined in another order."""
    ours, theirs = _joined(one, a), _joined(other, b)
    if len(ours) != len(theirs):
        return False
    places = [
        index for own in ours for index, core in enumerate(theirs) if core.same(own, one.tolerance)
    ]
    return len(places) == len(ours) and places != sorted(places)


def _joined(view: View, value: int) -> list[Core]:
    """Return the arrays that are joined soon before a value."""
    index = features.comes_from(view.tape, value, ("concatenate",), 6)
    return [] if index is None else [view.core(v) for v in view.tape.steps[index].operands]


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
