"""The first operation whose results differ in a bit, or that it appears only when compiled."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ...core.tracing.jaxprs import bind
from ...core.types import PyTree
from ..types import Difference, Side
from . import divergence, places
from .recording import record_both
from .tape import DATA, Tape
from .values import View


def first_bit_difference(
    one: Side, other: Side, inputs: PyTree, *, train: bool, key: jax.Array
) -> Difference | None:
    """Find the first operation of each network whose operands are equal and results are not.

    Both forward passes are evaluated operation by operation, in the types with which they were
    traced. Where all results are equal, both are compiled, and the shortest compiled part whose
    result differs is searched by bisection. Random draws are replaced by constants.

    Args:
      one, other: networks with a codec, and their weights.
      inputs: a batch of inputs `[B, ...]` for both.
      train: training mode or evaluation.
      key: of the networks' random draws.

    Returns:
      The operations, with `compiled_only` if they differ only in compiled programs; None if the
      outputs are equal bit for bit in both ways.

    Raises:
      TriglotError: if a network has no codec or gives another number of outputs.
    """
    tapes = record_both(one, other, inputs, train=train, key=key, exact=True)
    views = [View(tape, tape.arrays, tolerance=0.0) for tape in tapes]
    found = divergence.find(*views)
    if found is not None:
        return found.described()
    return _compiled_difference(*views)


def _compiled_difference(one: View, other: View) -> Difference | None:
    outputs = list(zip(one.tape.outputs, other.tape.outputs, strict=True))
    if all(_difference_of(one.tape, other.tape, *pair) is None for pair in outputs):
        return None
    pairs = _pairs(one, other) + outputs
    # Of the parts that end at one pair each, the first has equal results and the last differs.
    low, high = (
        -1,
        next(
            i
            for i, pair in enumerate(pairs)
            if i >= len(pairs) - len(outputs) and _difference_of(one.tape, other.tape, *pair)
        ),
    )
    while high - low > 1:
        middle = (low + high) // 2
        if _difference_of(one.tape, other.tape, *pairs[middle]) is None:
            low = middle
        else:
            high = middle
    sizes = _difference_of(one.tape, other.tape, *pairs[high])
    assert sizes is not None
    a, b = (view.tape.roots[value] for view, value in zip((one, other), pairs[high], strict=True))
    operations = places.operation(one.tape, a), places.operation(other.tape, b)
    return Difference(
        one=operations[0],
        other=operations[1],
        max_abs=sizes[0],
        max_rel=sizes[1],
        compiled_only=True,
    )


def _pairs(one: View, other: View) -> list[tuple[int, int]]:
    """Return the computed values that both programs have, in order, of one shape."""
    found = []
    for a in one.compared():
        if a not in one.tape.producers:
            continue
        for b in other.find_all(one.core(a)):
            if b in other.tape.producers and np.array_equal(one.arrays[a], other.arrays[b]):
                found.append((a, b))
                break
    return found


def _difference_of(one: Tape, other: Tape, a: int, b: int) -> tuple[float, float] | None:
    """Compile both programs up to a value each; None if the results are equal bit for bit."""
    results = [np.asarray(compiled(tape, [v])[0]) for tape, v in ((one, a), (other, b))]
    if np.array_equal(*results, equal_nan=True):
        return None
    first, second = (array.astype(np.float64) for array in results)
    return divergence.difference(first, second)


def compiled(tape: Tape, wanted: Sequence[int]) -> list[Any]:
    """Compile and run the steps of a tape on which some values depend."""
    leaves = [value for value in tape.leaves if tape.depends[value] & DATA]
    run = _program(tape, leaves, wanted)
    return jax.jit(run)([tape.arrays[value] for value in leaves])


def _program(
    tape: Tape, leaves: Sequence[int], wanted: Sequence[int]
) -> Callable[[list[Any]], list[Any]]:
    needed = set(wanted)
    for step in reversed(tape.steps):
        if needed.intersection(step.results):
            needed.update(step.operands)

    def run(arrays: list[Any]) -> list[Any]:
        known = dict(zip(leaves, arrays, strict=True))
        for step in tape.steps:
            # What does not depend on data, such as random draws, is a constant of the program.
            if needed.isdisjoint(step.results) or not tape.depends[step.results[0]] & DATA:
                continue
            operands = [known.get(value, tape.arrays[value]) for value in step.operands]
            known.update(zip(step.results, bind(step.equation, operands), strict=True))
        return [known.get(value, tape.arrays[value]) for value in wanted]

    return run
