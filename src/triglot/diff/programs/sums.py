"""Sums of terms, such as a loss, that two programs add in another order or with other signs."""

from dataclasses import dataclass

import numpy as np

from .regions import Region
from .tape import Step, Tape
from .values import Core, close

SUMS = ("add", "add_any", "sub")
PRODUCTS = ("mul", "div", "neg")
MAX_PRODUCTS = 6  # with numbers, around a term or a sum
MIN_TERMS = 3  # two have one order only


@dataclass(frozen=True)
class Terms:
    """The terms of one result.

    Attributes:
      terms: the values that are added, each with a number: its sign, times that of the sum.
      partial: the sums of some of them, without the whole sum.
    """

    terms: tuple[tuple[int, float], ...]
    partial: frozenset[int]


def partial_sums(
    first_region: Region, second_region: Region, slots: list[int]
) -> frozenset[tuple[int, int]]:
    """Return the partial sums of both programs, by side and value, which are not to be compared.

    Two programs that add as many terms in another order have no partial sums in common. A term that
    differs would show as one that is missing in one place, and as one too many in another.
    """
    partial: set[tuple[int, int]] = set()
    for slot in slots:
        sums = [
            _terms(region, region.tape.outputs[slot]) for region in (first_region, second_region)
        ]
        sizes = [len(each.terms) for each in sums]
        unmatched = [len(each) for each in _unmatched_terms(first_region, second_region, sums)]
        if min(sizes) >= MIN_TERMS and sizes[0] == sizes[1] and 0 < unmatched[0] < sizes[0]:
            partial |= {(side, value) for side in (0, 1) for value in sums[side].partial}
    return frozenset(partial)


def differing_term(
    first_region: Region, second_region: Region, slot: int
) -> tuple[tuple[int, float], tuple[int, float]] | None:
    """Return the only term of each program's sum that the other lacks, with its number.

    None if all are equal, if several differ, or if a result is no sum of several terms.
    """
    sums = [_terms(region, region.tape.outputs[slot]) for region in (first_region, second_region)]
    if min(len(each.terms) for each in sums) < MIN_TERMS:
        return None
    first_terms, second_terms = _unmatched_terms(first_region, second_region, sums)
    return (first_terms[0], second_terms[0]) if len(first_terms) == len(second_terms) == 1 else None


def _unmatched_terms(
    first_region: Region, second_region: Region, sums: list[Terms]
) -> list[list[tuple[int, float]]]:
    """List the terms of each program that the other lacks."""
    cores = [
        [Core.of(number * np.asarray(region.view.arrays[value])) for value, number in terms.terms]
        for region, terms in zip((first_region, second_region), sums, strict=True)
    ]
    tolerance = first_region.view.tolerance
    return [
        [
            term
            for term, core in zip(sums[side].terms, cores[side], strict=True)
            if not any(core.same(terms, tolerance) for terms in cores[1 - side])
        ]
        for side in (0, 1)
    ]


def _terms(region: Region, output: int) -> Terms:
    tape = region.tape
    shape = np.shape(tape.arrays[output])
    terms: list[tuple[int, float]] = []
    partial: set[int] = set()

    def add(value: int, sign: float, *, is_total: bool) -> None:
        root = tape.roots[value]
        step = tape.step_of(root)
        is_sum = (
            step is not None
            and step.name in SUMS
            and np.shape(tape.arrays[root]) == shape
            and not any(tape.is_constant(each) for each in step.operands)
            and (is_total or len(tape.readers_of(root)) == 1)
        )
        if step is None or not is_sum:
            terms.append((root, sign))
            return
        if not is_total:
            partial.add(root)
        for position, operand in enumerate(step.operands):
            negated = step.name == "sub" and position == 1
            add(operand, -sign if negated else sign, is_total=False)

    number, total = split_factor(tape, output)
    add(total, number, is_total=True)
    return Terms(tuple(terms), frozenset(partial))


def factor_of(tape: Tape, step: Step | None) -> tuple[float, int] | None:
    """Return the number with which a step multiplies, and the position of what it multiplies."""
    if step is None or step.name not in PRODUCTS:
        return None
    if step.name == "neg":
        return -1.0, 0
    for position, value in enumerate(step.operands):
        number = tape.scalar(value)
        if number and not (step.name == "div" and position == 0):
            return (1 / number if step.name == "div" else number), 1 - position
    return None


def split_factor(tape: Tape, value: int) -> tuple[float, int]:
    """Take numbers out of a product: return the number, and the value that is multiplied."""
    number = 1.0
    for _ in range(MAX_PRODUCTS):
        step = tape.step_of(value)
        factor = factor_of(tape, step)
        if step is None or factor is None:
            break
        number, value = number * factor[0], step.operands[factor[1]]
    return number, tape.roots[value]


def moves_sign(first_region: Region, second_region: Region, a: int, b: int) -> bool:
    """Return whether two values differ in their sign only, and a sum makes up for it.

    One program adds a negated term where the other subtracts the term.
    """
    arrays = np.asarray(first_region.view.arrays[a]), np.asarray(second_region.view.arrays[b])
    if arrays[0].dtype.kind != "f" or arrays[0].shape != arrays[1].shape:
        return False
    if not close(arrays[0], -arrays[1], first_region.view.tolerance):
        return False
    signs = _sign_in_sum(first_region.tape, a), _sign_in_sum(second_region.tape, b)
    return None not in signs and signs[0] != signs[1]


def _sign_in_sum(tape: Tape, value: int) -> int | None:
    """Return the sign with which a sum takes a value, after products with numbers.

    None if several steps read the value, or no sum does.
    """
    sign = 1
    for _ in range(MAX_PRODUCTS):
        readers = tape.readers_of(value)
        if len(readers) != 1:
            return None
        (step,) = readers
        positions = [i for i, each in enumerate(step.operands) if tape.roots[each] == value]
        if step.name in SUMS:
            return -sign if step.name == "sub" and positions == [1] else sign
        factor = factor_of(tape, step)
        if factor is None or len(positions) != 1:
            return None
        sign *= int(np.sign(factor[0]))
        value = tape.roots[step.results[0]]
    return None
