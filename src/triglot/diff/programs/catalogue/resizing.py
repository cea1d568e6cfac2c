"""Enlarged images: the nearest pixel, or an average by distance, with or without the corners."""

import numpy as np

from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import INPUTS, Step, Tape
from .features import Finding, in_each

PLAIN = "each pixel repeated"
WEIGHTED = "pixels averaged with fixed weights"
COPIES = {"broadcast_in_dim", "concatenate", "gather", "slice", "dynamic_slice", "rev", "select_n"}
PRODUCTS = {"dot_general", "mul", "conv_general_dilated"}
AVERAGES = {*PRODUCTS, "add", "sub"}


def resizing(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an input without parameters that both programs enlarge in another way."""
    pair = divergence.results()
    if pair is None:
        return None
    kinds = [_kind(part, pair[0].size) for part in divergence.parts]
    if None in kinds:
        return None
    if kinds[0] == kinds[1] == WEIGHTED:
        evidence = "the weights by which neighbouring pixels are averaged differ"
        return Finding("bilinear_resize", evidence, divergence)
    evidence = in_each(kinds, labels)
    return Finding("upsampling", evidence, divergence)


def _kind(part: RegionPart, size: int) -> str | None:
    """Name how a part enlarges its one input; None if it does something else."""
    inputs = [value for value in part.inputs if not part.tape.is_constant(value)]
    depends = [part.tape.depends[value] for value in (*inputs, *part.values)]
    if not inputs or not all(mask & INPUTS for mask in depends):
        return None
    if max(np.size(part.view.arrays[value]) for value in inputs) >= size:
        return None
    names = part.names
    if not names <= COPIES | AVERAGES | {"reshape", "transpose", "squeeze", "expand_dims"}:
        return None
    if any(not _has_fixed_weights(part.tape, step) for step in part.steps):
        return None
    return WEIGHTED if names & AVERAGES else PLAIN


def _has_fixed_weights(tape: Tape, step: Step) -> bool:
    """Check that a step, if it is a product, is one with a constant: products of data are none."""
    data = [each for each in step.operands if not tape.is_constant(tape.roots[each])]
    return step.name not in PRODUCTS or len(data) < 2
