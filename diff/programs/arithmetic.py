"""Another dtype or precision: the programs agree in float64 and not as they are traced."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..types import Cause, Difference, Operation
from . import places
from .divergence import difference
from .precision import compare_precisions
from .tape import Tape
from .values import View
from .wide import is_floating

# The relative error of float32 programs against float64, with room for long sums.
ROUNDING = 2e-5


def mixes_types(tape: Tape) -> bool:
    """Return whether a program computes in another type than float32 or states a precision."""
    return any(
        step.name == "reduce_precision"
        or step.equation.params.get("precision") is not None
        or any(
            is_floating(v.aval.dtype) and v.aval.dtype != np.float32 for v in step.equation.outvars
        )
        for step in tape.steps
    )


def arithmetic_difference(
    wide: Sequence[View], native: Sequence[Tape], labels: tuple[str, str]
) -> tuple[list[Cause], Difference | None]:
    """Compare the types in which two programs compute equal values.

    Args:
      wide: both programs in float64, the second one with the first one's results wherever another
        cause was found.
      native: both programs as traced.
      labels: of both networks.

    Returns:
      The causes, `dtype` and `precision`, and the first operations with other types; none if both
      programs are as exact as float32.
    """
    causes: list[Cause] = []
    first: Difference | None = None
    errors = [_error(tape, view.tape) for tape, view in zip(native, wide, strict=True)]
    if max(errors) <= ROUNDING:
        return causes, first
    equations = [[(step.equation, step.callers) for step in view.tape.steps] for view in wide]
    deviation = (
        f"; the outputs deviate from float64 by {errors[0]:.2g} and {errors[1]:.2g} of their size"
    )
    found: list[tuple[Operation | None, Operation | None]] = []
    if (types := _other_types(*wide)) is not None:
        values, shown = types
        one, other = (places.operation(v.tape, at) for v, at in zip(wide, values, strict=True))
        where = f"{labels[0]}: {places.shown(one)}; {labels[1]}: {places.shown(other)}"
        evidence = f"{shown[0]} in {labels[0]}, {shown[1]} in {labels[1]}{deviation}"
        causes.append(Cause("dtype", where, evidence))
        found.append((one, other))
    if (precision := compare_precisions(equations, labels)) is not None:
        causes.append(Cause("precision", precision.where, precision.counts + deviation))
        found.append(precision.operations)
    if found:
        outputs = [
            np.concatenate([np.ravel(tape.arrays[v]).astype(np.float64) for v in tape.outputs])
            for tape in native
        ]
        largest, relative = difference(*outputs)
        one, other = found[0]
        first = Difference(one=one, other=other, max_abs=largest, max_rel=relative)
    return causes, first


def _error(native: Tape, wide: Tape) -> float:
    """Return the largest error of the outputs, relative to the largest output."""
    pairs = zip(native.outputs, wide.outputs, strict=True)
    return max(
        (difference(np.asarray(native.arrays[a], np.float64), wide.arrays[b])[1] for a, b in pairs),
        default=0.0,
    )


def _other_types(one: View, other: View) -> tuple[tuple[int, int], tuple[str, str]] | None:
    """Find equal values that one program computes in a type in which the other does not."""
    for a, matches in _matches(one, other):
        own = [_dtype(one.tape, v) for v in one.find_all(one.core(a)) if v in one.tape.producers]
        theirs = [_dtype(other.tape, b) for b in matches]
        first = next((dtype for dtype in own if dtype not in theirs), own[0])
        second = next((dtype for dtype in theirs if dtype not in own), theirs[0])
        if first != second and is_floating(first):
            return (a, matches[0]), (str(first), str(second))
    return None


def _matches(one: View, other: View) -> Iterator[tuple[int, list[int]]]:
    for a in one.compared():
        if a in one.tape.producers and one.core(a).numbers.size > 1:
            found = [b for b in other.find_all(one.core(a)) if b in other.tape.producers]
            if found:
                yield a, found


def _dtype(tape: Tape, value: int) -> np.dtype[Any]:
    step = tape.steps[tape.producers[value]]
    return step.equation.outvars[step.results.index(value)].aval.dtype
