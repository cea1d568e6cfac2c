"""Rotary position embeddings: which numbers are rotated together."""

import numpy as np

from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import Tape
from ..values import layouts
from . import features
from .features import SUBSTITUTED, Finding

MAX_STEPS_BACK = 24  # from rotated numbers to the frequencies
HALVES, NEIGHBOURS = "the two halves", "neighbours"


def rotary_convention(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find rotations of the same numbers by the same angles, in halves or in neighbours.

    Confirmed by the sums of squares of the rotated pairs, which a rotation keeps.
    """
    if divergence.substitute is None or not all(map(_rotates, divergence.parts)):
        return None
    conventions = [_conventions(part) for part in divergence.parts]
    if len(conventions[0]) != 1 or len(conventions[1]) != 1:
        return None
    (first_convention,), (second_convention,) = conventions
    confirmation = f"; {SUBSTITUTED}"
    if first_convention != second_convention:
        evidence = (
            f"rotates {first_convention} together in {labels[0]}, {second_convention} in "
            f"{labels[1]}{confirmation}"
        )
        return Finding("rotary_convention", evidence, divergence)
    first, second = (_frequencies(part.tape, part.end or 0) for part in divergence.parts)
    at = None if first is None or second is None else (first, second)
    evidence = f"rotates {first_convention} together in both, by different angles{confirmation}"
    return Finding("rotary_convention", evidence, divergence, at=at)


def _rotates(part: RegionPart) -> bool:
    """Return whether a part multiplies with numbers that come from sines and cosines."""
    tape = part.tape
    operands = {value for step in part.steps for value in step.operands}
    constants = [v for v in operands if tape.is_constant(v) and np.size(tape.arrays[v]) > 1]
    if any(_turns(np.asarray(tape.arrays[value])) for value in constants):
        return True
    return all(
        any(features.comes_from(tape, value, (name,), 8) is not None for value in operands)
        for name in ("sin", "cos")
    )


def _turns(array: np.ndarray) -> bool:
    """Return whether an array holds complex numbers of magnitude 1."""
    return array.dtype.kind == "c" and np.allclose(np.abs(array), 1.0)


def _frequencies(tape: Tape, value: int) -> int | None:
    """Return the powers of the base from which the angles of a rotation are computed."""
    level = {tape.roots[value]}
    for _ in range(MAX_STEPS_BACK):
        steps = [tape.producers[v] for v in level if v in tape.producers]
        for step in steps:
            if step.name == "pow" and tape.is_constant(step.results[0]):
                return step.results[0]
        level = {tape.roots[operand] for step in steps for operand in step.operands}
    return None


def _conventions(part: RegionPart) -> set[str]:
    """Return how a part rotates what it reads; both where it is unclear."""
    conventions: set[str] = set()
    wholes = {features.whole_of(part.tape, value) for value in part.inputs} - {None}
    for value in (*part.inputs, *filter(None, wholes)):
        if part.tape.is_constant(value):
            continue
        for source in _real(part.view.array(value)):
            for result in part.values:
                array = part.view.array(result)
                if array.size != source.size or array.dtype.kind != "f" or array.ndim < 2:
                    continue
                if array.shape[-1] == 2:  # neighbours, stacked
                    array = array.reshape(*array.shape[:-2], -1)
                for arranged in layouts(source, array.shape):
                    preserving = _preserved_pairs(array, arranged)
                    conventions |= set(preserving) if len(preserving) == 1 else set()
    return conventions


def _real(array: np.ndarray) -> list[np.ndarray]:
    """Return an array; complex numbers as two halves, and as neighbours."""
    if array.dtype.kind == "f" or not array.ndim:
        return [array] if array.dtype.kind == "f" else []
    if array.dtype.kind != "c":
        return []
    parts = [np.real(array), np.imag(array)]
    return [np.concatenate(parts, -1), np.stack(parts, -1).reshape(*array.shape[:-1], -1)]


def _preserved_pairs(array: np.ndarray, source: np.ndarray) -> list[str]:
    halves, neighbours = [], []
    if array.shape[-1] % 2 or np.allclose(array, source):
        return []
    for each in (array, source):
        first_half, second_half = np.split(each, 2, -1)
        halves.append(first_half**2 + second_half**2)
        neighbours.append(each[..., ::2] ** 2 + each[..., 1::2] ** 2)
    return [
        name
        for name, sums in ((HALVES, halves), (NEIGHBOURS, neighbours))
        if sums[0].shape == sums[1].shape and np.allclose(*sums, rtol=1e-5)
    ]
