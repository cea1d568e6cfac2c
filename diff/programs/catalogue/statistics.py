"""Running statistics: their momentum, bias correction and start."""

import itertools
from collections.abc import Sequence

import numpy as np

from ...types import Cause
from .. import places
from ..divergence import Divergence
from ..tape import INPUTS, STATE, Tape
from ..values import View, close
from ..wide import is_floating
from . import features
from .features import Finding


def differing_statistics(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find running statistics that are stored or corrected in another way."""
    read = [r.tape.depends[value] for r, part, _ in features.sides(found) for value in part]
    if not read or any(mask & ~STATE for mask in read):
        return None
    largest, relative = found.size()
    evidence = (
        f"the running statistics differ by up to {largest:.3g} (relative {relative:.3g}): another "
        f"momentum, bias correction or start in {labels[0]} than in {labels[1]}"
    )
    return Finding("norm_momentum", evidence, found)


def mixed_statistics(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a norm that uses a running average in training, in one program or with another share."""
    if found.ends is None:
        return None
    uses, shares = [], []
    for region, part, end in features.sides(found):
        depends = region.tape.depends
        uses.append(end is not None and bool(depends[end] & STATE))
        mixed = [v for v in part[::-1] if depends[v] & STATE and depends[v] & INPUTS]
        known = (_share(region.view, value) for value in mixed)
        shares.append(next((share for share in known if share is not None), None))
    if not any(uses) or uses != [share is not None for share in shares]:
        return None
    shown = [
        f"the batch's statistics in {label}" if share is None else f"{_formula(*share)} in {label}"
        for share, label in zip(shares, labels, strict=True)
    ]
    name = "norm_momentum" if all(uses) else "norm_statistics"
    evidence = (
        f"in training, normalizes by {shown[0]}, by {shown[1]}; with the first one's in both, what "
        "follows is equal"
    )
    return Finding(name, evidence, found)


def norm_momentum(
    views: Sequence[View], tapes: Sequence[Tape], labels: tuple[str, str]
) -> Cause | None:
    """Compare how running statistics are updated in a training step; None if in the same way.

    Statistics that started elsewhere differ after an equal update too.

    Args:
      views: both programs, the second one with the first one's results wherever a cause was found.
      tapes: both programs as they are.
      labels: of both networks.
    """
    one, other = views
    ours, theirs = _unmatched(one, other), _unmatched(other, one)
    if not ours or not theirs:
        return None
    shares = [
        [_share(View(tape, tape.arrays), value) for value in values]
        for tape, values in zip(tapes, (ours, theirs), strict=True)
    ]
    known = [[share for share in side if share is not None] for side in shares]
    formulas = [sorted({_formula(*share) for share in side}) for side in known]
    if not all(known) or formulas[0] == formulas[1]:
        return None
    shown = [
        f"{label}: new = {', new = '.join(side)}"
        for side, label in zip(formulas, labels, strict=True)
    ]
    where = [
        f"{label}: {places.shown(places.operation(view.tape, values[0]))}"
        for view, values, label in zip((one, other), (ours, theirs), labels, strict=True)
    ]
    return Cause("norm_momentum", "; ".join(where), "; ".join(shown))


def _unmatched(view: View, other: View) -> list[int]:
    """Return the new state that is computed from the batch and that the other program lacks."""
    theirs = [other.core(value) for value in _batch_state(other)]
    return [
        value
        for value in _batch_state(view)
        if not any(close(view.core(value).numbers, core.numbers, view.tolerance) for core in theirs)
    ]


def _batch_state(view: View) -> list[int]:
    tape = view.tape
    return [
        value
        for value in tape.new_state
        if tape.depends[value] & INPUTS
        and isinstance(view.arrays[value], np.ndarray)
        and is_floating(view.arrays[value].dtype)
    ]


def _share(view: View, value: int) -> tuple[float, float] | None:
    """Fit `new = old share * old + batch share * batch`; None if nothing fits.

    Where several statistics fit, as a sum and a mean do, the average is one: its shares sum to 1.
    """
    tape = view.tape
    new = np.ravel(view.arrays[value])
    batch = [
        np.ravel(view.arrays[v])
        for v in view.compared()
        if not tape.depends[v] & STATE
        and tape.depends[v] & INPUTS
        and np.size(view.arrays[v]) == new.size
    ]
    old = [
        np.ravel(view.arrays[v])
        for v in tape.leaves
        if tape.depends[v] == STATE and np.size(view.arrays[v]) == new.size
    ]
    best: tuple[float, float] | None = None
    for past, statistic in itertools.product(old, batch):
        columns = np.stack([past, statistic], 1).astype(np.float64)
        shares, *_ = np.linalg.lstsq(columns, new, rcond=None)
        if not close(columns @ shares, new) or not 0 < shares[1] <= 1 + 1e-9:
            continue
        found = round(float(shares[0]), 6), round(float(shares[1]), 6)
        if not np.any(past):  # then its share is whatever completes the average
            found = round(1 - found[1], 6), found[1]
        if best is None or abs(sum(found) - 1) < abs(sum(best) - 1):
            best = found
    return best


def _formula(old: float, batch: float) -> str:
    return f"{old:.4g} old + {batch:.4g} batch"
