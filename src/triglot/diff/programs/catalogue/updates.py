"""Update steps: epsilon, decay, bias correction, clipping of gradients and units of schedules."""

import itertools
import math

import numpy as np

from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import INPUTS, PARAMS, Tape
from . import features, losses, norms
from .features import BOUNDS, MAX_STEPS, Finding

MAX_COUNT = 20  # steps of an optimizer that a correction may have counted
MIN_DECAY = 0.5


def epsilon(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an epsilon of a root: of an optimizer where the root is taken element by element."""
    finding = norms.norm_epsilon(divergence, labels)
    if finding is None:
        return None
    for part in finding.divergence.parts:
        for value in part.values or [part.end or 0]:
            root = features.comes_from(part.tape, value, ("sqrt", "rsqrt"), 3)
            root = root or features.leads_to(part.tape, value, ("sqrt", "rsqrt"), 3)
            if root is None:
                continue
            summed = features.comes_from(
                part.tape, part.tape.steps[root].results[0], ("reduce_sum",), 6
            )
            if summed is None:
                return Finding("optimizer_epsilon", finding.evidence, finding.divergence)
    return finding


def decay(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find the decay of a running average, `b` or `1 - b`, confirmed by the first one's."""
    other = divergence.parts[1]
    for first, second in features.pairs(divergence):
        ours, theirs = (
            features.constants(part.tape, step)
            for part, step in zip(divergence.parts, (first, second), strict=True)
        )
        for mine, yours in itertools.product(ours, theirs):
            if mine.position != yours.position or mine.value == yours.value:
                continue
            decays = _decay(divergence.parts[0], mine), _decay(other, yours)
            if decays[0] is None or decays[1] is None:
                continue
            operand = other.tape.steps[second].operands[yours.position]
            changed = np.full(np.shape(other.tape.arrays[operand]), mine.value)
            if divergence.agrees({}, {(second, yours.position): changed}):
                evidence = (
                    f"a running average decays by {decays[0]:.6g} in {labels[0]}, by "
                    f"{decays[1]:.6g} in {labels[1]}; with the first one's in both, the results "
                    "are equal"
                )
                return Finding("optimizer_decay", evidence, divergence)
    return None


def _decay(part: RegionPart, constant: features.Constant) -> float | None:
    """Return the decay of a running average in which a step multiplies with a number."""
    tape = part.tape
    step = tape.steps[constant.step]
    if step.name == "mul":
        for index in features.onward(tape, step.results, 1):
            if tape.steps[index].name not in ("add", "sub"):
                continue
            for operand in tape.steps[index].operands:
                numbers = _constants_in(tape, operand)
                if any(math.isclose(number, 1 - constant.value, rel_tol=1e-6)
                       for number in numbers):  # fmt: skip
                    return max(constant.value, 1 - constant.value)
    if step.name in ("mul", "div") and 0 < constant.value:
        correction = constant.value if step.name == "div" else 1 / constant.value
        return _corrected(tape, correction)
    return None


def _constants_in(tape: Tape, value: int) -> list[float]:
    index = tape.producers.get(tape.roots[value])
    if index is None or tape.steps[index].name != "mul":
        return []
    return [each.value for each in features.constants(tape, index)]


def _corrected(tape: Tape, correction: float) -> float | None:
    """Return the decay `b` of a bias correction `1 - b^t`, if a program has such a decay."""
    decays = {
        each.value
        for index, step in enumerate(tape.steps)
        if step.name == "mul"
        for each in features.constants(tape, index)
        if MIN_DECAY <= each.value < 1
    }
    for number in sorted(decays):
        for count in range(1, MAX_COUNT):
            if math.isclose(correction, 1 - number**count, rel_tol=1e-5):
                return number
    return None


def bias_correction(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find averages that only one program divides by `1 - decay^t`."""
    for side, part, bare in losses._sides(divergence):
        step = losses._step(part.tape, part.end or 0)
        if step is None or step.name not in ("div", "mul"):
            continue
        for position, value in enumerate(step.operands):
            number = step.operands[1 - position]
            if not losses._is_bare(part, value, bare) or part.tape.depends[number] & PARAMS:
                continue
            constant = features.scalar(part.tape, number)
            if constant is not None and constant > 0:
                correction = constant if step.name == "div" else 1 / constant
                known = _corrected(part.tape, correction) is not None
            else:
                known = features.comes_from(part.tape, number, ("pow", "integer_pow"), 4) is not None
            if known:
                evidence = (
                    f"{labels[side]} divides a running average by 1 - decay^t; "
                    f"{labels[1 - side]} does not"
                )
                return Finding("bias_correction", evidence, divergence)
    return None


def gradient_clipping(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find gradients that are clipped by their norm in one program, by element in the other."""
    kinds = [_clipping(part) for part in divergence.parts]
    if kinds[0] == kinds[1] or not any(kind.startswith("by") for kind in kinds):
        return None
    if divergence.substitute is None or not any("norm" in kind for kind in kinds):
        return None
    evidence = f"gradients are clipped {kinds[0]} in {labels[0]}, {kinds[1]} in {labels[1]}"
    evidence = evidence.replace("clipped not at all", "not clipped")
    return Finding("gradient_clipping", evidence, divergence)


def _clipping(part: RegionPart) -> str:
    names = part.names
    if not part.steps:
        return "not at all"
    sums = sum(part.tape.steps[index].name == "reduce_sum" for index in part.steps)
    bounded = names & {*BOUNDS, "select_n"}
    if "sqrt" in names and sums and bounded:
        return f"by the norm of {sums} array{'s' * (sums > 1)}"
    if names & {*BOUNDS} and not sums:
        return "by element"
    return "otherwise"


def schedule(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find numbers that depend on a count only, such as a learning rate's schedule."""
    shown = []
    for part in divergence.parts:
        if part.end is None or not part.tape.depends[part.end] & INPUTS:
            return None
        counts = _counts(part.tape, part.end)
        if not counts:
            return None
        shown.append(" and ".join(f"`{each}`" for each in sorted(counts)))
    pair = divergence.results()
    if pair is None:
        return None
    numbers = [", ".join(f"{n:.4g}" for n in np.ravel(array)[:3]) for array in pair]
    evidence = (
        f"a schedule reads {shown[0]} in {labels[0]} and is {numbers[0]}; in {labels[1]} it reads "
        f"{shown[1]} and is {numbers[1]}: another unit or length"
    )
    return Finding("schedule_unit", evidence, divergence)


def _counts(tape: Tape, value: int) -> frozenset[str]:
    """Name the counts, one integer each, on which alone a value depends."""
    names = losses.leaves_of(tape, value)
    leaves = {
        name.removeprefix("inputs/"): np.asarray(tape.arrays[leaf])
        for leaf, name in tape.leaves.items()
        if tape.depends[leaf] == INPUTS
    }
    if not names or any(
        name not in leaves or leaves[name].dtype.kind not in "iu" or leaves[name].ndim > 1
        for name in names
    ):
        return frozenset()
    return names


__all__ = ["bias_correction", "decay", "epsilon", "gradient_clipping", "schedule"]
