"""Losses and targets: terms, averages, standardizations, bounds, flags and shifts in time."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ...types import Array
from .. import places
from ..divergence import Divergence, Search
from ..regions import Region, RegionPart
from ..sums import SUMS, differing_term, factor_of, split_factor
from ..tape import INPUTS, PARAMS, Operand, Step, Tape
from ..values import Core, close
from . import features
from .features import BOUNDS, CONFIRMED, MAX_STEPS, ROOTS, ROWS, Finding, in_each

PRODUCTS = ("mul", "div")
SQUARES = ("square", "integer_pow", "mul")
MAX_CHAIN = 6  # operations with numbers around what one program has in addition
MAX_STANDARDIZED = 40  # values of a region that may be standardized
NEAR = 1e-6
MAX_SHIFTED = 60  # values of a region that may be shifted
MIN_SHIFTED = 16  # numbers of an array whose shift is no chance
MIN_ROWS = 3
MAX_ERRORS = 80  # values of a region that may be errors or their losses


def leaves_of(tape: Tape, value: int) -> frozenset[str]:
    """Name the parameters and inputs from which a value is computed."""
    leaves = (v for v in tape.ancestors(value) if v in tape.leaves and tape.depends[v])
    return frozenset(tape.leaves[leaf].removeprefix("inputs/") for leaf in leaves)


def describe_value(tape: Tape, value: int) -> str:
    """Write a value: the input or parameter, or what computes it with its line."""
    root = tape.roots[value]
    if root in tape.leaves:
        return f"`{tape.display_name(tape.leaves[root]).removeprefix('inputs/')}`"
    if root not in tape.producers:
        return "a constant"
    names = sorted(map(tape.display_name, leaves_of(tape, root)))
    origin = f" of {', '.join(names[:4])}{' and more' if names[4:] else ''}" if names else ""
    source = places.operation(tape, root).source
    return f"{tape.producers[root].name}{origin}" + (f" ({source})" if source else "")


def sides(divergence: Divergence) -> Iterator[tuple[int, RegionPart, RegionPart]]:
    """Yield each part that computes something from what the other part ends with."""
    for side in (0, 1):
        part, bare = divergence.parts[side], divergence.parts[1 - side]
        if part.end is not None and bare.end is not None and part.steps:
            yield side, part, bare


def is_bare(part: RegionPart, value: int, bare: RegionPart) -> bool:
    """Return whether a value of one part is the result of the other."""
    end = bare.view.core(bare.end or 0)
    return part.view.core(value).same(end, part.view.tolerance)


def term(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a term that only one of two sums has, such as an entropy bonus or weight decay."""
    if (changed := _other_sign(divergence, labels)) is not None:
        return changed
    for side, part, bare in sides(divergence):
        step = part.tape.step_of(_without_ones(part.tape, part.end or 0))
        if step is None or step.name not in SUMS:
            continue
        for kept_position, added_position in ((0, 1), (1, 0)):
            value = step.operands[added_position]
            if part.tape.is_constant(value) or not is_bare(
                part, step.operands[kept_position], bare
            ):
                continue
            if added_position == 0 and step.name == "sub":
                continue
            number, source = split_factor(part.tape, value)
            verb = "subtracts" if step.name == "sub" else "adds"
            if number < 0:
                number, verb = -number, {"adds": "subtracts", "subtracts": "adds"}[verb]
            description = describe_value(part.tape, source)
            count = _count_summed(part.tape, source)
            if len(f"{number * count:.6g}") < len(f"{number:.6g}"):
                number, description = number * count, f"a mean: {description}"
            times = "" if number == 1 else f"{number:.6g} times "
            decay = _is_updated(part.tape, source) and abs(number) < 1
            name = "weight_decay" if decay else "loss_term"
            if decay:
                description = "the parameter itself"
            evidence = (
                f"{labels[side]} {verb} {times}{description}; {labels[1 - side]} lacks this term"
            )
            end, bare_end = step.results[0], bare.end or 0
            at = (end, bare_end) if side == 0 else (bare_end, end)
            return Finding(name, evidence, divergence, at=at)
    return None


def _without_ones(tape: Tape, value: int) -> int:
    """Return what a value is before products with 1."""
    for _ in range(MAX_CHAIN):
        step = tape.step_of(value)
        factor = factor_of(tape, step)
        if step is None or factor is None or factor[0] != 1:
            break
        value = step.operands[factor[1]]
    return value


