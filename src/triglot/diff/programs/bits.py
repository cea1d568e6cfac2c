"""The first operation whose results differ: in a bit, by more than rounding, or when compiled."""

import bisect

import jax
import numpy as np

from ...core.tracing.jaxprs import bind
from ..types import Array, Difference
from . import divergence, places
from .regions import differing_outputs
from .tape import DATA, Tape
from .values import TOLERANCE, View, largest_difference


def first_bit_difference(
    first_tape: Tape, second_tape: Tape, *, hidden: bool = False, compiled: bool = True
) -> Difference | None:
    """Find the first operation of each program whose operands are equal and results are not.

    Where the results of all operations are equal, both programs are compiled, and the shortest
    compiled part whose result differs is searched by bisection.

    Args:
      first_tape, second_tape: programs that were recorded at equal arguments, in the types with
        which they were traced.
      hidden: find a difference that reaches no output, too.
      compiled: compile programs that are equal operation by operation; False returns None for them.

    Returns:
      The operations, with `compiled_only` if they differ only in compiled programs; None if the
      outputs are equal bit for bit in both ways.
    """
    views = [View(tape, tape.arrays, tolerance=0.0) for tape in (first_tape, second_tape)]
    first = divergence.find(*views)
    if first is None and hidden:
        first = divergence.find_hidden(*views)
    if first is not None:
        return first.as_difference(last=True)
    return _compiled_difference(*views) if compiled else None


def first_large_difference(
    first_tape: Tape, second_tape: Tape, tolerance: float = TOLERANCE
) -> Difference | None:
    """Find the first operation of each program whose results differ by more than rounding.

    Args:
      first_tape, second_tape: programs that were recorded in float64, at equal arguments.
      tolerance: the largest difference of equal values, relative to the largest of an array.

    Returns:
      The operations; None if the outputs are equal up to rounding.
    """
    first = divergence.find(
        *(View(tape, tape.arrays, tolerance) for tape in (first_tape, second_tape))
    )
    return None if first is None else first.as_difference()


def outputs_agree(first_tape: Tape, second_tape: Tape) -> bool:
    """Return whether the outputs of two recorded programs are equal up to rounding."""
    views = [View(tape, tape.arrays) for tape in (first_tape, second_tape)]
    return not differing_outputs(views[0], views[1], TOLERANCE)


def _compiled_difference(first_view: View, second_view: View) -> Difference | None:
    def size(pair: tuple[int, int]) -> tuple[float, float] | None:
        """Compile both programs up to a value each; None if the results are equal bit for bit."""
        first = _run_compiled(first_view.tape, pair[0])
        second = _run_compiled(second_view.tape, pair[1])
        if np.array_equal(first, second, equal_nan=True):
            return None
        return largest_difference(first.astype(np.float64), second.astype(np.float64))

    outputs = zip(first_view.tape.outputs, second_view.tape.outputs, strict=True)
    if (last := next(filter(size, outputs), None)) is None:
        return None
    # Of the parts that end at one pair each, the last differs.
    pairs = _pairs(first_view, second_view)
    index = bisect.bisect_left(pairs, True, key=lambda pair: size(pair) is not None)
    a, b = [*pairs, last][index]
    sizes = size((a, b))
    assert sizes is not None  # for the type checker
    return Difference(
        one=places.operation(first_view.tape, first_view.tape.roots[a]),
        other=places.operation(second_view.tape, second_view.tape.roots[b]),
        max_abs=sizes[0],
        max_rel=sizes[1],
        compiled_only=True,
    )


def _pairs(first_view: View, second_view: View) -> list[tuple[int, int]]:
    """Return the computed values that both programs have, in order, of one shape."""
    pairs = []
    for a in first_view.data_values():
        if a not in first_view.tape.producers:
            continue
        for b in second_view.find_all(first_view.core(a)):
            if b in second_view.tape.producers and np.array_equal(
                first_view.arrays[a], second_view.arrays[b]
            ):
                pairs.append((a, b))
                break
    return pairs


def _run_compiled(tape: Tape, result: int) -> np.ndarray:
    """Compile and run the steps of a tape on which a value depends."""
    leaves = [value for value in tape.leaves if tape.depends[value] & DATA]
    # What does not depend on data, such as random draws, is a constant of the program.
    steps = [s for s in tape.steps_for([result]) if tape.depends[s.results[0]] & DATA]

    def run(arrays: list[Array]) -> Array:
        values = dict(zip(leaves, arrays, strict=True))
        for step in steps:
            operands = [values.get(value, tape.arrays[value]) for value in step.operands]
            values.update(zip(step.results, bind(step.equation, operands), strict=True))
        return values.get(result, tape.arrays[result])

    return np.asarray(jax.jit(run)([tape.arrays[value] for value in leaves]))
