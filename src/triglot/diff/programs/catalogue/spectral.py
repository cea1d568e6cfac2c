"""Spectral normalization: a kernel over an estimate of its largest singular value."""

from dataclasses import dataclass

import numpy as np

from ..divergence import Divergence, Search
from ..regions import Region
from ..tape import INPUTS, PARAMS, STATE, Tape
from .features import SUBSTITUTED, Finding

ROOTS = ("rsqrt", "sqrt")


@dataclass(frozen=True)
class Normalized:
    """A kernel that a program divides by an estimate of its largest singular value.

    Attributes:
      value: the normalized kernel.
      kernel: the kernel.
      products: how often a vector is multiplied with the kernel and normalized.
      starts: sizes of the vectors of the state that are read.
    """

    value: int
    kernel: int
    products: int
    starts: frozenset[int]


def spectral_norm(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a kernel that only one program normalizes, or both with other power iterations."""
    search = divergence.search
    return search.once(("spectral_norm", labels), lambda: _spectral_norm(search, labels))


def _spectral_norm(search: Search, labels: tuple[str, str]) -> Finding | None:
    sides = search.one, search.other
    first, second = (_normalized(side) for side in sides)
    cores = [side.view.core for side in sides]
    for ours in first:
        for theirs in second:
            kernels = cores[0](ours.kernel), cores[1](theirs.kernel)
            if kernels[0].same(kernels[1]) and search.fits(ours.value, theirs.value):
                return _other_iterations(search, ours, theirs, labels)
    for side, found in ((0, first), (1, second)):
        for normalized in found:
            if (finding := _missing(search, side, normalized, labels)) is not None:
                return finding
    return None


def _other_iterations(
    search: Search, ours: Normalized, theirs: Normalized, labels: tuple[str, str]
) -> Finding | None:
    """Describe two normalizations of a kernel with other iterations; None if these are alike."""
    kernel = _name(search.one.tape, ours.kernel)
    if ours.products != theirs.products:
        shown = f"{ours.products / 2:g} in {labels[0]}, {theirs.products / 2:g} in {labels[1]}"
    elif ours.starts.isdisjoint(theirs.starts):
        shown = (
            f"{ours.products / 2:g} in both, from a vector of {_start(ours)} numbers in "
            f"{labels[0]}, of {_start(theirs)} in {labels[1]}"
        )
    else:
        return None
    array = next(search.substitutes(ours.value, theirs.value), None)
    if array is None:
        return None
    a, b = ours.value, theirs.value
    whole = search.divergence_at(a, b, array, [], search.other.view.arrays)
    evidence = (
        f"power iterations that estimate the largest singular value of {kernel}, from equal "
        f"vectors: {shown}"
    )
    return Finding("power_iterations", evidence, whole, at=(a, b))


def _missing(
    search: Search, side: int, normalized: Normalized, labels: tuple[str, str]
) -> Finding | None:
    """Describe a kernel that only one program normalizes; confirmed by substitution."""
    sides = search.one, search.other
    core = sides[side].view.core(normalized.kernel)
    other = sides[1 - side]
    for leaf in sorted(other.boundary | other.leaves):
        if leaf not in other.tape.leaves or other.tape.depends[leaf] != PARAMS:
            continue
        if not other.view.core(leaf).same(core):
            continue
        pair = (normalized.value, leaf) if side == 0 else (leaf, normalized.value)
        whole = search.next_agree(*pair) or search.later_agree(*pair)
        if whole is None:
            continue
        evidence = (
            f"{labels[side]} divides {_name(sides[side].tape, normalized.kernel)} by its largest "
            f"singular value (spectral normalization), {labels[1 - side]} does not; {SUBSTITUTED}"
        )
        return Finding("spectral_norm", evidence, whole, at=pair)
    return None


def _normalized(region: Region) -> list[Normalized]:
    """List the kernels of a region that are divided by what vectors of the state give."""
    tape, kernels = region.tape, list[Normalized]()
    for value in region.values:
        step = tape.steps[tape.producers[value]]
        if step.name != "div":
            continue
        kernel, sigma = (tape.roots[operand] for operand in step.operands)
        if kernel not in tape.leaves or tape.depends[kernel] != PARAMS:
            continue
        if region.view.core(sigma).array.size != 1 or tape.depends[sigma] & INPUTS:
            continue
        ancestors = _ancestors(tape, sigma)
        starts = [v for v in ancestors if v in tape.leaves and tape.depends[v] == STATE]
        sizes = frozenset(np.size(tape.arrays[v]) for v in starts) - {1}
        if sizes and kernel in ancestors:
            steps = {tape.producers[v] for v in ancestors if v in tape.producers}
            products = sum(tape.steps[index].name in ROOTS for index in steps)
            kernels.append(Normalized(value, kernel, products, sizes))
    return kernels


def _ancestors(tape: Tape, value: int) -> set[int]:
    """Return the values from which a value is computed, itself included."""
    pending, reached = [value], set[int]()
    while pending:
        each = pending.pop()
        if each not in reached:
            reached.add(each)
            if each in tape.producers:
                pending.extend(tape.steps[tape.producers[each]].operands)
    return reached


def _name(tape: Tape, kernel: int) -> str:
    return tape.display_name(tape.leaves[kernel])


def _start(normalized: Normalized) -> str:
    return " and ".join(map(str, sorted(normalized.starts)))