def _other_sign(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a term that one program adds and the other subtracts."""
    first_part, second_part = divergence.parts
    for left, right in features.all_pairs(divergence):
        if {left.name, right.name} != {"add", "sub"}:
            continue
        term_of = right.operands[1]
        if not first_part.view.core(left.operands[1]).same(second_part.view.core(term_of)):
            continue
        if divergence.agrees({}, {(right, 1): -second_part.view.array(term_of)}):
            verbs = {"add": "adds", "sub": "subtracts"}
            evidence = (
                f"{labels[0]} {verbs[left.name]} a term, {labels[1]} {verbs[right.name]} it: "
                f"{describe_value(second_part.tape, term_of)}; {CONFIRMED}"
            )
            at = left.results[0], right.results[0]
            return Finding("loss_term", evidence, divergence, at=at)
    return None


def _count_summed(tape: Tape, value: int) -> int:
    """Return how many values a sum has; 1 if a value is no sum."""
    step = tape.step_of(value)
    if step is None or step.name != "reduce_sum":
        return 1
    return np.size(tape.arrays[step.operands[0]]) // max(1, np.size(tape.arrays[step.results[0]]))


def _ends(divergence: Divergence) -> tuple[int, int]:
    """Return the results of both parts, as the places of a finding."""
    first_part, second_part = divergence.parts
    return first_part.end or 0, second_part.end or 0


def _is_updated(tape: Tape, value: int) -> bool:
    """Return whether a value is a parameter, or what sums move to an output: an earlier one."""
    if np.size(tape.arrays[value]) < 2 or not tape.of_batches:
        return False
    outputs = {tape.roots[output] for output in tape.outputs}
    moves = features.onward(tape, [value], MAX_CHAIN, SUMS)
    return any(outputs.intersection(step.results) for step in moves)


def weight(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find factors, computed from inputs, that only one program has: a weight or a flag."""
    for side, part, bare in sides(divergence):
        factors = _factors(part, part.end or 0, bare, MAX_CHAIN)
        if factors is None:
            continue
        number, values = factors
        if not values or any(_is_root(part.tape, each) for each in values):
            continue
        flags = [each for each in values if _is_flag(part, each)]
        if flags:
            evidence, name = _describe_flag(part.tape, flags[0], side, labels), "bootstrap_flag"
        else:
            description = " and ".join(describe_value(part.tape, each) for each in values)
            description += "" if number == 1 else f" and {number:.6g}"
            evidence = f"{labels[side]} multiplies by {description}; {labels[1 - side]} does not"
            name = "loss_weight"
        return Finding(name, evidence, divergence, at=_ends(divergence))
    return None


def _factors(
    part: RegionPart, value: int, bare: RegionPart, depth: int
) -> tuple[float, list[int]] | None:
    """Return the number and the values by which a part multiplies the result of the other."""
    if is_bare(part, value, bare):
        return 1.0, []
    step = part.tape.step_of(value)
    if step is None or not depth or step.name not in (*PRODUCTS, "select_n"):
        return None
    if step.name == "select_n":
        chosen = [v for v in step.operands[1:] if not part.tape.is_constant(v)]
        inner = _factors(part, chosen[0], bare, depth - 1) if len(chosen) == 1 else None
        return None if inner is None else (inner[0], [*inner[1], step.operands[0]])
    for position, operand in enumerate(step.operands):
        other_operand = step.operands[1 - position]
        inner = _factors(part, operand, bare, depth - 1)
        if inner is None or (step.name == "div" and position == 1):
            continue
        factor = factor_of(part.tape, step)
        if factor is not None:
            return inner[0] * factor[0], inner[1]
        return inner[0], [*inner[1], other_operand]
    return None


def _is_root(tape: Tape, value: int) -> bool:
    return features.comes_from(tape, value, ROOTS, 4) is not None


def _is_flag(part: RegionPart, value: int) -> bool:
    """Return whether a value is 0 or 1, perhaps times a number, and read from an input."""
    array = part.view.array(value)
    if not part.tape.depends[value] & INPUTS or array.dtype.kind not in "biuf" or not array.size:
        return False
    numbers = np.unique(array)
    return numbers.size == 2 and 0 in numbers


def flag(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operation that reads another flag, such as `done` where the other has `terminated`.

    Confirmed by the first one's flag in both.
    """
    first_part, second_part = divergence.parts
    for first_value, operand in _operand_pairs(divergence):
        second_value = operand[0].operands[operand[1]]
        is_flag = _is_flag(first_part, first_value), _is_flag(second_part, second_value)
        if is_flag[0] != is_flag[1]:
            if finding := _number_times_flag(divergence, first_value, operand, labels):
                return finding
            continue
        sides = (first_part, first_value), (second_part, second_value)
        names = [sorted(leaves_of(part.tape, value)) for part, value in sides]
        if not all(is_flag) or names[0] == names[1]:
            continue
        if divergence.agrees_with_operand(first_value, operand):
            descriptions = [" and ".join(f"`{each}`" for each in side) for side in names]
            flags = in_each(descriptions, labels)
            evidence = f"{operand[0].name} reads the flag {flags}; {CONFIRMED}"
            return Finding("bootstrap_flag", evidence, divergence)
    return None


def _operand_pairs(divergence: Divergence) -> Iterator[tuple[int, Operand]]:
    """Yield operands at equal positions of equal operations: the first one's value, the second."""
    for left, right in features.pairs(divergence):
        if len(left.operands) == len(right.operands):
            yield from ((value, (right, i)) for i, value in enumerate(left.operands))


@features.of_search
def joined_flags(search: Search, labels: tuple[str, str]) -> Finding | None:
    """Find a flag that cuts off in one program what only another flag cuts off in the other.

    Such as a time limit that counts as a termination, however both programs read their flags.
    Confirmed by the results of one program, given the flags as the other one takes them.
    """
    if not search.slots or any(map(_has_replaced_values, search.regions)):
        return None
    for side in (0, 1):
        changed, fixed = search.regions[side], search.regions[1 - side]
        tape, arrays = changed.tape, changed.view.arrays
        outputs = [(tape.outputs[slot], fixed.view.arrays[fixed.tape.outputs[slot]])
                   for slot in search.slots]  # fmt: skip
        for first, second in itertools.permutations(_flags(changed), 2):
            if np.shape(arrays[first]) != np.shape(arrays[second]):
                continue
            array, other_array = changed.view.array(first), changed.view.array(second)
            union = np.maximum(array, other_array).astype(array.dtype)
            zeros = np.zeros_like(other_array)
            for replaced in ({first: union, second: zeros}, {first: union}):
                after = tape.replay(replaced, arrays=arrays)
                if not all(close(np.asarray(after[value]), np.asarray(expected), search.tolerance)
                           for value, expected in outputs):  # fmt: skip
                    continue
                names = [describe_value(tape, value) for value in (second, first)]
                evidence = (
                    f"in {labels[1 - side]} {names[0]} cuts off what only {names[1]} cuts off in "
                    f"{labels[side]}; with the same flags the results are equal"
                )
                leaves = [tape.leaves[value] for value in (second, first)]
                at = _first_read(search.first, leaves), _first_read(search.second, leaves)
                return Finding("bootstrap_flag", evidence, _all_outputs(search), at=at)
    return None


def _has_replaced_values(region: Region) -> bool:
    """Return whether values of a program were replaced, which are not computed from its inputs."""
    pairs = zip(region.view.arrays, region.tape.arrays, strict=True)
    return any(array is not recorded for array, recorded in pairs)


def _flags(region: Region) -> list[int]:
    """List the inputs of a program that hold 0 and 1 only."""
    part = RegionPart(region, [])
    leaves = region.tape.leaves
    return [v for v in leaves if region.tape.depends[v] == INPUTS and _is_flag(part, v)]


def _first_read(region: Region, names: Sequence[str]) -> int:
    """Return the first value that is computed of the first of some inputs that is read."""
    tape = region.tape
    leaves = {name: value for value, name in tape.leaves.items()}
    readers = [tape.readers_of(leaves[name]) for name in names if name in leaves]
    steps = next(filter(None, readers), [])
    return steps[0].results[0] if steps else tape.outputs[0]


def _all_outputs(search: Search) -> Divergence:
    """Return the divergence of whole programs, with the first one's outputs for the second's."""
    first_region, second_region = search.first, search.second
    ends = [
        (first_region.tape.outputs[slot], second_region.tape.outputs[slot]) for slot in search.slots
    ]
    values = {b: first_region.view.array(a) for a, b in ends}
    first, second = ends[0]
    parts = (
        RegionPart(first_region, first_region.values, first),
        RegionPart(second_region, second_region.values, second),
    )
    return Divergence(search, parts, values, substitute=values[second])


def _number_times_flag(
    divergence: Divergence, first_value: int, operand: Operand, labels: tuple[str, str]
) -> Finding | None:
    """Find a number in one program where the other has it times a flag."""
    values = first_value, operand[0].operands[operand[1]]
    tapes = [part.tape for part in divergence.parts]
    numbers = [tape.scalar(value) for tape, value in zip(tapes, values, strict=True)]
    if (numbers[0] is None) == (numbers[1] is None):
        return None
    if not divergence.agrees_with_operand(first_value, operand):
        return None
    side = 0 if numbers[0] is None else 1
    evidence = _describe_flag(tapes[side], values[side], side, labels)
    return Finding("bootstrap_flag", evidence, divergence)


def _describe_flag(tape: Tape, value: int, side: int, labels: tuple[str, str]) -> str:
    names = " and ".join(
        f"`{name}`" for name in sorted(map(tape.display_name, leaves_of(tape, value)))
    )
    return f"a flag ({names}) cuts this off in {labels[side]}, none does in {labels[1 - side]}"


def shift(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an array in time whose rows one program reads one step earlier or later."""
    return _shift(divergence, labels) or _other_row(divergence, labels)


def _other_row(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operation on another row of an array, confirmed by the first one's row."""
    first_part, second_part = divergence.parts
    for left, right in features.pairs(divergence):
        for first_value, (position, second_value) in itertools.product(
            left.operands, enumerate(right.operands)
        ):
            rows = _row(first_part.tape, first_value), _row(second_part.tape, second_value)
            if rows[0] is None or rows[1] is None or rows[0][1] == rows[1][1]:
                continue
            cores = first_part.view.core(rows[0][0]), second_part.view.core(rows[1][0])
            if not cores[0].same(cores[1], first_part.view.tolerance):
                continue
            if divergence.agrees_with_operand(first_value, (right, position)):
                offsets = [b - a for a, b in zip(rows[0][1], rows[1][1], strict=True)]
                axis = next(index for index, distance in enumerate(offsets) if distance)
                direction = "later" if offsets[axis] > 0 else "earlier"
                evidence = (
                    f"{labels[1]} reads {describe_value(second_part.tape, rows[1][0])} "
                    f"{abs(offsets[axis])} "
                    f"{direction} along axis {max(0, axis - 1)} than {labels[0]}; {CONFIRMED}"
                )
                return Finding("time_shift", evidence, divergence)
    return None


def _row(tape: Tape, value: int) -> tuple[int, tuple[int, ...]] | None:
    """Return the array of which a value is a row, times numbers, and where the row starts."""
    for _ in range(MAX_CHAIN):
        step = tape.step_of(value)
        if step is None:
            return None
        if step.name == "slice":
            return tape.roots[step.operands[0]], tuple(step.equation.params["start_indices"])
        if step.name == "dynamic_slice":
            starts = list(map(tape.scalar, step.operands[1:]))
            if any(start is None for start in starts):
                return None
            return tape.roots[step.operands[0]], tuple(int(start or 0) for start in starts)
        data = [each for each in step.operands if not tape.is_constant(each)]
        if len(data) != 1:
            return None
        (value,) = data
    return None


@features.of_search
def _shift(search: Search, labels: tuple[str, str]) -> Finding | None:
    first_region, second_region = search.first, search.second
    sides = [
        [v for v in _values_and_row_sources(region) if _has_time(region, v)]
        for region in search.regions
    ]
    for a, b in itertools.product(*sides):
        distance = _row_offset(first_region.view.array(a), second_region.view.array(b))
        if distance is None:
            continue
        for divergence in _shifted_divergences(search, a, b):
            descriptions = [
                describe_value(region.tape, value)
                for region, value in zip(search.regions, (a, b), strict=True)
            ]
            direction = "earlier" if distance > 0 else "later"
            evidence = (
                f"{labels[1]} reads {descriptions[1]} where {labels[0]} reads {descriptions[0]}: "
                f"the rows of one step {direction}; {CONFIRMED}"
            )
            at = _values_behind_reads(divergence, a)
            return Finding("time_shift", evidence, divergence, at=at)
    return None


def _values_and_row_sources(region: Region) -> list[int]:
    """List the values of a region and around it, and the arrays of which they are rows."""
    values = [*sorted(region.boundary), *region.values[:MAX_SHIFTED]]
    rows = (_row(region.tape, value) for value in values)
    row_sources = [row[0] for row in rows if row is not None]
    return list(dict.fromkeys([*values, *row_sources]))


def _has_time(region: Region, value: int) -> bool:
    array = region.view.array(value)
    return array.ndim > 1 and array.size >= MIN_SHIFTED and array.dtype.kind in "fiub"


def _row_offset(first_array: np.ndarray, second_array: np.ndarray) -> int | None:
    """Return by how many rows two arrays are shifted, 1 or -1; None if they are not."""
    if first_array.shape != second_array.shape or close(first_array, second_array):
        return None
    for axis in range(first_array.ndim):
        if first_array.shape[axis] < MIN_ROWS:
            continue
        first, second = (np.moveaxis(array, axis, 0) for array in (first_array, second_array))
        if all(np.all(each == each[:1]) for each in (first, second)):
            continue
        if close(first[1:], second[:-1]):
            return 1
        if close(first[:-1], second[1:]):
            return -1
    return None


def _shifted_divergences(search: Search, a: int, b: int) -> Iterator[Divergence]:
    """Yield divergences of which the second program reads a value of the first in some steps.

    A loop reads one row at a time, and may read an array twice: each reading is tried.
    """
    tape, arrays = search.second.tape, search.second.view.arrays
    expected = search.first.view.cores(search.first.values)
    array, rearrangements = search.first.view.array(a), tape.rearrangements_of(b)
    arranged = tape.replay({b: array}, arrays=arrays, steps=rearrangements)
    for steps in _group_readers(tape, b):
        operands = {
            (step, position): arranged[value]
            for step in steps
            for position, value in enumerate(step.operands)
            if tape.roots[value] == b
        }
        arrays_after = tape.replay({}, operands, arrays=arrays)
        changed = [v for v in search.second.values if arrays_after[v] is not arrays[v]]
        rows = {result for step in steps for result in step.results}
        later = [v for v in changed if v not in rows or steps[0].name not in ROWS]
        if any(search.is_among(Core.of(arrays_after[v]), expected) for v in later):
            yield search.replacing(a, b, {}, operands)


def _group_readers(tape: Tape, value: int) -> list[list[Step]]:
    """Group the steps that read a value: all steps, each step, or the steps that read one row."""
    readers = tape.readers_of(value)
    rows = [step for step in readers if step.name in ROWS]
    single_steps = [[step] for step in readers if step not in rows]
    by_row: dict[str, list[Step]] = {}
    for step in rows:
        starts = str(step.equation.params.get("start_indices", step.operands[1:]))
        by_row.setdefault(starts, []).append(step)
    groups = [list(each) for each in zip(*by_row.values(), strict=False)]
    return [*([readers] if len(readers) > 1 else []), *single_steps, *groups]


def _values_behind_reads(divergence: Divergence, a: int) -> tuple[int, int]:
    """Return the first value that each program computes from the array that both read."""
    first_tape, second_tape = (part.tape for part in divergence.parts)
    first_reader = next(iter(first_tape.readers_of(a)), None)
    second_reader = next(step for step, _ in divergence.operands)
    first_result = a if first_reader is None else _behind_row(first_tape, first_reader)
    return first_result, _behind_row(second_tape, second_reader)


def _behind_row(tape: Tape, step: Step) -> int:
    """Return the result of a step, or of the first one that reads it if it takes a row."""
    readers = tape.readers_of(step.results[0]) if step.name in ROWS else []
    return (readers[0] if readers else step).results[0]


def reduction(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a mean in place of a sum, a mean over other axes, or one that divides by weights."""
    if (weighted := _weighted_mean(divergence, labels)) is not None:
        return weighted
    number = features.ratio(divergence)
    if number is None or number <= 0:
        return None
    divisors = [_divisor(part) for part in divergence.parts]
    if divisors == [None, None]:
        return None
    counts = [1 if each is None else each[0] for each in divisors]
    if counts[0] == counts[1] or not math.isclose(number, counts[1] / counts[0], rel_tol=NEAR):
        return None
    descriptions = [f"divides the sum by {count}" if count > 1 else "only sums" for count in counts]
    shape_text = next(each[1] for each in divisors if each is not None)
    evidence = (
        f"{in_each(descriptions, labels)}, of values {shape_text}: a mean over {counts[0]} against "
        f"{counts[1]}"
        if all(count > 1 for count in counts)
        else f"{labels[0]} {descriptions[0]}, {labels[1]} {descriptions[1]}, of values {shape_text}"
    )
    return Finding("loss_reduction", evidence, divergence, at=_ends(divergence))


def _divisor(part: RegionPart) -> tuple[int, str] | None:
    """Return the number of values by which a part divides a sum, and their shape."""
    tape, count, shape = part.tape, 1.0, ""
    for step in part.steps[:MAX_STEPS]:
        factor = factor_of(tape, step)
        if factor is None or step.name != "div" or factor[0] <= 0:
            continue
        divisor = 1 / factor[0]
        summed = features.comes_from(tape, step.operands[factor[1]], ("reduce_sum",), 4)
        if divisor < 1.5 or abs(divisor - round(divisor)) > 1e-4 or summed is None:
            continue
        sizes = np.shape(tape.arrays[summed.operands[0]])
        if _is_product(round(divisor), sizes[1:]):
            count, shape = count * round(divisor), f"[{', '.join(map(str, sizes[1:]))}]"
    return (int(count), shape) if shape else None


def _is_product(count: int, sizes: tuple[int, ...]) -> bool:
    return any(
        math.prod(chosen_sizes) == count
        for length in range(1, len(sizes) + 1)
        for chosen_sizes in itertools.combinations(sizes, length)
    )


def _weighted_mean(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a sum that is divided by the sum of weights in one program, by a number in the other."""
    tapes = [part.tape for part in divergence.parts]
    for steps in features.pairs(divergence):
        if steps[0].name != "div":
            continue
        divisors = [step.operands[1] for step in steps]
        numbers = [tape.scalar(value) for tape, value in zip(tapes, divisors, strict=True)]
        if (numbers[0] is None) == (numbers[1] is None):
            continue
        side = 0 if numbers[0] is None else 1
        if features.comes_from(tapes[side], divisors[side], ("reduce_sum",), 3) is None:
            continue
        if not divergence.agrees_with_operand(divisors[0], (steps[1], 1)):
            continue
        descriptions = [
            f"{number:g}" if number is not None else describe_value(tape, value)
            for number, tape, value in zip(numbers, tapes, divisors, strict=True)
        ]
        divided = in_each(descriptions, labels, "by ")
        evidence = f"the sum is divided {divided}; {CONFIRMED}"
        return Finding("loss_reduction", evidence, divergence)
    return None


@features.of_search
def term_factor(search: Search, labels: tuple[str, str]) -> Finding | None:
    """Find a term with another factor, in a sum whose other terms are equal, in any order."""
    for slot in search.slots:
        pair = differing_term(search.first, search.second, slot)
        if pair is None:
            continue
        (a, first_number), (b, second_number) = pair
        term = search.first.view.array(a)
        arrays = first_number * term, second_number * search.second.view.array(b)
        if np.unique(arrays[0]).size < 2 or not _is_multiple(*arrays):
            continue
        number = float(np.ravel(arrays[0])[0] / np.ravel(arrays[1])[0])
        evidence = f"a term of {labels[0]} is {number:.6g} times that of {labels[1]}"
        tape, output = search.second.tape, search.second.tape.outputs[slot]
        operands = {
            (step, position): term * np.float32(first_number / second_number)
            for step in tape.readers_of(b)
            for position, value in enumerate(step.operands)
            if tape.roots[value] == b and step.name in SUMS
        }
        arrays_after = tape.replay({}, operands, arrays=search.second.view.arrays)
        expected = search.first.view.array(search.first.tape.outputs[slot])
        if not close(expected, np.asarray(arrays_after[output]), search.tolerance):
            continue
        divergence = search.replacing(a, b, {}, operands)
        return Finding("constant", f"{evidence}; {CONFIRMED}", divergence, at=(a, b))
    return None


@features.of_search
def error_loss(search: Search, labels: tuple[str, str]) -> Finding | None:
    """Find errors that one program squares, of which the other takes Huber's loss."""
    for side in (0, 1):
        plain, bent = search.regions[side], search.regions[1 - side]
        numbers = {
            abs(number)
            for value in bent.values[:MAX_ERRORS]
            for operand in bent.tape.producers[value].operands
            if (number := bent.tape.scalar(operand))
        }
        squares = _squares(plain)
        for error, threshold in itertools.product(_errors(bent.tape), sorted(numbers)):
            if not np.any(error > threshold):
                continue
            huber = np.where(error < threshold, error**2, threshold * (2 * error - threshold))
            bends = [v for v in bent.values[:MAX_ERRORS]
                     if _is_multiple(bent.view.arrays[v], huber)]  # fmt: skip
            squared = [v for v in squares
                       if bends and _is_multiple(plain.view.arrays[v], error**2)]  # fmt: skip
            for square, value in itertools.product(squared, bends):
                a, b = (square, value) if side == 0 else (value, square)
                evidence = (
                    f"{labels[side]} squares an error; {labels[1 - side]} takes its Huber loss, "
                    f"linear beyond {threshold:g}"
                )
                # The first one's loss of the second one's error, which may have another factor.
                loss, form = (huber, error**2)[side == 0], (error**2, huber)[side == 0]
                second_array = search.second.view.array(b)
                largest = int(np.argmax(form))
                scale = np.ravel(second_array)[largest] / np.ravel(form)[largest]
                array = (loss * scale).reshape(second_array.shape).astype(second_array.dtype)
                divergence = search.replacing(a, b, {b: array}, {}, array)
                return Finding("error_loss", evidence, divergence, at=(a, b))
    return None


def _squares(region: Region) -> list[int]:
    """List the values in and around a region that may be squared errors."""
    values = [*region.values[:MAX_ERRORS], *sorted(region.boundary)]
    return [v for v in values if np.size(region.view.arrays[v]) >= MIN_SHIFTED]


def _errors(tape: Tape) -> list[np.ndarray]:
    """List the sizes of values of which a program computes the absolute value or the square."""
    errors = [
        np.abs(np.asarray(tape.arrays[step.operands[0]]))
        for step in tape.steps_for(tape.outputs)
        if step.name in ("abs", "square", "integer_pow")
    ]
    return [each for each in errors if each.size >= MIN_SHIFTED and each.dtype.kind == "f"]


def _is_multiple(array: Array, reference: np.ndarray) -> bool:
    """Return whether an array is another one times a number."""
    array, reference = np.ravel(np.asarray(array)), np.ravel(reference)
    if array.size != reference.size or array.dtype.kind != "f":
        return False
    largest = int(np.argmax(np.abs(reference)))
    return bool(array[largest]) and close(array, reference * (array[largest] / reference[largest]))


@features.of_search
def greedy_action(search: Search, labels: tuple[str, str]) -> Finding | None:
    """Find values at the maximum of others in one program, their own maximum in the other.

    Such as a target of double Q-learning: the online network chooses the action, and the target
    network values it.
    """
    for side in (0, 1):
        greedy, chosen = search.regions[side], search.regions[1 - side]
        choices = [step for step in chosen.tape.steps if step.name == "argmax"]
        for value in greedy.values:
            step = greedy.tape.step_of(value)
            if step is None or step.name != "reduce_max":
                continue
            values = greedy.view.array(step.operands[0])
            for choice in choices:
                choice_values = chosen.view.array(choice.operands[0])
                if choice_values.shape != values.shape or close(choice_values, values):
                    continue
                (axis,) = choice.equation.params["axes"]
                picked = np.expand_dims(np.argmax(choice_values, axis), axis)
                expected = np.take_along_axis(values, picked, axis).squeeze(axis)
                for counterpart in chosen.view.find_all(Core.of(expected)):
                    a, b = (value, counterpart) if side == 0 else (counterpart, value)
                    confirmed = search.agree(a, b)
                    if confirmed is None:
                        continue
                    descriptions = (describe_value(chosen.tape, choice.operands[0]),
                             describe_value(greedy.tape, step.operands[0]))  # fmt: skip
                    evidence = (
                        f"{labels[side]} takes the maximum of {descriptions[1]}, "
                        f"{labels[1 - side]} the value at the maximum of {descriptions[0]}"
                    )
                    return Finding("greedy_action", evidence, confirmed, at=(a, b))
    return None


def degrees_of_freedom(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find standard deviations whose variances divide by n and by n - 1."""
    tapes = [part.tape for part in divergence.parts]
    for steps in features.pairs(divergence):
        numbers = [factor_of(tape, step) for tape, step in zip(tapes, steps, strict=True)]
        if numbers[0] is None or numbers[1] is None:
            continue
        counts = [1 / number for number, _ in (numbers[0], numbers[1])]
        if any(abs(count - round(count)) > 1e-3 or count < 1 for count in counts):
            continue
        counts = [round(count) for count in counts]
        results = [(tape, step.results[0]) for tape, step in zip(tapes, steps, strict=True)]
        squared = all(features.comes_from(*each, SQUARES, 5) is not None for each in results)
        leads = any(features.leads_to(*each, ROOTS, 5) is not None for each in results)
        if abs(counts[0] - counts[1]) != 1 or not (squared and leads):
            continue
        number = float(counts[0]) if steps[1].name == "div" else 1 / counts[0]
        if divergence.agrees_with_numbers({(steps[1], 1 - numbers[1][1]): number}):
            return Finding("degrees_of_freedom", _ddof(counts, labels), divergence)
    number = features.ratio(divergence)
    if number is None or number <= 0 or number == 1:
        return None
    sizes = {
        size
        for part in divergence.parts
        for step in part.steps[:MAX_STEPS]
        for operand in step.operands
        for size in np.shape(part.tape.arrays[operand])[1:]
        if size > 1
    }
    if not any(_has_root(part) for part in divergence.parts):
        return None
    for size in sorted(sizes):
        for power in (1, -1, 0.5, -0.5):
            if math.isclose(number, (size / (size - 1)) ** power, rel_tol=NEAR):
                smaller = (number > 1) == (power in (1, 0.5))
                counts = [size - 1, size] if smaller else [size, size - 1]
                return Finding("degrees_of_freedom", _ddof(counts, labels), divergence)
    return None


def _has_root(part: RegionPart) -> bool:
    if not part.names.isdisjoint(ROOTS):
        return True
    return part.end is not None and features.leads_to(part.tape, part.end, ROOTS, 4) is not None


def _ddof(counts: list[int], labels: tuple[str, str]) -> str:
    divides = in_each(counts, labels, "by ")
    return f"the variance divides {divides} (degrees of freedom); {CONFIRMED}"


@features.of_search
def standardization(search: Search, labels: tuple[str, str]) -> Finding | None:
    """Find a value that only one program standardizes, or centres, or scales by its deviation."""
    for side in (0, 1):
        region, bare = search.regions[side], search.regions[1 - side]
        for value in region.values[:MAX_STANDARDIZED]:
            source = _standardized_source(region, value)
            if source is None:
                continue
            for raw in bare.view.find_all(region.view.core(source)):
                a, b = (value, raw) if side == 0 else (raw, value)
                if raw not in {*bare.boundary, *bare.leaves} or not search.fits(a, b):
                    continue
                confirmed = search.next_agree(a, b)
                if confirmed is None:
                    continue
                evidence = (
                    f"{labels[side]} standardizes {describe_value(region.tape, source)}, to mean "
                    f"0 and deviation 1; {labels[1 - side]} does not"
                )
                return Finding("standardization", evidence, confirmed)
    return None


def _standardized_source(region: Region, value: int) -> int | None:
    """Return the value of which another is the standardized one."""
    tape = region.tape
    step = tape.step_of(value)
    if step is None or step.name not in PRODUCTS:
        return None
    for position, operand in enumerate(step.operands):
        root = features.comes_from(tape, step.operands[1 - position], ROOTS, 3)
        if root is None:
            continue
        centred = tape.step_of(operand)
        source = operand
        if centred is not None and centred.name == "sub":
            source = centred.operands[0]
        source = tape.roots[source]
        reduced = features.comes_from(tape, root.results[0], ("reduce_sum",), 6)
        if reduced is not None and features.is_norm_of(tape, value, source):
            return source
    return None


def clip_range(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find clips of equal values within other numbers, confirmed by all of the first one's."""
    first_part, second_part = divergence.parts
    for first, second in features.all_pairs(divergence):
        chains = _clip(first_part.tape, first), _clip(second_part.tape, second)
        names = [[bound.step.name for bound in chain] for chain in chains]
        numbers = [[bound.value for bound in chain] for chain in chains]
        if not chains[0] or names[0] != names[1] or numbers[0] == numbers[1]:
            continue
        changed = {
            (bound.step, bound.position): number
            for bound, number in zip(chains[1], numbers[0], strict=True)
        }
        if divergence.agrees_with_numbers(changed):
            descriptions = [" and ".join(f"{n:.6g}" for n in sorted(each)) for each in numbers]
            evidence = f"bounded {in_each(descriptions, labels, 'by ')}; {CONFIRMED}"
            at = first.results[0], second.results[0]
            return Finding("clip_range", evidence, divergence, at=at)
    return None


def _clip(tape: Tape, step: Step) -> list[features.Constant]:
    """List the bounds that follow one another."""
    bounds: list[features.Constant] = []
    while step.name in BOUNDS and (constants := features.constants(tape, step)):
        bounds += constants
        readers = tape.readers_of(step.results[0])
        next_steps = [s for s in readers if s.name in BOUNDS and features.constants(tape, s)]
        if len(next_steps) != 1:
            break
        (step,) = next_steps
    return bounds


def bound(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a minimum, a maximum or a clip that only one program takes, or takes otherwise."""
    for side, part, bare in sides(divergence):
        value, names = _without_ones(part.tape, part.end or 0), list[str]()
        bounding_values: list[int] = []
        for _ in range(MAX_CHAIN):
            step = part.tape.step_of(value)
            if step is None or step.name not in BOUNDS:
                break
            names.append(step.name)
            data = [v for v in step.operands if not part.tape.is_constant(v)]
            bare_values = [v for v in data if is_bare(part, v, bare)]
            if bare_values:
                bounding_values = [v for v in data if v not in bare_values]
                evidence = _bounds(part, names, bounding_values, side, labels)
                are_flags = bounding_values and all(
                    _is_flag(part, v) for v in (*bounding_values, *bare_values)
                )
                name = "bootstrap_flag" if are_flags else "clipping"
                return Finding(name, evidence, divergence, at=_ends(divergence))
            if len(data) != 1:
                break
            value = data[0]
    return _other_bound(divergence, labels)


def _bounds(
    part: RegionPart,
    names: list[str],
    bounding_values: list[int],
    side: int,
    labels: tuple[str, str],
) -> str:
    words = {"max": "the maximum", "min": "the minimum", "clamp": "a clip"}
    if bounding_values:
        description = (
            f"takes {words[names[-1]]} with {describe_value(part.tape, bounding_values[0])}"
        )
    else:
        description = "clips" if len(names) > 1 or "clamp" in names else f"takes {words[names[0]]}"
        description += " with a number" if description.startswith("takes") else " within numbers"
    return f"{labels[side]} {description}; {labels[1 - side]} does not"


def _other_bound(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a minimum of equal values in place of a maximum."""
    first_part, second_part = divergence.parts
    for left, right in features.all_pairs(divergence):
        if {left.name, right.name} != {"max", "min"} or divergence.substitute is None:
            continue
        first_cores = first_part.view.cores(left.operands)
        second_cores = second_part.view.cores(right.operands)
        if all(
            any(a.same(b, first_part.view.tolerance) for b in second_cores) for a in first_cores
        ):
            evidence = f"{in_each((left.name, right.name), labels)}, of equal values"
            return Finding("clipping", evidence, divergence)
    return None


def factor(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a factor of a term, confirmed for several batches."""
    number = features.ratio(divergence)
    pair = divergence.results()
    if number is None or pair is None or number == 1 or np.unique(pair[0]).size < 2:
        return None
    numbers = [_factor_of(part) for part in divergence.parts]
    if numbers[1] and math.isclose(numbers[0] / numbers[1], number, rel_tol=NEAR):
        evidence = f"a factor is {in_each([f'{each:.6g}' for each in numbers], labels)}"
    else:
        evidence = f"the results of {labels[0]} are {number:.6g} times those of {labels[1]}"
    return Finding("constant", f"{evidence}; {CONFIRMED}", divergence, at=_ends(divergence))


def _factor_of(part: RegionPart) -> float:
    """Multiply the numbers in the last products of a part."""
    number, value = 1.0, part.end or 0
    inside = {result for step in part.steps for result in step.results}
    while part.tape.roots[value] in inside:
        step = part.tape.step_of(value)
        scaling = factor_of(part.tape, step)
        if step is None or scaling is None:
            break
        number, value = number * scaling[0], step.operands[scaling[1]]
    return number


def parameters_read(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operation that reads other parameters: those of the target or the online network."""
    tapes = [part.tape for part in divergence.parts]
    for first_value, (step, position) in _operand_pairs(divergence):
        values = first_value, step.operands[position]
        names = [
            sorted(leaves_of(tape, value) & _parameters(tape))
            for tape, value in zip(tapes, values, strict=True)
        ]
        if not all(names) or len(names[0]) != len(names[1]):
            continue
        words = _differing_word(names[0], names[1])
        if words is not None and divergence.agrees_with_operand(first_value, (step, position)):
            networks = in_each([repr(word) for word in words], labels, "of ")
            evidence = f"reads the parameters {networks}; {CONFIRMED}"
            return Finding("target_network", evidence, divergence)
    return None


def _parameters(tape: Tape) -> set[str]:
    return {name for value, name in tape.leaves.items() if tape.depends[value] == PARAMS}


def _differing_word(first_names: list[str], second_names: list[str]) -> tuple[str, str] | None:
    """Return the one word by which all names of two lists differ."""
    words = set[tuple[str, str]]()
    for first_name, second_name in zip(first_names, second_names, strict=True):
        sides = first_name.split("/"), second_name.split("/")
        if len(sides[0]) != len(sides[1]):
            return None
        words |= {(a, b) for a, b in zip(*sides, strict=True) if a != b}
    return words.pop() if len(words) == 1 else None
