"""Where rounding grows: the operation whose result is far less exact than what it reads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..types import Array, Cause, Difference, Operation
from . import places
from .tape import Step, Tape
from .values import View, largest_difference
from .wide import is_floating

SQUARES = ("square", "integer_pow", "mul")
ASYMMETRY = 16.0  # of two errors, beyond what sums in another order explain
FLOOR = 1e-12  # errors below are those of float64


@dataclass(frozen=True)
class Growth:
    """The operation of a program at which the error of the outputs begins.

    Attributes:
      value: the result of that operation.
      before, after: largest errors of its operands and of its result, relative to the largest
        number of each.
      error: the error of the outputs.
    """

    value: int
    before: float
    after: float
    error: float


def conditioning(
    wide: tuple[Tape, Tape], native: tuple[Tape, Tape], labels: tuple[str, str], *, low: bool
) -> tuple[Cause, Difference] | None:
    """Name the operation at which one program loses the digits that the other one keeps.

    Args:
      wide: both programs in float64.
      native: both programs in the types with which they were traced, at equal arguments.
      labels: the labels of both networks.
      low: whether both compute in bfloat16 or float16, in which programs of one function have large
        errors. Then only an error is a cause that is far larger than the other program's.

    Returns:
      The cause `conditioning` and the operations; None if the errors are ordinary.
    """
    growths = [_growth(exact, traced) for exact, traced in zip(wide, native, strict=True)]
    errors = [0.0 if growth is None else growth.error for growth in growths]
    worse = int(errors[1] > errors[0])
    growth = growths[worse]
    if growth is None or (low and errors[worse] <= ASYMMETRY * errors[1 - worse]):
        return None
    tape = wide[worse]
    other_view = View(wide[1 - worse], wide[1 - worse].arrays)
    core = View(tape, tape.arrays).core(growth.value)
    counterpart = next(
        (v for v in other_view.find_all(core) if v in other_view.tape.producers), None
    )
    operation = places.operation(tape, growth.value)
    counterpart_operation = (
        None if counterpart is None else places.operation(other_view.tape, counterpart)
    )
    pair = (operation, counterpart_operation) if worse == 0 else (counterpart_operation, operation)
    formula = (
        "the variance is computed as E[x^2] - E[x]^2; " if _is_fast_variance(tape, growth) else ""
    )
    evidence = (
        f"{formula}in {labels[worse]} the operands are exact to {growth.before:.1g} of their size, "
        f"the result to {growth.after:.1g}; the outputs deviate from float64 by {errors[0]:.2g} in "
        f"{labels[0]} and by {errors[1]:.2g} in {labels[1]}"
    )
    cause = Cause("conditioning", places.describe_both(pair, labels), evidence)
    return cause, difference_of_outputs(native, pair)


def difference_of_outputs(
    tapes: Sequence[Tape], operations: tuple[Operation | None, Operation | None]
) -> Difference:
    """Describe by how much the outputs of two programs differ, and the operations to blame."""
    first_outputs, second_outputs = (
        np.concatenate([np.ravel(tape.arrays[v]).astype(np.float64) for v in tape.outputs])
        for tape in tapes
    )
    largest, relative = largest_difference(first_outputs, second_outputs)
    first, second = operations
    return Difference(one=first, other=second, max_abs=largest, max_rel=relative)


def _growth(wide: Tape, native: Tape) -> Growth | None:
    """Follow the largest error from the outputs back to the operation where it grows most."""
    if len(wide.arrays) != len(native.arrays):
        return None
    errors: dict[int, float] = {}

    def error(value: int) -> float:
        if value not in errors:
            errors[value] = _error(wide.arrays[value], native.arrays[value])
        return errors[value]

    value = max(wide.outputs, key=error, default=None)
    if value is None or not error(value):
        return None
    largest, best, visited = error(value), None, set[int]()
    while value in wide.producers and value not in visited:
        visited.add(value)
        step = wide.producers[value]
        source = max(step.operands, key=error, default=None)
        if source is None:
            break
        ratio = error(value) / max(error(source), FLOOR)
        if not wide.is_layout(step) and (best is None or ratio > best[0]):
            best = ratio, Growth(value, error(source), error(value), largest)
        value = source
    return None if best is None else best[1]


def _error(wide: Array, native: Array) -> float:
    native_array = np.asarray(native) if isinstance(wide, np.ndarray) else None
    if (
        native_array is None
        or not is_floating(native_array.dtype)
        or native_array.shape != np.shape(wide)
    ):
        return 0.0
    _, relative = largest_difference(np.asarray(wide, np.float64), native_array.astype(np.float64))
    return 0.0 if np.isnan(relative) else relative


def _is_fast_variance(tape: Tape, growth: Growth) -> bool:
    """Return whether an operation subtracts the square of a mean from the mean of squares."""
    step = tape.producers[growth.value]
    mean = tape.step_of(step.operands[1]) if step.name == "sub" else None
    return mean is not None and _is_square(tape, mean)


def _is_square(tape: Tape, step: Step) -> bool:
    roots = {tape.roots[value] for value in step.operands}
    return step.name in SQUARES and len(roots) == 1 and step.equation.params.get("y", 2) == 2
