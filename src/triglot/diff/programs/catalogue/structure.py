"""Operations that both programs have, on other operands, axes or numbers."""

import math
from collections.abc import Collection, Sequence

import numpy as np

from .. import places
from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import INPUTS, PARAMS, Operand, Step, Tape
from ..values import Core, layouts
from . import features
from .features import BOUNDS, CONFIRMED, MAX_STEPS, ROWS, SUBSTITUTED, Finding, in_each

REDUCTIONS = {
    "argmax": "takes the argmax",
    "cumsum": "sums cumulatively",
    "reduce_max": "takes the maximum",
    "reduce_min": "takes the minimum",
    "reduce_sum": "sums",
}
SYMMETRIC = ("add", "add_any", "mul", "max", "min", "and", "or", "xor", "eq", "ne")


def constant(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find two numbers in the same operation, confirmed by the first one's in both."""
    for first, second in features.pairs(divergence):
        first_numbers, second_numbers = (
            {c.position: c.value for c in features.constants(part.tape, step)}
            for part, step in zip(divergence.parts, (first, second), strict=True)
        )
        for position in first_numbers.keys() & second_numbers.keys():
            numbers = first_numbers[position], second_numbers[position]
            if numbers[0] == numbers[1]:
                continue
            if divergence.agrees_with_numbers({(second, position): numbers[0]}):
                name = "clip_range" if second.name in BOUNDS else "constant"
                descriptions = [f"{number:.6g}" for number in numbers]
                evidence = f"{second.name} {in_each(descriptions, labels, 'with ')}; {CONFIRMED}"
                return Finding(name, evidence, divergence)
    return None


def constant_result(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find results that depend on no data, and are other numbers."""
    numbers = []
    for part in divergence.parts:
        if part.end is None or not part.tape.is_constant(part.end):
            return None
        number = part.tape.scalar(part.end)
        numbers.append("several numbers" if number is None else f"{number:.6g}")
    evidence = f"a result is {in_each(numbers, labels)}"
    return Finding("constant", evidence, divergence)


def constant_array(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find arrays of constants, such as tables of positions; those of the first confirm it."""
    first_arrays, second_arrays = (_constant_arrays(part) for part in divergence.parts)
    shapes = [[array.shape for array in side.values()] for side in (first_arrays, second_arrays)]
    if shapes[0] != shapes[1]:
        return None
    changed = {
        place: array
        for array, (place, second_array) in zip(
            first_arrays.values(), second_arrays.items(), strict=True
        )
        if not np.array_equal(array, second_array)
    }
    if not changed or not divergence.agrees({}, changed):
        return None
    place = next(iter(changed))
    differ = int(np.sum(changed[place] != second_arrays[place]))
    evidence = (
        f"constants of shape {list(second_arrays[place].shape)} differ in {differ} of "
        f"{second_arrays[place].size} numbers; with those of {labels[0]} in both, the results are "
        "equal"
    )
    return Finding("constant", evidence, divergence)


def _constant_arrays(part: RegionPart) -> dict[Operand, np.ndarray]:
    """Return the constants with several different numbers, by the step and operand that reads."""
    tape = part.tape
    return {
        (step, position): array
        for step in part.steps[:MAX_STEPS]
        for position, value in enumerate(step.operands)
        if tape.is_constant(tape.roots[value]) and tape.scalar(value) is None
        if isinstance(array := tape.arrays[value], np.ndarray)  # a key is none
    }


def factor(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find results that differ by a factor, where a part multiplies with a number."""
    number = features.ratio(divergence)
    if number is None or not any(_scales(part) for part in divergence.parts):
        return None
    logits = all(
        part.end is not None and features.feeds_softmax(part.tape, part.end, 8)
        for part in divergence.parts
    )
    evidence = (
        f"the results of {labels[0]} are {number:.6g} times those of {labels[1]}; {SUBSTITUTED}"
    )
    return Finding("attention_scale" if logits else "constant", evidence, divergence)


def reduction(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a reduction of equal values over other axes, or of another kind."""
    first_part, second_part = divergence.parts
    if (readout := _readout(divergence, labels)) is not None:
        return readout
    for left in _steps_named(first_part, REDUCTIONS):
        for right in _steps_named(second_part, REDUCTIONS):
            if not features.read_equal(divergence, left, right):
                continue
            shapes = [
                np.shape(part.tape.arrays[step.operands[0]])
                for part, step in zip(divergence.parts, (left, right), strict=True)
            ]
            if left.name != right.name and divergence.substitute is not None:
                kinds = [REDUCTIONS[step.name] for step in (left, right)]
                evidence = f"{in_each(kinds, labels)}, of equal values"
                return Finding("pooling", evidence, divergence)
            result = first_part.view.core(left.results[0])
            other_result = second_part.view.core(right.results[0])
            if result.same(other_result, first_part.view.tolerance):
                continue
            softmax = all(
                features.leads_to(part.tape, step.results[0], ("exp",), 3) is not None
                or features.comes_from(part.tape, step.operands[0], ("exp",), 3) is not None
                for part, step in zip(divergence.parts, (left, right), strict=True)
            )
            descriptions = [
                f"axes {_axes(step)} of {shape} "
                f"({math.prod(shape[axis] for axis in _axes(step))} values)"
                for step, shape in zip((left, right), shapes, strict=True)
            ]
            evidence = f"reduces {in_each(descriptions, labels, 'over ')}"
            return Finding("softmax_axis" if softmax else "reduction_axis", evidence, divergence)
    return None


def _readout(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an average of equal values in one program, one of them in the other."""
    for side in (0, 1):
        part, bare = divergence.parts[side], divergence.parts[1 - side]
        for first in _steps_named(part, ("reduce_max", "reduce_sum")):
            for second in _steps_named(bare, ROWS):
                steps = (first, second) if side == 0 else (second, first)
                if not features.read_equal(divergence, *steps):
                    continue
                is_mean = first.name == "reduce_sum"
                evidence = (
                    f"the {'average' if is_mean else 'maximum'} of all positions in "
                    f"{labels[side]}, some of them in {labels[1 - side]}"
                )
                return Finding("pooling", evidence, divergence)
    return None


def transform(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find Fourier transforms of equal values over other axes."""
    for left, right in features.pairs(divergence):
        if left.name != "fft":
            continue
        sizes = [step.equation.params["fft_lengths"] for step in (left, right)]
        if sizes[0] != sizes[1] and features.read_equal(divergence, left, right):
            evidence = f"transforms axes of sizes {in_each(sizes, labels)}"
            return Finding("reduction_axis", evidence, divergence)
    return None


def differing_operand(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operation that reads another value, confirmed by the first one's in its place."""
    first_part, second_part = divergence.parts
    for left, right in features.pairs(divergence):
        first_cores = first_part.view.cores(left.operands)
        second_cores = second_part.view.cores(right.operands)
        tolerance = first_part.view.tolerance
        unmatched = (
            _unmatched(first_cores, second_cores, tolerance),
            _unmatched(second_cores, first_cores, tolerance),
        )
        if [*map(len, unmatched)] != [1, 1] or len(first_cores) != len(second_cores):
            continue
        (missing,), (position,) = unmatched
        if number := _constant_operand(divergence, (left, missing), (right, position), labels):
            return number
        core = first_cores[missing]
        expected = next(second_part.view.find_all(core, unused=True), None)
        if expected is None or not divergence.parts[1].tape.depends[expected]:
            continue
        if core.array.size == 1 < np.size(second_part.view.arrays[expected]):
            continue  # such as zeros, which several statistics and biases start with
        value_read = right.operands[position]
        shape = np.shape(second_part.view.arrays[value_read])
        for array in layouts(second_part.view.array(expected), shape):
            if divergence.agrees({}, {(right, position): array}):
                verb = {"add": "adds", "mul": "multiplies with", "sub": "subtracts"}
                evidence = (
                    f"{labels[1]} {verb.get(right.name, f'computes {right.name} of')} "
                    f"{_describe_source(second_part.tape, value_read)} where {labels[0]} has "
                    f"{_describe_source(second_part.tape, expected)}; with that in both, the "
                    "results are equal"
                )
                name = _source_name(second_part.tape, right, value_read, expected)
                return Finding(name, evidence, divergence)
    return None


def _unmatched(cores: Sequence[Core], others: Sequence[Core], tolerance: float) -> list[int]:
    """Return the positions of the cores that equal none of the others."""
    return [i for i, core in enumerate(cores) if not any(core.same(c, tolerance) for c in others)]


def differing_term(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a sum of as many terms, of which one program has others that both compute."""
    terms = [_terms(part) for part in divergence.parts]
    if len(terms[0]) != len(terms[1]) or len(terms[0]) < 2 or divergence.substitute is None:
        return None
    shared = [
        {*side} <= part.region.boundary for side, part in zip(terms, divergence.parts, strict=True)
    ]
    if shared[0] == shared[1]:
        return None
    descriptions = [
        _describe_source(part.tape, side[0])
        for side, part in zip(terms, divergence.parts, strict=True)
    ]
    evidence = (
        f"{labels[1]} sums {len(terms[1])} values such as {descriptions[1]} where {labels[0]} has "
        f"{descriptions[0]}; {SUBSTITUTED}"
    )
    return Finding("residual_source", evidence, divergence)


def _terms(part: RegionPart) -> list[int]:
    """List what a part's result is the sum of; a bias belongs to its term."""
    tape, terms = part.tape, list[int]()
    pending = [] if part.end is None else [tape.roots[part.end]]
    while pending:
        value = pending.pop(0)
        step = tape.producers[value] if value in part.values else None
        if step is None or step.name != "add":
            terms.append(value)
            continue
        data = [tape.roots[each] for each in step.operands if tape.depends[each] & INPUTS]
        if len(data) == len(step.operands) or any(map(tape.is_constant, step.operands)):
            pending.extend(data)
        else:
            terms.append(value)
    return terms


def _constant_operand(
    divergence: Divergence, first: Operand, second: Operand, labels: tuple[str, str]
) -> Finding | None:
    """Find a number in one program in place of what the other computes."""
    tapes = [part.tape for part in divergence.parts]
    values = [step.operands[position] for step, position in (first, second)]
    numbers = [tape.scalar(value) for tape, value in zip(tapes, values, strict=True)]
    if (numbers[0] is None) == (numbers[1] is None):
        return None
    if not divergence.agrees_with_operand(values[0], second):
        return None
    descriptions = [f"{number:.6g}" if number is not None else _describe_source(tape, value)
             for number, tape, value in zip(numbers, tapes, values, strict=True)]  # fmt: skip
    evidence = (
        f"{first[0].name} {in_each(descriptions, labels, 'with ')}; with that in both, the results "
        "are equal"
    )
    return Finding("operand_source", evidence, divergence)


def _source_name(tape: Tape, step: Step, value_read: int, expected: int) -> str:
    """Name the cause for which a step reads one value, and not another."""
    wholes = [features.whole_of(tape, value) for value in (value_read, expected)]
    if wholes[0] is not None and wholes[0] == wholes[1]:
        return features.gate_order(tape, value_read) or "operand_order"
    if step.name == "add":
        return "residual_source"
    is_norm = features.is_norm_of(tape, value_read, expected) or features.is_norm_of(
        tape, expected, value_read
    )
    return "operation_order" if is_norm else "operand_source"


def position_embedding(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a sum with equal values of arrays that do not depend on the inputs, and differ."""
    first_part, second_part = divergence.parts
    for left, right in features.pairs(divergence):
        if left.name in ROWS and (rows := _other_rows(divergence, left, right, labels)):
            return rows
        if left.name == "mul" and (mask := _other_mask(divergence, left, right, labels)):
            return mask
        if left.name != "add":
            continue
        first_values, second_values = (
            [value for value in step.operands if not part.tape.depends[value] & INPUTS]
            for part, step in zip(divergence.parts, (left, right), strict=True)
        )
        if (
            len(first_values) != 1
            or len(second_values) != 1
            or np.size(first_part.view.arrays[first_values[0]]) == 1
        ):
            continue
        cores = first_part.view.core(first_values[0]), second_part.view.core(second_values[0])
        if cores[0].array.ndim < 2 or cores[0].same(cores[1], first_part.view.tolerance):
            continue
        descriptions = [
            _describe_source(part.tape, value)
            for part, value in zip(
                divergence.parts, (first_values[0], second_values[0]), strict=True
            )
        ]
        values = in_each(descriptions, labels)
        evidence = f"adds different values that do not depend on the inputs: {values}"
        return Finding("position_embedding", evidence, divergence)
    return None


def _other_rows(
    divergence: Divergence, left: Step, right: Step, labels: tuple[str, str]
) -> Finding | None:
    """Find other rows of one parameter that do not depend on the inputs."""
    tapes = [part.tape for part in divergence.parts]
    values = [step.operands[0] for step in (left, right)]
    if any(tape.depends[step.results[0]] != PARAMS
           for tape, step in zip(tapes, (left, right), strict=True)):  # fmt: skip
        return None
    first_view, second_view = (part.view for part in divergence.parts)
    if not first_view.core(values[0]).same(second_view.core(values[1]), first_view.tolerance):
        return None
    descriptions = [
        _describe_source(tape, value) for tape, value in zip(tapes, values, strict=True)
    ]
    evidence = (
        f"reads other rows of {descriptions[0]} in {labels[0]} than of {descriptions[1]} in "
        f"{labels[1]}"
    )
    return Finding("position_embedding", evidence, divergence)


def _other_mask(
    divergence: Divergence, left: Step, right: Step, labels: tuple[str, str]
) -> Finding | None:
    """Find a parameter that is multiplied with another constant array, such as a causal mask."""
    descriptions = []
    for part, step in zip(divergence.parts, (left, right), strict=True):
        masks = [v for v in step.operands if part.tape.is_constant(v)]
        parameters = [v for v in step.operands if part.tape.depends[v] == PARAMS]
        if len(masks) != 1 or len(parameters) != 1 or np.size(part.view.arrays[masks[0]]) == 1:
            return None
        array = part.view.array(masks[0])
        if not np.all((array == 0) | (array == 1)):
            return None
        descriptions.append(f"{np.sum(array == 0)} of {array.size}")
    evidence = f"the mask of the kernel hides {in_each(descriptions, labels)}"
    return Finding("causal_mask_offset", evidence, divergence)


def operand_order(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operation that reads the same two values in the other order."""
    first_part, second_part = divergence.parts
    for left, right in features.pairs(divergence):
        if len(left.operands) != 2 or len(right.operands) != 2 or left.name in SYMMETRIC:
            continue
        first_cores = first_part.view.cores(left.operands)
        second_cores = second_part.view.cores(right.operands)
        tolerance = first_part.view.tolerance
        if not all(
            first_core.same(second_core, tolerance)
            for first_core, second_core in zip(first_cores, second_cores[::-1], strict=True)
        ):
            continue
        arrays = list(map(second_part.view.array, right.operands))
        if arrays[0].shape != arrays[1].shape or first_cores[0].same(first_cores[1], tolerance):
            continue
        if divergence.agrees({}, {(right, 0): arrays[1], (right, 1): arrays[0]}):
            evidence = (
                f"{labels[1]} computes {right.name} with the operands of {labels[0]} in the other "
                "order; exchanged, the results are equal"
            )
            return Finding("operand_order", evidence, divergence)
    return None


def _steps_named(part: RegionPart, names: Collection[str]) -> list[Step]:
    return [step for step in part.steps[:MAX_STEPS] if step.name in names]


def _scales(part: RegionPart) -> bool:
    return any(
        step.name in ("mul", "div") and features.constants(part.tape, step)
        for step in part.steps[:MAX_STEPS]
    )


def _axes(step: Step) -> tuple[int, ...]:
    params = step.equation.params
    axes = params["axes"] if "axes" in params else (params["axis"],)
    return tuple(map(int, axes))


def _describe_source(tape: Tape, value: int) -> str:
    """Write what computes a value."""
    root = tape.roots[value]
    if root not in tape.producers:
        return f"the {tape.display_name(tape.leaves.get(root, 'constant'))}"
    return f"the result of {places.describe(places.operation(tape, root))}"
