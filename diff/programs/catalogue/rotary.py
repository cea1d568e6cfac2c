"""Rotary position embeddings: which numbers are rotated together."""

import numpy as np

from ..divergence import Divergence
from ..regions import RegionPart
from ..values import View
from . import features
from .features import Finding

HALVES, NEIGHBOURS = "the two halves", "neighbours"


def rotary_convention(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find rotations of the same numbers by the same angles, in halves or in neighbours.

    Confirmed by the sums of squares of the rotated pairs, which a rotation keeps.
    """
    pair = found.results()
    if pair is None or not all(map(_rotates, found.parts)):
        return None
    one, other = (array.astype(np.float64) for array in pair)
    source = _source(found.parts[1], one.shape)
    if source is None:
        return None
    kept = [_conventions(array, source, found.search.one.view) for array in (one, other)]
    if len(kept[0]) != 1 or len(kept[1]) != 1 or kept[0] == kept[1]:
        return None
    evidence = (
        f"rotates {kept[0][0]} together in {labels[0]}, {kept[1][0]} in {labels[1]}; with the "
        "first one's result in both, what follows is equal"
    )
    return Finding("rotary_convention", evidence, found)


def _rotates(part: RegionPart) -> bool:
    """Return whether a part multiplies with numbers that come from sines and cosines."""
    tape = part.tape
    operands = {value for index in part.steps for value in tape.steps[index].operands}
    return all(
        any(features.comes_from(tape, value, (name,), 8) is not None for value in operands)
        for name in ("sin", "cos")
    )


def _source(part: RegionPart, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return what a part rotates, in the shape of its result."""
    for value in part.inputs:
        array = np.asarray(part.view.arrays[value])
        if not part.tape.is_constant(value) and array.size == np.prod(shape):
            return array.reshape(shape) if array.shape != shape else array
    return None


def _conventions(array: np.ndarray, source: np.ndarray, view: View) -> list[str]:
    halves, neighbours = [], []
    for each in (array, source):
        one, other = np.split(each, 2, -1) if each.shape[-1] % 2 == 0 else (each, each)
        halves.append(one**2 + other**2)
        neighbours.append(each[..., ::2] ** 2 + each[..., 1::2] ** 2)
    return [
        name
        for name, sums in ((HALVES, halves), (NEIGHBOURS, neighbours))
        if sums[0].shape == sums[1].shape and np.allclose(*sums, rtol=1e-5)
    ]
