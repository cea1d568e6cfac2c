"""Spectral normalization: a kernel over an estimate of its largest singular value."""

from dataclasses import dataclass

import numpy as np

from ..divergence import Search
from ..regions import Region
from ..tape import INPUTS, PARAMS, STATE, Tape
from .features import ROOTS, SUBSTITUTED, Finding, in_each, of_search


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


@of_search
def spectral_norm(search: Search, labels: tuple[str, str]) -> Finding | None:
    """Find a kernel that only one program normalizes, or both with other power iterations."""
    first, second = (_normalized_kernels(region) for region in search.regions)
    cores = [region.view.core for region in search.regions]
    for first_norm in first:
        for second_norm in second:
            kernels = cores[0](first_norm.kernel), cores[1](second_norm.kernel)
            if kernels[0].same(kernels[1]) and search.fits(first_norm.value, second_norm.value):
                return _other_iterations(search, first_norm, second_norm, labels)
    for side, norms in ((0, first), (1, second)):
        for normalized in norms:
            if (finding := _unnormalized_kernel(search, side, normalized, labels)) is not None:
                return finding
    return None


def _other_iterations(
    search: Search, first_norm: Normalized, second_norm: Normalized, labels: tuple[str, str]
) -> Finding | None:
    """Describe two normalizations of a kernel with other iterations; None if they are equal."""
    kernel = _name(search.first.tape, first_norm.kernel)
    if first_norm.products != second_norm.products:
        counts = [f"{each.products / 2:g}" for each in (first_norm, second_norm)]
        description = in_each(counts, labels)
    elif first_norm.starts.isdisjoint(second_norm.starts):
        description = (
            f"{first_norm.products / 2:g} in both, from a vector of {_start(first_norm)} numbers "
            f"in {labels[0]}, of {_start(second_norm)} in {labels[1]}"
        )
    else:
        return None
    array = next(search.substitutes(first_norm.value, second_norm.value), None)
    if array is None:
        return None
    a, b = first_norm.value, second_norm.value
    divergence = search.divergence_at(a, b, array)
    evidence = (
        f"power iterations that estimate the largest singular value of {kernel}, from equal "
        f"vectors: {description}"
    )
    return Finding("power_iterations", evidence, divergence, at=(a, b))


def _unnormalized_kernel(
    search: Search, side: int, normalized: Normalized, labels: tuple[str, str]
) -> Finding | None:
    """Describe a kernel that only one program normalizes; confirmed by substitution."""
    region, bare_region = search.regions[side], search.regions[1 - side]
    core = region.view.core(normalized.kernel)
    for leaf in sorted(bare_region.boundary | bare_region.leaves):
        if leaf not in bare_region.tape.leaves or bare_region.tape.depends[leaf] != PARAMS:
            continue
        if not bare_region.view.core(leaf).same(core):
            continue
        pair = (normalized.value, leaf) if side == 0 else (leaf, normalized.value)
        confirmed = search.agree(*pair)
        if confirmed is None:
            continue
        evidence = (
            f"{labels[side]} divides {_name(region.tape, normalized.kernel)} by its largest "
            f"singular value (spectral normalization), {labels[1 - side]} does not; {SUBSTITUTED}"
        )
        return Finding("spectral_norm", evidence, confirmed, at=pair)
    return None


def _normalized_kernels(region: Region) -> list[Normalized]:
    """List the kernels of a region that are divided by what vectors of the state give."""
    tape, kernels = region.tape, list[Normalized]()
    for value in region.values:
        step = tape.producers[value]
        if step.name != "div":
            continue
        kernel, sigma = (tape.roots[operand] for operand in step.operands)
        if kernel not in tape.leaves or tape.depends[kernel] != PARAMS:
            continue
        if region.view.core(sigma).array.size != 1 or tape.depends[sigma] & INPUTS:
            continue
        ancestors = tape.ancestors(sigma)
        starts = [v for v in ancestors if v in tape.leaves and tape.depends[v] == STATE]
        sizes = frozenset(np.size(tape.arrays[v]) for v in starts) - {1}
        if sizes and kernel in ancestors:
            steps = {tape.producers[v] for v in ancestors if v in tape.producers}
            products = sum(each.name in ROOTS for each in steps)
            kernels.append(Normalized(value, kernel, products, sizes))
    return kernels


def _name(tape: Tape, kernel: int) -> str:
    return tape.display_name(tape.leaves[kernel])


def _start(normalized: Normalized) -> str:
    return " and ".join(map(str, sorted(normalized.starts)))
