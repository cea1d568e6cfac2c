"""Flattening: equal numbers in another order."""

import itertools

import numpy as np

from ..divergence import Divergence
from ..values import close, layouts
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
                or not cores[0].same(cores[1], one.tolerance)
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
                    return Finding("flatten_order", evidence, found)
    return None


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
