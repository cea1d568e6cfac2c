"""Positions of tokens: counted with or without those that are padding."""

from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import INPUTS
from . import features
from .features import Finding

DEPTH = 4  # operations between a comparison of tokens and a cumulative sum


def padding_positions(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find positions that count only the tokens that are no padding, in one program."""
    paddings = [_padding(part) for part in divergence.parts]
    if paddings[0] == paddings[1] or divergence.substitute is None:
        return None
    descriptions = [
        f"all tokens in {label}" if padding is None else f"tokens other than {padding:g} in {label}"
        for padding, label in zip(paddings, labels, strict=True)
    ]
    evidence = (
        f"positions count {descriptions[0]}, {descriptions[1]}; with the first value in both, "
        "what follows is equal"
    )
    return Finding("padding_positions", evidence, divergence)


def _padding(part: RegionPart) -> float | None:
    """Return the token that a part leaves out where it counts tokens; None if it counts none."""
    tape = part.tape
    for step in part.steps:
        if step.name != "cumsum":
            continue
        compared = features.comes_from(tape, step.operands[0], ("ne", "eq"), DEPTH)
        if compared is None:
            continue
        tokens = [v for v in compared.operands if tape.depends[v] & INPUTS]
        if len(tokens) == 1 and part.view.array(tokens[0]).dtype.kind in "iu":
            return next((each.value for each in features.constants(tape, compared)), None)
    return None
