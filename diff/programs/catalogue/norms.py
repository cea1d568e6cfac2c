"""Normalization: its epsilon and its axes."""

import itertools
from dataclasses import replace

import numpy as np

from ..divergence import Divergence
from ..regions import Part, consumers
from ..values import Core, View, close
from . import features
from .features import Constant, Finding

MAX_EPSILON = 0.1
PRODUCTS = {"conv_general_dilated", "dot_general"}


def norm_epsilon(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find two epsilons, confirmed by the first one's in both programs."""
    one, other = map(_epsilon, found.parts)
    if found.substitute is None or not (one or other):
        return None
    numbers = [0.0 if epsilon is None else epsilon.value for epsilon in (one, other)]
    shown = f"epsilon {numbers[0]:g} in {labels[0]}, {numbers[1]:g} in {labels[1]}"
    if other is None:
        offset = features.offset(found)
        confirmed = offset is not None and np.isclose(offset, numbers[0], rtol=1e-3)
    else:
        tape = found.parts[1].tape
        operand = tape.steps[other.step].operands[other.position]
        changed = np.full(np.shape(tape.arrays[operand]), numbers[0])
        confirmed = found.agrees({}, {(other.step, other.position): changed})
    if confirmed:
        evidence = f"{shown}; with {numbers[0]:g} in both, the results are equal"
        return Finding("norm_epsilon", evidence, _at(found, one, other))
    places = [_place(part, each) for part, each in zip(found.parts, (one, other), strict=True)]
    if one and other and places[0] != places[1]:
        evidence = f"{shown}; added {places[0]} the root in the first, {places[1]} it in the second"
        return Finding("norm_epsilon", evidence, found)
    return None


def norm_axis(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find averages over other axes, which a root or a quotient then normalizes by."""
    if not all(part.values for part in found.parts) or _sums(found) is not None:
        # The average and the variance differ: both belong to one norm.
        found = _whole_norm(found) or found
    if (sums := _sums(found)) is None:
        return None
    first, second = sums
    sizes = {np.size(_operand(p.view, i)) for p, i in zip(found.parts, sums, strict=True)}
    if len(sizes) > 1:  # as after a convolution with another padding
        return None
    counts = [_count(p.view, i) for p, i in zip(found.parts, sums, strict=True)]
    axes = _axes_as_in(found, first, second)
    if counts[0] == counts[1] and axes is None:
        return None
    evidence = f"averages over {counts[0]} values in {labels[0]}, over {counts[1]} in {labels[1]}"
    if axes is not None:
        own = found.search.other.tape.steps[second].equation.params["axes"]
        evidence += (
            f"; over axes {_listed(axes)} instead of {_listed(own)} the second gives the first "
            "one's averages"
        )
    return Finding("norm_axis", evidence, found)


def _at(found: Divergence, *epsilons: Constant | None) -> Divergence:
    """Let the parts begin with the epsilons."""
    one, other = (
        part
        if part.values or epsilon is None
        else replace(part, values=[part.tape.steps[epsilon.step].results[0]])
        for part, epsilon in zip(found.parts, epsilons, strict=True)
    )
    return replace(found, parts=(one, other))


def _whole_norm(found: Divergence) -> Divergence | None:
    """Find the divergence that ends after the roots of both programs' norms."""
    normalized = []
    for region in (found.search.one, found.search.other):
        roots = {
            value
            for value in region.values
            if region.tape.steps[region.tape.producers[value]].name in ("rsqrt", "sqrt")
        }
        normalized.append({v for v in region.values if roots & region.ancestors[v]})
    for a, b in found.search.pairs():
        if a in normalized[0] and b in normalized[1]:
            whole = found.search.next_agree(a, b)
            if whole is not None:
                return whole
    return None


def _epsilon(part: Part) -> Constant | None:
    """Find the small constant that is added to, or bounds, what a root is taken of."""
    tape = part.tape
    # Where it is too small to make a difference, the part ends before the sum or with it.
    near = part.values if part.values or part.end is None else [part.end]
    for index in part.region.steps(near):
        step = tape.steps[index]
        if step.name not in ("add", "max", "clamp"):
            continue
        for constant in features.constants(tape, index):
            result = step.results[0]
            root = features.leads_to(tape, result, features.ROOTS, 2)
            root = root or features.comes_from(tape, result, ("sqrt",), 3)
            if 0 < constant.value <= MAX_EPSILON and root is not None:
                return constant
    return None


def _place(part: Part, epsilon: Constant | None) -> str:
    if epsilon is None:
        return ""
    result = part.tape.steps[epsilon.step].results[0]
    return "after" if features.comes_from(part.tape, result, ("sqrt",), 3) else "before"


def _sums(found: Divergence) -> tuple[int, int] | None:
    """Return the first sum of each part; None if a part has none or is not that of one norm."""
    sums = []
    for part in found.parts:
        steps = (index for index in part.steps if part.tape.steps[index].name == "reduce_sum")
        first = next(steps, None)
        if first is None or part.names & PRODUCTS or not _normalizes(part):
            return None
        sums.append(first)
    return sums[0], sums[1]


def _normalizes(part: Part) -> bool:
    tape, roots = part.tape, ("rsqrt", "sqrt")
    if not part.names.isdisjoint(roots):
        return True
    if part.end is None:
        return False
    if features.leads_to(tape, part.end, roots, 8) is not None:
        return True
    beside = [v for index in consumers(tape, part.end) for v in tape.steps[index].operands]
    return any(features.comes_from(tape, value, roots, 4) is not None for value in beside)


def _operand(view: View, index: int) -> np.ndarray:
    return np.asarray(view.arrays[view.tape.steps[index].operands[0]])


def _count(view: View, index: int) -> int:
    result = view.arrays[view.tape.steps[index].results[0]]
    return np.size(_operand(view, index)) // max(np.size(result), 1)


def _axes_as_in(found: Divergence, first: int, second: int) -> tuple[int, ...] | None:
    """Find the axes over which the second program's average would be the first one's."""
    one, other = (part.view for part in found.parts)
    own = one.arrays[one.tape.steps[first].results[0]]
    wanted = Core.of(own / _count(one, first))
    array = _operand(other, second)
    for size in range(1, array.ndim + 1):
        for axes in itertools.combinations(range(array.ndim), size):
            mean = Core.of(np.mean(array, axes))
            if close(mean.numbers, wanted.numbers, one.tolerance):
                return axes
    return None


def _listed(axes: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, axes)) + ")"
