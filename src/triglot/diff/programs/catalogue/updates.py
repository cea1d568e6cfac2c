"""Update steps: epsilon, decay, bias correction, clipping of gradients and units of schedules."""

import math

import numpy as np

from ..divergence import Divergence, Search
from ..regions import Region
from ..sums import factor_of
from ..tape import INPUTS, PARAMS, Tape
from ..values import Core
from . import features, losses, norms
from .features import BOUNDS, CONFIRMED, MAX_STEPS, Finding, in_each

MAX_COUNT = 20  # steps of an optimizer that a correction may have counted
MIN_DECAY = 0.5
MAX_CLIPPED = 80  # values of a region that may be clipped gradients


def epsilon(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an epsilon of a root: of an optimizer where the root is taken element by element."""
    finding = norms.norm_epsilon(divergence, labels)
    if finding is None:
        return None
    for part in finding.divergence.parts:
        for value in part.values or [part.end or 0]:
            root = features.comes_from(part.tape, value, features.ROOTS, 3)
            root = root or features.leads_to(part.tape, value, features.ROOTS, 3)
            if root is None:
                continue
            if features.comes_from(part.tape, root.results[0], ("reduce_sum",), 6) is None:
                return Finding("optimizer_epsilon", finding.evidence, finding.divergence)
    return finding


def numbers(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find equal operations with several other numbers, confirmed by all of the first one's.

    Those of an optimizer are named by what they are: the decay of a running average.
    """
    sides = [
        [c for step in part.steps[:MAX_STEPS] for c in features.constants(part.tape, step)]
        for part in divergence.parts
    ]
    forms = [[(constant.step.name, constant.position) for constant in side] for side in sides]
    if not sides[0] or forms[0] != forms[1]:
        return None
    pairs = [
        (first_constant, second_constant)
        for first_constant, second_constant in zip(*sides, strict=True)
        if first_constant.value != second_constant.value
    ]
    changed = {(second.step, second.position): first.value for first, second in pairs}
    if not pairs or not divergence.agrees_with_numbers(changed):
        return None
    decays = [
        {_decay(part.tape, constant) for constant in constants}
        for part, constants in zip(divergence.parts, zip(*pairs, strict=True), strict=True)
    ]
    if all(len(each) == 1 and None not in each for each in decays):
        descriptions = [f"{each.pop():.6g}" for each in decays]
        if any(caller.primitive.name == "scan" for caller in pairs[0][0].step.callers):
            # Such as lambda-returns, which mix each step's value with the returns that follow.
            weights = in_each(descriptions, labels, "of ")
            evidence = f"a loop mixes what it carries with a weight {weights}; {CONFIRMED}"
            return Finding("constant", evidence, divergence)
        decay = in_each(descriptions, labels, "by ")
        evidence = f"a running average decays {decay}; {CONFIRMED}"
        return Finding("optimizer_decay", evidence, divergence)
    if len(pairs) == 1:
        return None
    descriptions = [", ".join(f"{c.value:.6g}" for c in each) for each in zip(*pairs, strict=True)]
    evidence = f"numbers {in_each(descriptions, labels)}; {CONFIRMED}"
    return Finding("constant", evidence, divergence)


def _decay(tape: Tape, constant: features.Constant) -> float | None:
    """Return the decay of a running average in which a step multiplies with a number."""
    step = constant.step
    if step.name == "mul" and 0 < constant.value < 1:
        for added in features.onward(tape, step.results, 1, ("add", "sub")):
            for operand in added.operands:
                if any(math.isclose(number, 1 - constant.value, rel_tol=1e-6)
                       for number in _constants_in(tape, operand)):  # fmt: skip
                    return round(max(constant.value, 1 - constant.value), 12)
    if step.name == "pow" and constant.position == 0 and MIN_DECAY <= constant.value < 1:
        return round(constant.value, 12)
    if step.name in ("mul", "div") and constant.value > 0:
        correction = constant.value if step.name == "div" else 1 / constant.value
        return _decay_of_correction(tape, correction)
    return None


def _constants_in(tape: Tape, value: int) -> list[float]:
    step = tape.step_of(value)
    if step is None or step.name != "mul":
        return []
    return [each.value for each in features.constants(tape, step)]


def _decay_of_correction(tape: Tape, correction: float) -> float | None:
    """Return the decay `b` of a bias correction `1 - b^t`, if a program has such a decay."""
    decays = {
        each.value
        for step in tape.steps
        if step.name == "mul"
        for each in features.constants(tape, step)
        if MIN_DECAY <= each.value < 1
    }
    for number in sorted(decays):
        for count in range(1, MAX_COUNT):
            if math.isclose(correction, 1 - number**count, rel_tol=1e-5):
                return number
    return None


def bias_correction(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find averages that only one program divides by `1 - decay^t`."""
    for side, part, bare in losses.sides(divergence):
        step = part.tape.step_of(part.end or 0)
        if step is None or step.name not in ("div", "mul"):
            continue
        for position, value in enumerate(step.operands):
            number = step.operands[1 - position]
            if not losses.is_bare(part, value, bare) or part.tape.depends[number] & PARAMS:
                continue
            constant = part.tape.scalar(number)
            if constant is not None and constant > 0:
                correction = constant if step.name == "div" else 1 / constant
                is_correction = _decay_of_correction(part.tape, correction) is not None
            else:
                is_correction = (
                    features.comes_from(part.tape, number, ("pow", "integer_pow"), 4) is not None
                )
            if is_correction:
                evidence = (
                    f"{labels[side]} divides a running average by 1 - decay^t; "
                    f"{labels[1 - side]} does not"
                )
                return Finding("bias_correction", evidence, divergence)
    return None


@features.of_search
def gradient_clipping(search: Search, labels: tuple[str, str]) -> Finding | None:
    """Find gradients that are clipped by another norm, by element, or in one program only."""
    if (scaled := _moved_scale(search, labels)) is not None:
        return scaled
    sides = list(map(_clipped_gradients, search.regions))
    for side in (0, 1):
        region, bare = search.regions[side], search.regions[1 - side]
        for value, (source, kind) in sides[side].items():
            if "norm" not in kind:
                continue
            core, tolerance = region.view.core(source), region.view.tolerance
            candidates = [
                (each, other_kind)
                for each, (gradient, other_kind) in sides[1 - side].items()
                if bare.view.core(gradient).same(core, tolerance) and other_kind != kind
            ]
            raw = [each for each in bare.view.find_all(core)
                   if each in {*bare.boundary, *bare.leaves}]  # fmt: skip
            candidates += [(each, "") for each in raw]
            for each, other_kind in candidates:
                a, b = (value, each) if side == 0 else (each, value)
                if not search.fits(a, b):
                    continue
                confirmed = search.agree(a, b)
                if confirmed is None:
                    continue
                kinds = [kind, other_kind] if side == 0 else [other_kind, kind]
                words = [f"clipped {each}" if each else "not clipped" for each in kinds]
                evidence = f"gradients are {in_each(words, labels)}"
                return Finding("gradient_clipping", evidence, confirmed, at=(a, b))
    return None


def _moved_scale(search: Search, labels: tuple[str, str]) -> Finding | None:
    """Find gradients that are scaled before they are clipped in one program, after in the other."""
    sides = list(map(_clipped_gradients, search.regions))
    for side in (0, 1):
        late, early = search.regions[side], search.regions[1 - side]
        for value, (source, kind) in sides[side].items():
            for step in late.tape.readers_of(value):
                factor = factor_of(late.tape, step)
                if factor is None:
                    continue
                scaled = step.results[0]
                gradient = late.view.array(source).astype(np.float64)
                for counterpart, (other_source, other_kind) in sides[1 - side].items():
                    expected = Core.of(factor[0] * gradient)
                    if other_kind != kind or not early.view.core(other_source).same(expected):
                        continue
                    a, b = (scaled, counterpart) if side == 0 else (counterpart, scaled)
                    confirmed = search.agree(a, b)
                    if confirmed is not None:
                        evidence = (
                            f"multiplied by {factor[0]:.6g} after it is clipped {kind} in "
                            f"{labels[side]}, before in {labels[1 - side]}"
                        )
                        return Finding("operation_order", evidence, confirmed, at=(a, b))
    return None


def _clipped_gradients(region: Region) -> dict[int, tuple[int, str]]:
    """Return the clipped gradients of a region, with the gradient and how it is clipped."""
    clipped: dict[int, tuple[int, str]] = {}
    tape = region.tape
    for value in region.values[:MAX_CLIPPED]:
        step = tape.producers[value]
        if step.name in BOUNDS:
            operands = [v for v in step.operands if not tape.is_constant(v)]
            inner = tape.step_of(operands[0]) if len(operands) == 1 else None
            if inner is not None and inner.name in BOUNDS:
                operands = [v for v in inner.operands if not tape.is_constant(v)]
            if len(operands) == 1:
                clipped[value] = tape.roots[operands[0]], "by element"
        if step.name not in ("mul", "div", "select_n"):
            continue
        for position, operand in enumerate(step.operands):
            factors = [v for i, v in enumerate(step.operands) if i != position]
            count = max(_num_normed(tape, each) for each in factors)
            if count and not _num_normed(tape, operand):
                arrays = "one array" if count == 1 else f"{count} arrays together"
                clipped[value] = tape.roots[operand], f"by the norm of {arrays}"
    return clipped


def _num_normed(tape: Tape, value: int) -> int:
    """Count the arrays whose norm a bounded factor is computed from; 0 if it is no norm."""
    root = features.comes_from(tape, value, features.ROOTS, 6)
    if root is None:
        return 0
    bounded = features.comes_from(tape, value, (*BOUNDS, "select_n", "lt", "gt", "le", "ge"), 6)
    return _count_summed_squares(tape, root.operands[0]) if bounded is not None else 0


def _count_summed_squares(tape: Tape, value: int) -> int:
    """Count the arrays whose squares are summed in a value."""
    step = tape.step_of(value)
    if step is None:
        return 0
    if step.name == "reduce_sum":
        return 1
    if step.name in ("add", "add_any"):
        return sum(_count_summed_squares(tape, operand) for operand in step.operands)
    return 0


def schedule(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find numbers that depend on a count only, such as a learning rate's schedule."""
    for find_constant in (_constant_for_schedule, _constant_result_for_schedule):
        if (constant := find_constant(divergence, labels)) is not None:
            return constant
    descriptions = []
    for part in divergence.parts:
        if part.end is None or not part.tape.depends[part.end] & INPUTS:
            return None
        counts = _counters(part.tape, part.end)
        if not counts:
            return None
        descriptions.append(_quoted(counts))
    pair = divergence.results()
    if pair is None:
        return None
    numbers = [", ".join(f"{n:.4g}" for n in np.ravel(array)[:3]) for array in pair]
    evidence = (
        f"a schedule reads {descriptions[0]} in {labels[0]} and is {numbers[0]}; in {labels[1]} "
        f"it reads {descriptions[1]} and is {numbers[1]}: another unit or length"
    )
    return Finding("schedule_unit", evidence, divergence)


def _constant_for_schedule(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a number in one program where the other has a schedule, confirmed by the first's."""
    tapes = [part.tape for part in divergence.parts]
    for left, right in features.pairs(divergence):
        for position, (first_value, second_value) in enumerate(
            zip(left.operands, right.operands, strict=False)
        ):
            sides = (tapes[0], first_value), (tapes[1], second_value)
            fixed = [tape.scalar(value) for tape, value in sides]
            counts = [_counters(tape, value) for tape, value in sides]
            side = 0 if counts[0] else 1
            if not counts[side] or counts[1 - side] or fixed[1 - side] is None:
                continue
            if divergence.agrees_with_operand(first_value, (right, position)):
                evidence = _schedule_or_number(counts[side], fixed[1 - side] or 0.0, side, labels)
                return Finding("schedule_unit", evidence, divergence)
    return None


def _constant_result_for_schedule(
    divergence: Divergence, labels: tuple[str, str]
) -> Finding | None:
    """Find a result that is a schedule in one program, and a constant in the other."""
    search = divergence.search
    for slot in search.slots:
        ends = [(region.tape, region.tape.outputs[slot]) for region in search.regions]
        counters = [_counters(*end) for end in ends]
        side = 0 if counters[0] else 1
        number = ends[1 - side][0].scalar(ends[1 - side][1])
        arrays = [r.view.array(end) for r, (_, end) in zip(search.regions, ends, strict=True)]
        if not counters[side] or number is None or arrays[0].shape != arrays[1].shape:
            continue
        evidence = _schedule_or_number(counters[side], number, side, labels)
        first, second = (tape.roots[end] for tape, end in ends)
        whole = search.replacing(first, second, {ends[1][1]: arrays[0]}, {}, arrays[0])
        return Finding("schedule_unit", evidence, whole)
    return None


def _schedule_or_number(
    counters: frozenset[str], number: float, side: int, labels: tuple[str, str]
) -> str:
    return (
        f"a schedule of {_quoted(counters)} in {labels[side]}, the number {number:.6g} in "
        f"{labels[1 - side]}"
    )


def _quoted(names: frozenset[str]) -> str:
    return " and ".join(f"`{name}`" for name in sorted(names))


def _counters(tape: Tape, value: int) -> frozenset[str]:
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
