"""Operations that only one program has, or that it has at another place."""

import itertools
from collections import Counter

from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import LAYOUT, Tape
from . import features
from .features import ARITHMETIC, SUBSTITUTED, Finding, in_each

MAX_DIFFERING = 5  # operations of a part that has another operation


def moved_sum(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a sum that is normalized in one program, of which the other normalizes one operand."""
    for early, late in ((0, 1), (1, 0)):
        part, bare = divergence.parts[early], divergence.parts[late].region
        first = next(iter(part.steps), None)
        if first is None or first.name != "add":
            continue
        total, cores = first.results[0], part.view.cores(first.operands)
        for step in bare.steps(bare.values):
            end = step.results[0]
            if step.name != "add" or _is_averaged(bare.tape, end):
                continue  # no sum, or one that is normalized too
            for (kept_operand, normalized_operand), added in itertools.product(
                (step.operands, step.operands[::-1]), (cores, cores[::-1])
            ):
                if not bare.view.core(kept_operand).same(added[0], part.view.tolerance):
                    continue
                branch = next(bare.view.find_all(added[1]), None)
                if branch is None or not features.is_norm_of(bare.tape, normalized_operand, branch):
                    continue
                confirmed = _normalized_sum(divergence, early, total, end)
                if confirmed is not None:
                    evidence = (
                        f"the sum is normalized in {labels[early]}, one of its operands before the "
                        f"sum in {labels[late]}"
                    )
                    return Finding("operation_order", evidence, confirmed)
    return None


def _is_averaged(tape: Tape, value: int) -> bool:
    """Return whether a value, or its square, is summed, as a norm does."""
    near = features.onward(tape, [value], 2, ("square", "integer_pow", "reduce_sum"))
    return any(step.name == "reduce_sum" for step in near)


def _normalized_sum(divergence: Divergence, side: int, total: int, end: int) -> Divergence | None:
    """End a divergence at a sum that is normalized, and at what the other program has for that."""
    search = divergence.search
    region = search.regions[side]
    for value in region.values[::-1]:
        if total in region.ancestors[value] and features.is_norm_of(region.tape, value, total):
            a, b = (value, end) if side == 0 else (end, value)
            if search.fits(a, b) and (confirmed := search.next_agree(a, b)):
                return confirmed
    return None


def moved_operation(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operation that one program has before a sum or product, the other behind it."""
    for early, late in ((0, 1), (1, 0)):
        part, bare = divergence.parts[early], divergence.parts[late]
        names = [name for name in _sequence(part) if name not in ("stop_gradient", "copy")]
        if not names or names[-1] in ARITHMETIC or _sequence(bare) or bare.end is None:
            continue
        region = part.region
        # What the bare program computes of the value, and then with the same operation.
        for step in bare.tape.readers_of(bare.end):
            for result in step.results:
                behind = features.leads_to(bare.tape, result, names[-1:], 2)
                if behind is None:
                    continue
                moved_result = behind.results[0]
                for value in region.values:
                    if part.end not in region.ancestors[value] or value == part.end:
                        continue
                    a, b = (value, moved_result) if early == 0 else (moved_result, value)
                    if not divergence.search.fits(a, b):
                        continue
                    confirmed = divergence.search.agree(a, b)
                    if confirmed is None:
                        continue
                    occurrences = [_sequence(each).count(names[-1]) for each in confirmed.parts]
                    if occurrences[0] == occurrences[1]:
                        evidence = (
                            f"{names[-1]} comes before {step.name} in {labels[early]}, after it in "
                            f"{labels[late]}; {SUBSTITUTED}"
                        )
                        return Finding("operation_order", evidence, confirmed)
    return None


def operation_order(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find parts with the same operations in another order."""
    sequences = [_sequence(part) for part in divergence.parts]
    if Counter(sequences[0]) != Counter(sequences[1]) or sequences[0] == sequences[1]:
        return None
    if len(set(sequences[0])) < 2 or divergence.substitute is None:
        return None
    descriptions = [" ".join(sequence[:12]) for sequence in sequences]
    evidence = f"the same operations in another order: {in_each(descriptions, labels)}"
    return Finding("operation_order", evidence, divergence)


def other_operation(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Say which operation one part has in place of the other's."""
    only = _extra_operations(divergence)
    longest = max(len(_sequence(part)) for part in divergence.parts)
    if not all(only) or divergence.substitute is None or longest > MAX_DIFFERING:
        return None
    descriptions = [" ".join(names.elements()) for names in only]
    evidence = f"{in_each(descriptions, labels)}; {SUBSTITUTED}"
    return Finding("operation_differs", evidence, divergence)


def missing_operation(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Say what only one of two parts computes."""
    only = _extra_operations(divergence)
    for index, more in enumerate(only):
        if more and not only[1 - index] and divergence.substitute is not None:
            names = " ".join(more.elements())
            evidence = (
                f"{labels[index]} computes {names} in addition to what {labels[1 - index]} does"
            )
            return Finding("operation_missing", evidence, divergence)
    return None


def _extra_operations(divergence: Divergence) -> list[Counter[str]]:
    """Count the operations that each part has in addition to those of the other."""
    first_counts, second_counts = (Counter(_sequence(part)) for part in divergence.parts)
    return [first_counts - second_counts, second_counts - first_counts]


def computed_by_one(parts: tuple[RegionPart, RegionPart]) -> tuple[int, tuple[str, ...]] | None:
    """Return the index of the only part that computes something, and its operations."""
    sequences = [tuple(name for name in _sequence(part) if name != "pad") for part in parts]
    if bool(sequences[0]) == bool(sequences[1]):
        return None
    side = 0 if sequences[0] else 1
    return side, sequences[side]


def _sequence(part: RegionPart) -> list[str]:
    return [step.name for step in part.steps if step.name not in LAYOUT]
