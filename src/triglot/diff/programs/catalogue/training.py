"""What networks do in training only: running statistics and dropout."""

import itertools
from collections.abc import Sequence

import numpy as np

from ...types import Array, Cause
from .. import places
from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import INPUTS, KEY, STATE, Step, Tape
from ..values import View, close, layouts
from ..wide import is_floating
from . import features
from .features import CONFIRMED, SUBSTITUTED, Finding, in_each


def differing_statistics(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find running statistics that are stored or corrected in another way."""
    dependencies = [part.tape.depends[value] for part in divergence.parts for value in part.values]
    if not any(dependencies) or any(mask & ~STATE for mask in dependencies):
        return None
    largest, relative = divergence.size()
    evidence = (
        f"the running statistics differ by up to {largest:.3g} (relative {relative:.3g}): another "
        f"momentum, bias correction or start in {labels[0]} than in {labels[1]}"
    )
    return Finding("norm_momentum", evidence, divergence)


def starting_statistics(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find running statistics that start with other numbers, confirmed by the first one's."""
    first_part, second_part = divergence.parts
    for first, second in features.pairs(divergence):
        first_reads = _read_statistics(first_part.tape, first)
        second_reads = _read_statistics(second_part.tape, second)
        if len(first_reads) != 1 or len(second_reads) != 1:
            continue
        (_, first_start), (position, second_start) = *first_reads, *second_reads
        cores = first_part.view.core(first_start), second_part.view.core(second_start)
        if cores[0].same(cores[1], first_part.view.tolerance):
            continue
        array = first_part.view.array(first_start)
        for arranged in layouts(array, np.shape(second_part.view.arrays[second_start])):
            if divergence.agrees({}, {(second, position): arranged}):
                descriptions = [f"{core.low:.6g}" if core.array.size == 1 else "different numbers"
                         for core in cores]  # fmt: skip
                name = second_part.tape.leaves[second_part.tape.roots[second_start]]
                starts = in_each(descriptions, labels, "with ")
                evidence = f"{name} starts {starts}; {CONFIRMED}"
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
        fits = (_share(part.view, value) for value in mixed)
        shares.append(next((share for share in fits if share and share[0]), None))
    if not any(uses) or uses != [share is not None for share in shares]:
        return None
    descriptions = [
        f"the batch's statistics in {label}" if share is None else f"{_formula(*share)} in {label}"
        for share, label in zip(shares, labels, strict=True)
    ]
    name = "norm_momentum" if all(uses) else "norm_statistics"
    evidence = f"in training, normalizes by {descriptions[0]}, by {descriptions[1]}; {SUBSTITUTED}"
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
    first_view, second_view = views
    first_statistics = _unmatched_state(first_view, second_view)
    second_statistics = _unmatched_state(second_view, first_view)
    if not first_statistics or not second_statistics:
        return None
    formulas = [
        sorted({_formula(*share) for value in values if (share := _share(view, value))})
        for view, values in zip(originals, (first_statistics, second_statistics), strict=True)
    ]
    if all(formulas) and formulas[0] == formulas[1]:
        return _unbiased_variance(originals, (first_statistics, second_statistics), labels)
    if not all(formulas):
        return None
    descriptions = [
        f"{label}: new = {', new = '.join(side)}"
        for side, label in zip(formulas, labels, strict=True)
    ]
    operations = (
        places.operation(first_view.tape, first_statistics[0]),
        places.operation(second_view.tape, second_statistics[0]),
    )
    return Cause("norm_momentum", places.describe_both(operations, labels), "; ".join(descriptions))


def _unbiased_variance(
    views: Sequence[View], values: tuple[list[int], list[int]], labels: tuple[str, str]
) -> Cause | None:
    """Find running variances of which only one is unbiased: sums over n - 1 against over n."""
    for pair in itertools.product(*values):
        added = [_of_batch(view, value) for view, value in zip(views, pair, strict=True)]
        sorted_parts = [np.sort(np.ravel(each)) for each in added if each is not None]
        if len(sorted_parts) != 2 or sorted_parts[0].size != sorted_parts[1].size:
            continue
        first_variance, second_variance = sorted_parts
        if not np.all(first_variance * second_variance > 0):
            continue
        ratios = first_variance / second_variance
        ratio = float(ratios[0])
        if ratio == 1 or not np.allclose(ratios, ratio, rtol=1e-6):
            continue
        count = max(ratio, 1 / ratio) / (max(ratio, 1 / ratio) - 1)
        if count < 1.5 or abs(count - round(count)) > 1e-4 * count:
            continue
        # A correction of the running average has such a ratio too, of any count.
        size = round(count) * first_variance.size
        if not any(_reads_array_of(view, v, size) for view, v in zip(views, pair, strict=True)):
            continue
        unbiased = int(ratio < 1)
        operations = [places.operation(view.tape, v) for view, v in zip(views, pair, strict=True)]
        evidence = (
            f"the running variance is a sum of {round(count)} squares over {round(count) - 1} "
            f"(unbiased) in {labels[unbiased]}, over {round(count)} in {labels[1 - unbiased]}"
        )
        return Cause("unbiased_variance", places.describe_both(operations, labels), evidence)
    return None


def _reads_array_of(view: View, value: int, size: int) -> bool:
    """Return whether a value is computed from an array of this size."""
    return any(np.size(view.arrays[each]) == size for each in view.tape.ancestors(value))


def _of_batch(view: View, value: int) -> np.ndarray | None:
    """Return the term that a batch adds to a running average; None for another value."""
    share = _share(view, value)
    return None if share is None else _split_average(view, value)[1]


def states_after(views: Sequence[View], *, explained: bool) -> tuple[list[Array], list[Array]]:
    """Return both programs' new state, with equal statistics wherever they are updated alike.

    Statistics whose inputs differ are no difference of their own: the second program gets the first
    one's.

    Args:
      views: both programs after a training step, the second one with the first one's results
        wherever a cause was found.
      explained: whether a cause was found; without one, the inputs are equal, and statistics that
        differ are a difference of their own.
    """
    first_view, second_view = views
    first_original, second_original = (View(view.tape, view.tape.arrays) for view in views)
    states = [[view.arrays[value] for value in view.tape.new_state] for view in views]
    slots = {value: slot for slot, value in enumerate(second_view.tape.new_state)}
    unmatched = sorted(_unmatched_state(second_view, first_view))
    # In the order in which they are computed.
    for value in sorted(_unmatched_state(first_view, second_view)):
        array = first_view.arrays[value]
        formula = _share(first_original, value)
        for second_value in unmatched if explained else ():
            shape = np.shape(second_view.arrays[second_value])
            same_formula = _share(second_original, second_value) == formula
            if same_formula and np.size(array) == np.prod(shape):
                states[1][slots[second_value]] = np.reshape(array, shape)
                unmatched.remove(second_value)
                break
    return states[0], states[1]


def _unmatched_state(view: View, other_view: View) -> list[int]:
    """Return the new state that is computed from the batch and that the other program lacks."""
    other_cores = other_view.cores(_batch_state(other_view))
    return [
        value
        for value in _batch_state(view)
        if not any(view.core(value).same(core, view.tolerance) for core in other_cores)
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
    share, batch_term, old = _split_average(view, value)
    batch_term, fitting = np.ravel(batch_term), []
    for statistic in view.data_values():
        batch = np.ravel(view.arrays[statistic])
        if tape.depends[statistic] & STATE or not tape.depends[statistic] & INPUTS:
            continue
        if batch.size == batch_term.size and np.any(batch):
            part = float(np.sum(batch * batch_term) / np.sum(batch * batch))
            if 0 < part <= 1 + 1e-9 and close(part * batch, batch_term):
                fitting.append((abs(share + part - 1) > 1e-6, -round(part, 6)))
    if not fitting:
        return None
    is_other, part = min(fitting)
    if is_other and not np.any(old):  # then its share is whatever completes the average
        return round(1 + part, 6), -part
    return round(share, 6), -part


def _split_average(view: View, value: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the share of the old average in a new one, the rest, and the old average."""
    tape = view.tape
    new, steps = view.array(value).astype(np.float64), tape.steps_for([value])
    share, past = 0.0, np.zeros_like(new)
    for leaf in tape.leaves:
        old = view.array(leaf) if tape.depends[leaf] == STATE else np.zeros(0, bool)
        if old.size != new.size or not is_floating(old.dtype):
            continue
        arrays = tape.replay({leaf: old + 1}, arrays=view.arrays, steps=steps)
        change = np.asarray(arrays[value]) - new
        if np.any(change) and close(change, np.full_like(change, change.flat[0])):
            share, past = float(change.flat[0]), np.reshape(old, new.shape)
    return share, new - share * past, past


def _formula(old: float, batch: float) -> str:
    return f"{old:.4g} old + {batch:.4g} batch"


def dropout(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a factor between results that is the rate of a random mask nearby."""
    factor = features.ratio(divergence)
    keep_rates = [_keep_rate(part) for part in divergence.parts]
    if keep_rates == [None, None] or factor is None:
        return None
    for shares in _interpretations(keep_rates):
        if np.isclose(factor, shares[1] / shares[0], rtol=1e-4):
            tapes = [part.tape for part in divergence.parts]
            inactive = ["not scaled" if tape.draw_sizes else "not active" for tape in tapes]
            descriptions = [
                f"rate {1 - share:.4g} in {label}" if share < 1 else f"{word} in {label}"
                for share, word, label in zip(shares, inactive, labels, strict=True)
            ]
            evidence = (
                f"{descriptions[0]}, {descriptions[1]}: kept elements differ by {factor:.4g}; "
                f"{CONFIRMED}"
            )
            is_depth = all(tape.drops_paths for tape in tapes)
            return Finding("stochastic_depth" if is_depth else "dropout", evidence, divergence)
    return None


def _interpretations(keep_rates: list[float | None]) -> list[tuple[float, float]]:
    """Return the shares of kept elements; a program may compare with it, or with the rate."""
    options = [(1.0,) if share is None else (share, 1 - share, 1.0) for share in keep_rates]
    return [(a, b) for a in options[0] for b in options[1] if a > 0 and b > 0 and a != b]


def _keep_rate(part: RegionPart) -> float | None:
    """Return the number with which uniform draws are compared for a mask near a part."""
    tape, near = part.tape, part.steps
    for value in [*part.values, *(() if part.end is None else (part.end,))]:
        near.extend(tape.readers_of(value))
    near += filter(None, [tape.step_of(value) for step in near for value in step.operands])
    for step in near:
        for value in step.operands:
            if tape.depends[value] == KEY and (share := _threshold(tape, value)) is not None:
                return share
    return None


def _threshold(tape: Tape, value: int) -> float | None:
    value = tape.origins.get(value, value)
    step = features.comes_from(tape, value, ("lt", "le", "gt", "ge"), 6)
    numbers = features.constants(tape, step) if step is not None else []
    return next((c.value for c in numbers if 0 < c.value < 1 and not _is_drawn(tape, c)), None)


def _is_drawn(tape: Tape, constant: features.Constant) -> bool:
    return bool(tape.depends[constant.step.operands[constant.position]] & KEY)
