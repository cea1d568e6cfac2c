"""Running statistics: their momentum, bias correction and start."""

import itertools

import numpy as np

from ...types import Cause
from .. import places
from ..divergence import Divergence
from ..tape import INPUTS, STATE
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


def norm_momentum(one: View, other: View, labels: tuple[str, str]) -> Cause | None:
    """Compare the running statistics after a training step; None if they agree."""
    ours, theirs = _unmatched(one, other), _unmatched(other, one)
    if not ours or not theirs:
        return None
    shares = [
        [_share(view, value) for value in values] for view, values in ((one, ours), (other, theirs))
    ]
    known = [[share for share in side if share is not None] for side in shares]
    if not all(known):
        return None
    shown = [
        f"{label}: " + ", ".join(sorted({_formula(*share) for share in side}))
        for side, label in zip(known, labels, strict=True)
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
    """Fit `new = old share * old + batch share * batch`; None if nothing fits."""
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
    for past, statistic in itertools.product(old, batch):
        columns = np.stack([past, statistic], 1).astype(np.float64)
        shares, *_ = np.linalg.lstsq(columns, new, rcond=None)
        if close(columns @ shares, new) and 0 < shares[1] <= 1 + 1e-9:
            return round(float(shares[0]), 6), round(float(shares[1]), 6)
    return None


def _formula(old: float, batch: float) -> str:
    return f"new = {old:.4g} old + {batch:.4g} batch"
