"""Operations that both programs have, on other operands, axes, numbers or in another order."""

from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np

from .. import places
from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import LAYOUT, Step, Tape
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
BOUNDS = ("clamp", "max", "min")
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
    evidence = (
        f"the results of {labels[0]} are {number:.6g} times those of {labels[1]}; with the first "
        "one's in both, what follows is equal"
    )
    return Finding("constant", evidence, found)


def reduction(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a reduction of equal values over other axes, or of another kind."""
    one, other = found.parts
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
                or "exp" in part.names
                for part, step in zip(found.parts, (left, right), strict=True)
            )
            shown = [f"axes {_axes(step)} of {shape} ({count} values)"
                     for step, shape, count in zip((left, right), shapes, counts, strict=True)]  # fmt: skip
            evidence = f"reduces over {shown[0]} in {labels[0]}, over {shown[1]} in {labels[1]}"
            return Finding("softmax_axis" if softmax else "reduction_axis", evidence, found)
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
        if len(odd) != 1 or len(missing) != 1 or len(theirs) < 2:
            continue
        meant = next(other.view.find_all(ours[missing[0]]), None)
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
                name = "residual_source" if right.name == "add" else "operand_order"
                return Finding(name, evidence, found)
    return None


def operation_order(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find parts with the same operations in another order."""
    sequences = [_sequence(part) for part in found.parts]
    if Counter(sequences[0]) != Counter(sequences[1]) or sequences[0] == sequences[1]:
        return None
    if len(set(sequences[0])) < 2 or found.substitute is None:
        return None
    shown = [" ".join(sequence[:12]) for sequence in sequences]
    evidence = f"the same operations in another order: {shown[0]} in {labels[0]}, {shown[1]} in {labels[1]}"
    return Finding("operation_order", evidence, found)


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
            return Finding("unknown", evidence, found)
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
    return tuple(params["axes"]) if "axes" in params else (params["axis"],)


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
