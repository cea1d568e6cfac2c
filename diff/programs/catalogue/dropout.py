"""Dropout: active in one program only, or at another rate."""

import numpy as np

from ..divergence import Divergence
from ..regions import Part, consumers
from ..tape import KEY, Tape
from . import features
from .features import Finding


def dropout(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a factor between results that is the rate of a random mask nearby."""
    factor = features.ratio(found)
    kept = [_kept(part) for part in found.parts]
    if kept == [None, None] or factor is None:
        return None
    for shares in _interpretations(kept):
        if np.isclose(factor, shares[1] / shares[0], rtol=1e-4):
            shown = [
                f"rate {1 - share:.4g} in {label}" if share < 1 else f"not active in {label}"
                for share, label in zip(shares, labels, strict=True)
            ]
            evidence = (
                f"{shown[0]}, {shown[1]}: kept elements differ by {factor:.4g}; with the "
                "first one's in both, the results are equal"
            )
            return Finding("dropout", evidence, found)
    return None


def _interpretations(kept: list[float | None]) -> list[tuple[float, float]]:
    """Return the shares of kept elements; a program may compare with it, or with the rate."""
    options = [(1.0,) if share is None else (share, 1 - share, 1.0) for share in kept]
    return [(a, b) for a in options[0] for b in options[1] if a > 0 and b > 0 and a != b]


def _kept(part: Part) -> float | None:
    """Return the number with which uniform draws are compared for a mask near a part."""
    tape, near = part.tape, part.steps
    for value in [*part.values, *(() if part.end is None else (part.end,))]:
        near.extend(consumers(tape, value))
    for index in list(near):
        for value in tape.steps[index].operands:
            root = tape.roots[value]
            if root in tape.producers:
                near.append(tape.producers[root])
    for index in near:
        for value in tape.steps[index].operands:
            if tape.depends[value] == KEY and (share := _threshold(tape, value)) is not None:
                return share
    return None


def _threshold(tape: Tape, value: int) -> float | None:
    value = tape.origins.get(value, value)
    index = features.comes_from(tape, value, ("lt", "le", "gt", "ge"), 6)
    found = features.constants(tape, index) if index is not None else []
    return next((c.value for c in found if 0 < c.value < 1 and not _is_drawn(tape, c)), None)


def _is_drawn(tape: Tape, constant: features.Constant) -> bool:
    return bool(tape.depends[tape.steps[constant.step].operands[constant.position]] & KEY)
