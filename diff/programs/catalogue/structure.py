"""Operations that both programs have, on other operands, axes, numbers or in another order."""

import itertools
from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np

from .. import places
from ..divergence import Divergence
from ..regions import RegionPart, consumers
from ..tape import INPUTS, LAYOUT, PARAMS, Step, Tape
from ..values import layouts
from . import features
from .features import Finding

REDUCTIONS = {
    "argmax": "takes the argmax",
    "cumsum": "sums cumulatively",
    "reduce_max": "takes the maximum",
    "reduce_min": "takes the minimum",
    "reduce_sum": "sums",
}
ARITHMETIC = ("add", "div", "mul", "sub")
ROWS = ("dynamic_slice", "gather", "slice")
SYMMETRIC = ("add", "add_any", "mul", "max", "min", "and", "or", "xor", "eq", "ne")
BOUNDS = ("clamp", "max", "min")
PRODUCTS = ("conv_general_dilated", "dot_general")
MAX_OTHERS = 5  # operations of a part that has another operation
MAX_NORM = 12  # operations of a norm, from its result to its input
MAX_STEPS = 24  # of a part whose operations are compared one by one


def constant(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find two numbers in the same operation, confirmed by the first one's in both."""
    for first, second in _pairs(found):
        ours, theirs = (
            {c.position: c.value for c in features.constants(part.tape, step)}
            for part, step in zip(found.parts, (first, second), strict=True)
        )
        tape = found.parts[1].tape
        for position in ours.keys() & theirs.keys():
            if ours[position] == theirs[position]:
                continue
            operand = tape.steps[second].operands[position]
            changed = np.full(np.shape(tape.arrays[operand]), ours[position])
            if found.agrees({}, {(second, position): changed}):
                name = "clip_range" if tape.steps[second].name in BOUNDS else "constant"
                evidence = (
                    f"{tape.steps[second].name} with {ours[position]:.6g} in {labels[0]}, with "
                    f"{theirs[position]:.6g} in {labels[1]}; with the first one's in both, the "
                    "results are equal"
                )
                return Finding(name, evidence, found)
    return None


def factor(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find results that differ by a factor, where a part multiplies with a number."""
    number = features.ratio(found)
    if number is None or not any(_scales(part) for part in found.parts):
        return None
    logits = all(
        part.end is not None and features.feeds_softmax(part.tape, part.end, 8)
        for part in found.parts
    )
    evidence = (
        f"the results of {labels[0]} are {number:.6g} times those of {labels[1]}; with the first "
        "one's in both, what follows is equal"
    )
    return Finding("attention_scale" if logits else "constant", evidence, found)


def reduction(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a reduction of equal values over other axes, or of another kind."""
    one, other = found.parts
    if (readout := _readout(found, labels)) is not None:
        return readout
    for first in _named(one, REDUCTIONS):
        for second in _named(other, REDUCTIONS):
            left, right = one.tape.steps[first], other.tape.steps[second]
            cores = one.view.core(left.operands[0]), other.view.core(right.operands[0])
            if not cores[0].same(cores[1], one.view.tolerance):
                continue
            shapes = [np.shape(part.tape.arrays[step.operands[0]])
                      for part, step in zip(found.parts, (left, right), strict=True)]  # fmt: skip
            if left.name != right.name and found.substitute is not None:
                kinds = [REDUCTIONS[step.name] for step in (left, right)]
                evidence = f"{kinds[0]} in {labels[0]}, {kinds[1]} in {labels[1]}, of equal values"
                return Finding("pooling", evidence, found)
            counts = [
                _reduced(step, shape) for step, shape in zip((left, right), shapes, strict=True)
            ]
            if not _other_axes(one, other, left, right):
                continue
            softmax = all(
                features.leads_to(part.tape, step.results[0], ("exp",), 3) is not None
                or features.comes_from(part.tape, step.operands[0], ("exp",), 3) is not None
                for part, step in zip(found.parts, (left, right), strict=True)
            )
            shown = [
                f"axes {_axes(step)} of {shape} ({count} values)"
                for step, shape, count in zip((left, right), shapes, counts, strict=True)
            ]
            evidence = f"reduces over {shown[0]} in {labels[0]}, over {shown[1]} in {labels[1]}"
            return Finding("softmax_axis" if softmax else "reduction_axis", evidence, found)
    return None


def _readout(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an average of equal values in one program, one of them in the other."""
    for side in (0, 1):
        part, bare = found.parts[side], found.parts[1 - side]
        for first in _named(part, ("reduce_max", "reduce_sum")):
            for second in _named(bare, ROWS):
                values = part.tape.steps[first].operands[0], bare.tape.steps[second].operands[0]
                cores = part.view.core(values[0]), bare.view.core(values[1])
                if not cores[0].same(cores[1], part.view.tolerance):
                    continue
                is_mean = part.tape.steps[first].name == "reduce_sum"
                evidence = (
                    f"the {'average' if is_mean else 'maximum'} of all positions in "
                    f"{labels[side]}, some of them in {labels[1 - side]}"
                )
                return Finding("pooling", evidence, found)
    return None


def transform(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find Fourier transforms of equal values over other axes."""
    one, other = found.parts
    for first, second in _pairs(found):
        left, right = one.tape.steps[first], other.tape.steps[second]
        if left.name != "fft":
            continue
        sizes = [step.equation.params["fft_lengths"] for step in (left, right)]
        cores = one.view.core(left.operands[0]), other.view.core(right.operands[0])
        if sizes[0] != sizes[1] and cores[0].same(cores[1], one.view.tolerance):
            evidence = (
                f"transforms axes of sizes {sizes[0]} in {labels[0]}, {sizes[1]} in {labels[1]}"
            )
            return Finding("reduction_axis", evidence, found)
    return None


def operand(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operation that reads another value, confirmed by the first one's in its place."""
    one, other = found.parts
    for first, second in _pairs(found):
        left, right = one.tape.steps[first], other.tape.steps[second]
        ours = [one.view.core(value) for value in left.operands]
        theirs = [other.view.core(value) for value in right.operands]
        tolerance = one.view.tolerance
        odd = [i for i, core in enumerate(theirs) if not any(core.same(c, tolerance) for c in ours)]
        missing = [
            i for i, core in enumerate(ours) if not any(core.same(c, tolerance) for c in theirs)
        ]
        if len(odd) != 1 or len(missing) != 1 or len(ours) != len(theirs):
            continue
        meant = next(other.view.find_all(ours[missing[0]], unused=True), None)
        if meant is None and (
            number := _computed(found, first, missing[0], second, odd[0], labels)
        ):
            return number
        if meant is None or not found.parts[1].tape.depends[meant]:
            continue
        position, read = odd[0], right.operands[odd[0]]
        whole = np.asarray(other.view.arrays[meant])
        for array in layouts(whole, np.shape(other.view.arrays[read])):
            if found.agrees({}, {(second, position): array}):
                verb = {"add": "adds", "mul": "multiplies with", "sub": "subtracts"}
                evidence = (
                    f"{labels[1]} {verb.get(right.name, f'computes {right.name} of')} "
                    f"{_produced(other.tape, read)} where {labels[0]} has "
                    f"{_produced(other.tape, meant)}; with that in both, the results are equal"
                )
                name = _source_name(other.tape, right, read, meant)
                return Finding(name, evidence, found)
    return None


def _computed(
    found: Divergence,
    first: int,
    ours: int,
    second: int,
    theirs: int,
    labels: tuple[str, str],
) -> Finding | None:
    """Find a number in one program in place of what the other computes."""
    tapes = [part.tape for part in found.parts]
    values = tapes[0].steps[first].operands[ours], tapes[1].steps[second].operands[theirs]
    numbers = [features.scalar(tape, value) for tape, value in zip(tapes, values, strict=True)]
    if (numbers[0] is None) == (numbers[1] is None):
        return None
    arrays = [np.asarray(part.view.arrays[v]) for part, v in zip(found.parts, values, strict=True)]
    whole = arrays[1].shape or np.shape(tapes[1].arrays[tapes[1].steps[second].results[0]])
    try:
        array = np.broadcast_to(arrays[0], whole)
    except ValueError:  # another layout
        return None
    if not found.agrees({}, {(second, theirs): array}):
        return None
    shown = [f"{number:.6g}" if number is not None else _produced(tape, value)
             for number, tape, value in zip(numbers, tapes, values, strict=True)]  # fmt: skip
    name = tapes[0].steps[first].name
    evidence = f"{name} with {shown[0]} in {labels[0]}, with {shown[1]} in {labels[1]}"
    return Finding("operand_source", f"{evidence}; with that in both, the results are equal", found)


def _source_name(tape: Tape, step: Step, read: int, meant: int) -> str:
    """Name the cause for which a step reads one value, and not another."""
    whole = [features.whole_of(tape, value) for value in (read, meant)]
    if whole[0] is not None and whole[0] == whole[1]:
        return features.gate_order(tape, read) or "operand_order"
    if step.name == "add":
        return "residual_source"
    is_norm = _is_norm_of(tape, read, meant) or _is_norm_of(tape, meant, read)
    return "operation_order" if is_norm else "operand_source"


def _is_norm_of(tape: Tape, value: int, source: int) -> bool:
    """Return whether a value is another one, normalized."""
    level, names = {tape.roots[value]}, set[str]()
    for _ in range(MAX_NORM):
        steps = [tape.producers[root] for root in level if root in tape.producers]
        names |= {tape.steps[index].name for index in steps}
        level = {
            tape.roots[operand]
            for index in steps
            if tape.steps[index].name not in PRODUCTS
            for operand in tape.steps[index].operands
        }
        if tape.roots[source] in level and names & {"rsqrt", "sqrt"}:
            return True
    return False


def position_embedding(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a sum with equal values of arrays that do not depend on the inputs, and differ."""
    one, other = found.parts
    for first, second in _pairs(found):
        left, right = one.tape.steps[first], other.tape.steps[second]
        if left.name in ROWS and (rows := _other_rows(found, left, right, labels)):
            return rows
        if left.name == "mul" and (mask := _other_mask(found, left, right, labels)):
            return mask
        if left.name != "add":
            continue
        ours, theirs = (
            [value for value in step.operands if not part.tape.depends[value] & INPUTS]
            for part, step in zip(found.parts, (left, right), strict=True)
        )
        if len(ours) != 1 or len(theirs) != 1 or np.size(one.view.arrays[ours[0]]) == 1:
            continue
        cores = one.view.core(ours[0]), other.view.core(theirs[0])
        if cores[0].array.ndim < 2 or cores[0].same(cores[1], one.view.tolerance):
            continue
        read = [_produced(part.tape, value)
                for part, value in zip(found.parts, (ours[0], theirs[0]), strict=True)]  # fmt: skip
        evidence = (
            f"adds other numbers that do not depend on the inputs: {read[0]} in {labels[0]}, "
            f"{read[1]} in {labels[1]}"
        )
        return Finding("position_embedding", evidence, found)
    return None


def _other_rows(
    found: Divergence, left: Step, right: Step, labels: tuple[str, str]
) -> Finding | None:
    """Find other rows of one parameter that do not depend on the inputs."""
    tapes = [part.tape for part in found.parts]
    values = [step.operands[0] for step in (left, right)]
    if any(tape.depends[step.results[0]] != PARAMS
           for tape, step in zip(tapes, (left, right), strict=True)):  # fmt: skip
        return None
    one, other = (part.view for part in found.parts)
    if not one.core(values[0]).same(other.core(values[1]), one.tolerance):
        return None
    read = [_produced(tape, value) for tape, value in zip(tapes, values, strict=True)]
    evidence = f"reads other rows of {read[0]} in {labels[0]} than of {read[1]} in {labels[1]}"
    return Finding("position_embedding", evidence, found)


def _other_mask(
    found: Divergence, left: Step, right: Step, labels: tuple[str, str]
) -> Finding | None:
    """Find a parameter that is multiplied with another constant array, such as a causal mask."""
    shown = []
    for part, step in zip(found.parts, (left, right), strict=True):
        masks = [v for v in step.operands if part.tape.is_constant(v)]
        rest = [v for v in step.operands if part.tape.depends[v] == PARAMS]
        if len(masks) != 1 or len(rest) != 1 or np.size(part.view.arrays[masks[0]]) == 1:
            return None
        array = np.asarray(part.view.arrays[masks[0]])
        if not np.all((array == 0) | (array == 1)):
            return None
        shown.append(f"{np.sum(array == 0)} of {array.size}")
    evidence = f"the mask of the kernel hides {shown[0]} in {labels[0]}, {shown[1]} in {labels[1]}"
    return Finding("causal_mask_offset", evidence, found)


def operand_order(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operation of the same values that stand in each other's place."""
    one, other = found.parts
    for first, second in _pairs(found):
        left, right = one.tape.steps[first], other.tape.steps[second]
        if len(left.operands) != 2 or len(right.operands) != 2 or left.name in SYMMETRIC:
            continue
        ours = [one.view.core(value) for value in left.operands]
        theirs = [other.view.core(value) for value in right.operands]
        tolerance = one.view.tolerance
        if not all(core.same(own, tolerance) for core, own in zip(ours, theirs[::-1], strict=True)):
            continue
        arrays = [np.asarray(other.view.arrays[value]) for value in right.operands]
        if arrays[0].shape != arrays[1].shape or ours[0].same(ours[1], tolerance):
            continue
        if found.agrees({}, {(second, 0): arrays[1], (second, 1): arrays[0]}):
            evidence = (
                f"{labels[1]} computes {right.name} with the operands of {labels[0]} in the other "
                "order; exchanged, the results are equal"
            )
            return Finding("operand_order", evidence, found)
    return None


def moved_operation(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operation that one program has before a sum or product, the other behind it."""
    for early, late in ((0, 1), (1, 0)):
        part, bare = found.parts[early], found.parts[late]
        names = [name for name in _sequence(part) if name not in ("stop_gradient", "copy")]
        if not names or names[-1] in ARITHMETIC or _sequence(bare) or bare.end is None:
            continue
        early_name = names[-1]
        regions = [part.region, bare.region]
        # What the bare program computes of the value, and then with the same operation.
        for step in consumers(bare.tape, bare.end):
            for result in bare.tape.steps[step].results:
                behind = features.leads_to(bare.tape, result, names[-1:], 2)
                if behind is None:
                    continue
                moved = bare.tape.steps[behind].results[0]
                for value in regions[0].values:
                    if part.end not in regions[0].ancestors[value] or value == part.end:
                        continue
                    a, b = (value, moved) if early == 0 else (moved, value)
                    if not found.search.fits(a, b):
                        continue
                    whole = found.search.next_agree(a, b) or found.search.later_agree(a, b)
                    counts = (
                        [_sequence(each).count(early_name) for each in whole.parts] if whole else []
                    )
                    if whole is not None and counts[0] == counts[1]:
                        name = bare.tape.steps[step].name
                        evidence = (
                            f"{names[-1]} comes before {name} in {labels[early]}, behind it in "
                            f"{labels[late]}; with the first one's result, what follows is equal"
                        )
                        return Finding("operation_order", evidence, whole)
    return None


def moved_sum(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a sum that is normalized in one program, of which the other normalizes one operand."""
    for early, late in ((0, 1), (1, 0)):
        part, bare = found.parts[early], found.parts[late].region
        if not part.steps or part.tape.steps[part.steps[0]].name != "add":
            continue
        total = part.tape.steps[part.steps[0]].results[0]
        cores = [part.view.core(v) for v in part.tape.steps[part.steps[0]].operands]
        for step in bare.steps(bare.values):
            operands = bare.tape.steps[step].operands
            end = bare.tape.steps[step].results[0]
            if bare.tape.steps[step].name != "add" or _is_averaged(bare.tape, end):
                continue  # no sum, or one that is normalized too
            for (kept, moved), added in itertools.product(
                (operands, operands[::-1]), (cores, cores[::-1])
            ):
                if not bare.view.core(kept).same(added[0], part.view.tolerance):
                    continue
                branch = next(bare.view.find_all(added[1]), None)
                if branch is None or not _is_norm_of(bare.tape, moved, branch):
                    continue
                whole = _normalized(found, early, total, end)
                if whole is not None:
                    evidence = (
                        f"the sum is normalized in {labels[early]}, one of its operands before the "
                        f"sum in {labels[late]}"
                    )
                    return Finding("operation_order", evidence, whole)
    return None


def _is_averaged(tape: Tape, value: int) -> bool:
    """Return whether a value, or its square, is summed, as a norm does."""
    near = features.onward(tape, [value], 2, ("square", "integer_pow", "reduce_sum"))
    return any(tape.steps[index].name == "reduce_sum" for index in near)


def _normalized(found: Divergence, side: int, total: int, end: int) -> Divergence | None:
    """End a divergence at a sum that is normalized, and at what the other program has for that."""
    search = found.search
    region = (search.one, search.other)[side]
    for value in region.values[::-1]:
        if total in region.ancestors[value] and _is_norm_of(region.tape, value, total):
            a, b = (value, end) if side == 0 else (end, value)
            if search.fits(a, b) and (whole := search.next_agree(a, b)):
                return whole
    return None


def operation_order(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find parts with the same operations in another order."""
    sequences = [_sequence(part) for part in found.parts]
    if Counter(sequences[0]) != Counter(sequences[1]) or sequences[0] == sequences[1]:
        return None
    if len(set(sequences[0])) < 2 or found.substitute is None:
        return None
    shown = [" ".join(sequence[:12]) for sequence in sequences]
    evidence = (
        f"the same operations in another order: {shown[0]} in {labels[0]}, {shown[1]} in "
        f"{labels[1]}"
    )
    return Finding("operation_order", evidence, found)


def other_operation(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Say which operation one part has in place of the other's."""
    sequences = [_sequence(part) for part in found.parts]
    only = [Counter(sequences[i]) - Counter(sequences[1 - i]) for i in (0, 1)]
    if not all(only) or found.substitute is None or max(map(len, sequences)) > MAX_OTHERS:
        return None
    shown = [" ".join(names.elements()) for names in only]
    evidence = (
        f"{shown[0]} in {labels[0]}, {shown[1]} in {labels[1]}; with the first one's result in "
        "both, what follows is equal"
    )
    return Finding("operation_differs", evidence, found)


def computed_by_one(parts: tuple[RegionPart, RegionPart]) -> tuple[int, tuple[str, ...]] | None:
    """Return the index of the only part that computes something, and its operations."""
    sequences = [tuple(name for name in _sequence(part) if name != "pad") for part in parts]
    if bool(sequences[0]) == bool(sequences[1]):
        return None
    side = 0 if sequences[0] else 1
    return side, sequences[side]


def missing_operation(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Say what only one of two parts computes."""
    sequences = [_sequence(part) for part in found.parts]
    for index, sequence in enumerate(sequences):
        more = Counter(sequence) - Counter(sequences[1 - index])
        less = Counter(sequences[1 - index]) - Counter(sequence)
        if more and not less and found.substitute is not None:
            names = " ".join(more.elements())
            evidence = (
                f"{labels[index]} computes {names} in addition to what {labels[1 - index]} does"
            )
            return Finding("operation_missing", evidence, found)
    return None


def _pairs(found: Divergence) -> Iterator[tuple[int, int]]:
    """Yield steps of both parts with the same operation."""
    one, other = found.parts
    for first in one.steps[:MAX_STEPS]:
        for second in other.steps[:MAX_STEPS]:
            names = one.tape.steps[first].name, other.tape.steps[second].name
            if names[0] == names[1] and names[0] not in LAYOUT:
                yield first, second


def _named(part: RegionPart, names: Collection[str]) -> list[int]:
    return [index for index in part.steps[:MAX_STEPS] if part.tape.steps[index].name in names]


def _scales(part: RegionPart) -> bool:
    return any(
        part.tape.steps[index].name in ("mul", "div") and features.constants(part.tape, index)
        for index in part.steps[:MAX_STEPS]
    )


def _axes(step: Step) -> tuple[int, ...]:
    params = step.equation.params
    axes = params["axes"] if "axes" in params else (params["axis"],)
    return tuple(map(int, axes))


def _reduced(step: Step, shape: tuple[int, ...]) -> int:
    return int(np.prod([shape[axis] for axis in _axes(step)]))


def _other_axes(one: RegionPart, other: RegionPart, left: Step, right: Step) -> bool:
    """Return whether two reductions of equal values give other values."""
    results = one.view.core(left.results[0]), other.view.core(right.results[0])
    return not results[0].same(results[1], one.view.tolerance)


def _sequence(part: RegionPart) -> list[str]:
    names = (part.tape.steps[index].name for index in part.steps)
    return [name for name in names if name not in LAYOUT]


def _produced(tape: Tape, value: int) -> str:
    """Write what computes a value."""
    root = tape.roots[value]
    if root not in tape.producers:
        return f"the {tape.leaves.get(root, 'constant')}"
    return f"the result of {places.shown(places.operation(tape, root))}"
