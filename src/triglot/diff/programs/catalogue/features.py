"""What the entries of the catalogue look for in a part of a program."""

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..divergence import Divergence, Search
from ..tape import LAYOUT, Step, Tape
from ..values import close

BOUNDS = ("clamp", "max", "min")
GATES = ("logistic",)
MAX_STEPS = 24  # of a part whose operations are compared one by one
PRODUCTS = ("conv_general_dilated", "dot_general")
ARITHMETIC = ("add", "div", "mul", "sub")
MAX_NORM = 12  # operations of a norm, from its result to its input
PIECES = ("split", "slice", "dynamic_slice")
ROOTS = ("rsqrt", "sqrt")
POWERS = (*ROOTS, "pow", "integer_pow")
ROWS = ("dynamic_slice", "gather", "slice")

# How a cause is confirmed, at the end of its evidence.
CONFIRMED = "with the first value in both, the results are equal"
SUBSTITUTED = "substituting the first network's result here makes everything downstream match"


@dataclass(frozen=True)
class Finding:
    """A named cause: its evidence, and the divergence that it explains.

    `more` has further causes of the same divergence, by name and evidence; `at` the value of each
    program whose operation is the place, where that is not the first of its part.
    """

    name: str
    evidence: str
    divergence: Divergence
    more: tuple[tuple[str, str], ...] = ()
    at: tuple[int, int] | None = None


Entry: TypeAlias = Callable[[Divergence, tuple[str, str]], Finding | None]


def of_search(find: Callable[[Search, tuple[str, str]], Finding | None]) -> Entry:
    """Make an entry of a question that concerns whole programs, which is answered once."""

    @functools.wraps(find)
    def entry(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
        search = divergence.search
        return search.once((find, labels), lambda: find(search, labels))

    return entry


def in_each(descriptions: Sequence[object], labels: tuple[str, str], before: str = "") -> str:
    """Write what each network has, such as `by 3 in one (Haiku), by 4 in other (Equinox)`."""
    pairs = zip(descriptions, labels, strict=True)
    return ", ".join(f"{before}{description} in {label}" for description, label in pairs)


@dataclass(frozen=True)
class Constant:
    """A scalar constant that a step reads."""

    step: Step
    position: int
    value: float


def constants(tape: Tape, step: Step) -> list[Constant]:
    """Return the scalar constants that a step reads."""
    numbers = [tape.scalar(value) for value in step.operands]
    return [Constant(step, i, number) for i, number in enumerate(numbers) if number is not None]


def all_pairs(divergence: Divergence) -> Iterator[tuple[Step, Step]]:
    """Yield steps of both parts."""
    first_part, second_part = divergence.parts
    return itertools.product(first_part.steps[:MAX_STEPS], second_part.steps[:MAX_STEPS])


def pairs(divergence: Divergence) -> Iterator[tuple[Step, Step]]:
    """Yield steps of both parts with the same operation."""
    for first, second in all_pairs(divergence):
        if first.name == second.name and first.name not in LAYOUT:
            yield first, second


def read_equal(divergence: Divergence, first: Step, second: Step) -> bool:
    """Return whether a step of each part has an equal first operand."""
    cores = [
        part.view.core(step.operands[0])
        for part, step in zip(divergence.parts, (first, second), strict=True)
    ]
    return cores[0].same(cores[1], divergence.search.tolerance)


def whole_of(tape: Tape, value: int) -> int | None:
    """Return the value of which another is a piece."""
    step = tape.step_of(value)
    return tape.roots[step.operands[0]] if step is not None and step.name in PIECES else None


def gate_order(tape: Tape, piece: int) -> str | None:
    """Return the cause of an order of gates, if a value is one of a cell's; None otherwise."""
    whole = whole_of(tape, piece)
    if whole is None:
        return None
    steps = [step for step in tape.readers_of(whole) if step.name in PIECES]
    pieces = [result for step in steps for result in step.results]
    if any(leads_to(tape, each, ("logistic", "tanh"), 2) is None for each in pieces):
        return None
    return {3: "gru_variant", 4: "lstm_forget_bias"}.get(len(pieces))


def feeds_softmax(tape: Tape, value: int, depth: int) -> bool:
    """Return whether a value is soon raised to an exponential, summed and divided by the sum."""
    power = leads_to(tape, value, ("exp",), depth)
    if power is None:
        return False
    result = power.results[0]
    return all(leads_to(tape, result, (name,), 3) is not None for name in ("reduce_sum", "div"))


def leads_to(tape: Tape, value: int, names: Collection[str], depth: int = 3) -> Step | None:
    """Return the first step of one of these names that reads a value or its results."""
    return next((step for step in onward(tape, [value], depth) if step.name in names), None)


def onward(
    tape: Tape, values: Iterable[int], depth: int, names: Collection[str] | None = None
) -> Iterator[Step]:
    """Yield the steps that read some values, then those that read their results, and so on.

    Args:
      tape: the recorded program.
      values: the values to start from.
      depth: how often results are followed.
      names: the names of the steps that are followed; None for all.
    """
    level = {tape.roots[value] for value in values}
    for _ in range(depth):
        steps = [step for root in level for step in tape.readers_of(root)]
        steps = [step for step in steps if names is None or step.name in names]
        yield from steps
        level = {result for step in steps for result in step.results}


def comes_from(tape: Tape, value: int, names: Collection[str], depth: int = 3) -> Step | None:
    """Return the last step of one of these names from which a value is computed."""
    level = {tape.roots[value]}
    for _ in range(depth):
        steps = [tape.producers[root] for root in level if root in tape.producers]
        for step in steps:
            if step.name in names:
                return step
        level = {tape.roots[v] for step in steps for v in step.operands}
    return None


def ratio(divergence: Divergence) -> float | None:
    """Return by what number the first result is the second one multiplied; None if by none."""
    pair = _finite_results(divergence)
    if pair is None or not np.any(pair[1]):
        return None
    first_result, second_result = pair
    factor = float(np.sum(first_result * second_result) / np.sum(second_result * second_result))
    return factor if close(first_result, factor * second_result) else None


def offset(divergence: Divergence) -> float | None:
    """Return the number by which the first result exceeds the second; None if it varies."""
    pair = _finite_results(divergence)
    if pair is None:
        return None
    first_result, second_result = pair
    number = float(np.mean(first_result - second_result))
    return number if close(first_result, second_result + number) else None


def _finite_results(divergence: Divergence) -> tuple[np.ndarray, np.ndarray] | None:
    pair = divergence.results()
    if pair is None or not np.all(np.isfinite(pair)) or "c" in (a.dtype.kind for a in pair):
        return None
    return pair[0].astype(np.float64), pair[1].astype(np.float64)


def is_norm_of(tape: Tape, value: int, source: int) -> bool:
    """Return whether a value is another one, normalized."""
    level, names = {tape.roots[value]}, set[str]()
    for _ in range(MAX_NORM):
        steps = [tape.producers[root] for root in level if root in tape.producers]
        names |= {step.name for step in steps}
        level = {
            tape.roots[operand]
            for step in steps
            if step.name not in PRODUCTS
            for operand in step.operands
        }
        if tape.roots[source] in level and not names.isdisjoint(ROOTS):
            return True
    return False
