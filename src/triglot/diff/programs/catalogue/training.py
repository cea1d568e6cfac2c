"""What networks do in training only: running statistics and dropout."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...types import Cause
from .. import places
from ..divergence import Divergence
from ..regions import RegionPart, consumers
from ..tape import INPUTS, KEY, STATE, Step, Tape
from ..values import View, close, layouts
from ..wide import is_floating
from . import features
from .features import SUBSTITUTED, Finding


def differing_statistics(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find running statistics that are stored or corrected in another way."""
    read = [part.tape.depends[value] for part in divergence.parts for value in part.values]
    if not any(read) or any(mask & ~STATE for mask in read):
        return None
    largest, relative = divergence.size()
    evidence = (
        f"the running statistics differ by up to {largest:.3g} (relative {relative:.3g}): another "
        f"momentum, bias correction or start in {labels[0]} than in {labels[1]}"
    )
    return Finding("norm_momentum", evidence, divergence)


def starting_statistics(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find running statistics that start with other numbers, confirmed by the first one's."""
    one, other = divergence.parts
    for first, second in features.pairs(divergence):
        ours = _read_statistics(one.tape, one.tape.steps[first])
        theirs = _read_statistics(other.tape, other.tape.steps[second])
        if len(ours) != 1 or len(theirs) != 1:
            continue
        (_, start), (position, read) = *ours, *theirs
        cores = one.view.core(start), other.view.core(read)
        if cores[0].same(cores[1], one.view.tolerance):
            continue
        array = np.asarray(one.view.arrays[start])
        for arranged in layouts(array, np.shape(other.view.arrays[read])):
            if divergence.agrees({}, {(second, position): arranged}):
                shown = [f"{core.low:.6g}" if core.array.size == 1 else "different numbers"
                         for core in cores]  # fmt: skip
                evidence = (
                    f"{other.tape.leaves[other.tape.roots[read]]} starts with {shown[0]} in "
                    f"{labels[0]}, with {shown[1]} in {labels[1]}; with the first value in both, "
                    "the results are equal"
                )
                return Finding("norm_statistics", evidence, divergence)
    return None


def _read_statistics(tape: Tape, step: Step) -> list[tuple[int, int]]:
    """List the operands that are leaves of the state, with their positions."""
    return [
        (position, value)
        for position, value in enumerate(step.operands)
        if tape.depends[value] == STATE and tape.roots[value] in tape.leaves
    ]


def mixed_statistics(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a norm that uses a running average in training, in one program or with another share."""
    if divergence.substitute is None:
        return None
    uses, shares = [], []
    for part in divergence.parts:
        depends = part.tape.depends
        uses.append(part.end is not None and bool(depends[part.end] & STATE))
        # The other program may have the running average too, and not normalize by it.
        near = [*part.values[::-1], *part.inputs]
        mixed = [v for v in near if depends[v] & STATE and depends[v] & INPUTS]
        known = (_share(part.view, value) for value in mixed)
        shares.append(next((share for share in known if share and share[0]), None))
    if not any(uses) or uses != [share is not None for share in shares]:
        return None
    shown = [
        f"the batch's statistics in {label}" if share is None else f"{_formula(*share)} in {label}"
        for share, label in zip(shares, labels, strict=True)
    ]
    name = "norm_momentum" if all(uses) else "norm_statistics"
    evidence = f"in training, normalizes by {shown[0]}, by {shown[1]}; {SUBSTITUTED}"
    return Finding(name, evidence, divergence)


def norm_momentum(
    views: Sequence[View], originals: Sequence[View], labels: tuple[str, str]
) -> Cause | None:
    """Compare how running statistics are updated in a training step; None if in the same way.

    Statistics of other inputs, or that started elsewhere, differ after an equal update too.

    Args:
      views: both programs, the second one with the first one's results wherever a cause was found.
      originals: both programs as they are.
      labels: the labels of both networks.
    """
    one, other = views
    ours, theirs = _unmatched(one, other), _unmatched(other, one)
    if not ours or not theirs:
        return None
    formulas = [
        sorted({_formula(*share) for value in values if (share := _share(view, value))})
        for view, values in zip(originals, (ours, theirs), strict=True)
    ]
    if all(formulas) and formulas[0] == formulas[1]:
        return _unbiased_variance(originals, (ours, theirs), labels)
    if not all(formulas):
        return None
    shown = [
        f"{label}: new = {', new = '.join(side)}"
        for side, label in zip(formulas, labels, strict=True)
    ]
    firsts = places.operation(one.tape, ours[0]), places.operation(other.tape, theirs[0])
    return Cause("norm_momentum", places.of_both(firsts, labels), "; ".join(shown))


def _unbiased_variance(
    views: Sequence[View], values: tuple[list[int], list[int]], labels: tuple[str, str]
) -> Cause | None:
    """Find running variances of which only one is unbiased: sums over n - 1 against over n."""
    for pair in itertools.product(*values):
        added = [_of_batch(view, value) for view, value in zip(views, pair, strict=True)]
        sorted_parts = [np.sort(np.ravel(each)) for each in added if each is not None]
        if len(sorted_parts) != 2 or sorted_parts[0].size != sorted_parts[1].size:
            continue
        one, other = sorted_parts
        if not np.all(one * other > 0):
            continue
        ratios = one / other
        ratio = float(ratios[0])
        if ratio == 1 or not np.allclose(ratios, ratio, rtol=1e-6):
            continue
        count = max(ratio, 1 / ratio) / (max(ratio, 1 / ratio) - 1)
        if count < 1.5 or abs(count - round(count)) > 1e-4 * count:
            continue
        unbiased = int(ratio < 1)
        at = [places.operation(view.tape, v) for view, v in zip(views, pair, strict=True)]
        evidence = (
            f"the running variance is a sum of {round(count)} squares over {round(count) - 1} "
            f"(unbiased) in {labels[unbiased]}, over {round(count)} in {labels[1 - unbiased]}"
        )
        return Cause("unbiased_variance", places.of_both(at, labels), evidence)
    return None


def _of_batch(view: View, value: int) -> np.ndarray | None:
    """Return what a batch adds to a running average; None if it is none."""
    share = _share(view, value)
    return None if share is None else _moved(view, value)[1]


def states_after(views: Sequence[View], *, explained: bool) -> tuple[list[Any], list[Any]]:
    """Return both programs' new state, with equal statistics wherever they are updated alike.

    Statistics whose inputs differ are no difference of their own: the second program gets the first
    one's.

    Args:
      views: both programs after a training step, the second one with the first one's results
        wherever a cause was found.
      explained: whether a cause was found; without one, the inputs are equal, and statistics that
        differ are a difference of their own.
    """
    one, other = views
    states: list[list[Any]] = [
        [view.arrays[value] for value in view.tape.new_state] for view in views
    ]
    slots = {value: slot for slot, value in enumerate(other.tape.new_state)}
    theirs = sorted(_unmatched(other, one))
    for value in sorted(_unmatched(one, other)):  # in the order in which they are computed
        array, formula = one.arrays[value], _share(View(one.tape, one.tape.arrays), value)
        for their in theirs if explained else ():
            shape = np.shape(other.arrays[their])
            same = _share(View(other.tape, other.tape.arrays), their) == formula
            if same and np.size(array) == np.prod(shape):
                states[1][slots[their]] = np.reshape(array, shape)
                theirs.remove(their)
                break
    return states[0], states[1]


def _unmatched(view: View, other: View) -> list[int]:
    """Return the new state that is computed from the batch and that the other program lacks."""
    theirs = [other.core(value) for value in _batch_state(other)]
    return [
        value
        for value in _batch_state(view)
        if not any(view.core(value).same(core, view.tolerance) for core in theirs)
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

    Several statistics may fit, such as a sum and a mean: an average is one whose shares sum to 1.
    """
    tape = view.tape
    share, rest, past = _moved(view, value)
    rest, fitting = np.ravel(rest), []
    for statistic in view.compared():
        batch = np.ravel(view.arrays[statistic])
        if tape.depends[statistic] & STATE or not tape.depends[statistic] & INPUTS:
            continue
        if batch.size == rest.size and np.any(batch):
            part = float(np.sum(batch * rest) / np.sum(batch * batch))
            if 0 < part <= 1 + 1e-9 and close(part * batch, rest):
                fitting.append((abs(share + part - 1) > 1e-6, -round(part, 6)))
    if not fitting:
        return None
    is_other, part = min(fitting)
    if is_other and not np.any(past):  # then its share is whatever completes the average
        return round(1 + part, 6), -part
    return round(share, 6), -part


def _moved(view: View, value: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the share of the old average in a new one, the rest, and the old average."""
    tape = view.tape
    new, steps = np.asarray(view.arrays[value], np.float64), tape.needed([value])
    share, past = 0.0, np.zeros_like(new)
    for leaf in tape.leaves:
        old = np.asarray(view.arrays[leaf]) if tape.depends[leaf] == STATE else np.zeros(0, bool)
        if old.size != new.size or not is_floating(old.dtype):
            continue
        change = tape.replay({leaf: old + 1}, arrays=view.arrays, steps=steps)[value] - new
        if np.any(change) and close(change, np.full_like(change, change.flat[0])):
            share, past = float(change.flat[0]), np.reshape(old, new.shape)
    return share, new - share * past, past


def _formula(old: float, batch: float) -> str:
    return f"{old:.4g} old + {batch:.4g} batch"


def dropout(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a factor between results that is the rate of a random mask nearby."""
    factor = features.ratio(divergence)
    kept = [_kept(part) for part in divergence.parts]
    if kept == [None, None] or factor is None:
        return None
    for shares in _interpretations(kept):
        if np.isclose(factor, shares[1] / shares[0], rtol=1e-4):
            tapes = [part.tape for part in divergence.parts]
            without = ["not scaled" if tape.draw_sizes else "not active" for tape in tapes]
            shown = [
                f"rate {1 - share:.4g} in {label}" if share < 1 else f"{word} in {label}"
                for share, word, label in zip(shares, without, labels, strict=True)
            ]
            evidence = (
                f"{shown[0]}, {shown[1]}: kept elements differ by {factor:.4g}; with the "
                "first value in both, the results are equal"
            )
            is_depth = all(tape.drops_paths for tape in tapes)
            return Finding("stochastic_depth" if is_depth else "dropout", evidence, divergence)
    return None


def _interpretations(kept: list[float | None]) -> list[tuple[float, float]]:
    """Return the shares of kept elements; a program may compare with it, or with the rate."""
    options = [(1.0,) if share is None else (share, 1 - share, 1.0) for share in kept]
    return [(a, b) for a in options[0] for b in options[1] if a > 0 and b > 0 and a != b]


def _kept(part: RegionPart) -> float | None:
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
    numbers = features.constants(tape, index) if index is not None else []
    return next((c.value for c in numbers if 0 < c.value < 1 and not _is_drawn(tape, c)), None)


def _is_drawn(tape: Tape, constant: features.Constant) -> bool:
    return bool(tape.depends[tape.steps[constant.step].operands[constant.position]] & KEY)
