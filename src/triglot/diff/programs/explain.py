"""Explain why two traced programs give different results."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ...core.types import PyTree
from ..types import Cause, Difference, Side
from . import divergence, places
from .arithmetic import arithmetic_difference, is_rounded_constant, mixes_types
from .catalogue import Named, is_consequence, name_causes, windows
from .catalogue.training import norm_momentum
from .recording import record_both
from .tape import Tape
from .values import View, largest_difference

MAX_CAUSES = 24
UNEXPLAINED = ("operation_missing", "unknown", "unpaired_parameter")
LIKELY_CONSEQUENCES = (
    "activation", "flatten_order", "operand_order", "operand_source", "operation_differs",
    "operation_missing", "position_embedding", "residual_source", "unknown",
)  # fmt: skip
LARGE = 2**28  # numbers of all values of a program
MAX_IN_LARGE = 8  # differences of such programs that are looked for
MAX_STEPS = 64  # of a part whose parameters are read
Tapes = tuple[Tape, Tape]
Views = tuple[View, View]


@dataclass(frozen=True)
class Explanation:
    """What two traced programs say about a difference.

    Attributes:
      first_difference: None if all values agree up to rounding.
      causes: none if no value differs by more than rounding.
      views: both programs, the second one with the first one's results wherever a cause was found.
      diverges: whether outputs differ in float64.
      parameters: canonical names, of either program, that the parts in which they diverge read.
      resized: whether a convolution or a pooling has results of another size.
      most: how many differences were looked for, if there may be more; else 0.
    """

    first_difference: Difference | None
    causes: tuple[Cause, ...]
    views: Views
    diverges: bool = False
    parameters: frozenset[str] = frozenset()
    resized: bool = False
    most: int = 0

    @property
    def is_freed(self) -> bool:
        """Whether `free` was called."""
        return not self.views[0].tape.arrays

    def free(self) -> None:
        """Forget the values of both programs, which fill the memory."""
        for view in self.views:
            view.free()
            view.tape.arrays.clear()


def explain(one: Side, other: Side, inputs: PyTree, *, train: bool, key: jax.Array) -> Explanation:
    """Find the first operations in which two networks differ, and the likely causes.

    Args:
      one, other: networks with a codec, and their weights.
      inputs: a batch of inputs `[B, ...]` for both; at most 3 examples are used.
      train: training mode or evaluation.
      key: the key of the networks' random draws, which are replaced by constants.

    Raises:
      TriglotError: if a network has no codec or gives another number of outputs.
    """
    record = functools.partial(record_both, one, other, inputs, train=train, key=key)
    labels = (one.label, other.label)
    explanation = explain_tapes(record(wide=True), labels, record)
    shared = one.names.keys() & other.names.keys()
    names = {"": "", **{one.names[name]: other.names[name] for name in shared}}
    resized = None
    if explanation.diverges and not {cause.name for cause in explanation.causes}.isdisjoint(
        UNEXPLAINED
    ):
        resized = windows.other_sizes(explanation.views, names, labels)
    if resized is None:
        return explanation
    known = {cause.name for cause in explanation.causes}
    causes = explanation.causes if resized.name in known else (resized, *explanation.causes)
    return replace(
        explanation, causes=tuple(each for each in causes if each.name != "unknown"), resized=True
    )


def explain_tapes(
    tapes: Tapes,
    labels: tuple[str, str],
    native: Callable[[], Tapes] | None = None,
    arrays: tuple[Sequence[Any], Sequence[Any]] | None = None,
    most: int = MAX_CAUSES,
) -> Explanation:
    """Find the first operations in which two recorded programs differ, and the likely causes.

    The programs were evaluated operation by operation in float64, and their values are compared
    whatever their layout. At each difference the second program is given the first one's result
    and the comparison goes on, so that several differences are all found.

    Args:
      tapes: both programs, recorded in float64 at equal arguments.
      labels: the labels of both networks.
      native: records them in the types in which they were traced, where these may differ; None to
        compare no types.
      arrays: values of both programs in place of the recorded ones.
      most: differences that are looked for; fewer in large programs, of which much is evaluated
        again after each.
    """
    if sum(np.size(array) for array in tapes[1].arrays) > LARGE:
        most = min(most, MAX_IN_LARGE)
    start = arrays or (tapes[0].arrays, tapes[1].arrays)
    one, other = (View(tape, values) for tape, values in zip(tapes, start, strict=True))
    originals = (one, other)
    first: Difference | None = None
    named: list[Named] = []
    values: dict[int, Any] = {}
    operands: dict[tuple[int, int], Any] = {}
    left = most
    while left:
        difference = divergence.find(one, other)
        if difference is None:
            break
        left -= 1
        rounded = is_rounded_constant(difference)
        if not rounded and not is_consequence(difference, [each.divergence for each in named]):
            named.append(name_causes(difference, labels))
            difference = named[-1].divergence
        first = first or (None if rounded else difference.described())
        is_named = bool(named) and named[-1].divergence is difference
        if not difference.values and not difference.operands:
            if is_named:
                pair = _outputs(tapes[0], one.arrays), _outputs(tapes[1], other.arrays)
                named[-1] = _with_effect(named[-1], *pair)
            break
        values.update(difference.values)
        operands.update(difference.operands)
        anew = {step for step, _ in difference.operands}
        kept = values.keys() - difference.values.keys()
        now = tapes[1].replay(
            difference.values, operands, arrays=other.arrays, kept=kept, anew=anew
        )
        if is_named:
            pair = _outputs(tapes[1], other.arrays), _outputs(tapes[1], now)
            named[-1] = _with_effect(named[-1], *pair)
        before, other = other, View(tapes[1], now, before=other)
        if before is not originals[1]:
            before.free()
    views, causes = (one, other), joined(named, labels)
    explained = [each.divergence for each in named]
    if (momentum := norm_momentum(views, originals, labels)) is not None:
        causes.append(momentum)
    if native is not None and any(map(mixes_types, tapes)):
        arithmetic, located = arithmetic_difference(views, native(), labels)
        causes, first = causes + arithmetic, first or located
    read = frozenset(
        places.parameter_of(part.tape, part.tape.steps[index])
        for difference in explained
        for part in difference.parts
        for index in part.steps[:MAX_STEPS]
    )
    limit = 0 if left else most
    causes = without_consequences(causes) if tapes[0].of_batches else causes
    return Explanation(first, merged(causes), views, bool(explained), read, most=limit)


def _outputs(tape: Tape, arrays: Sequence[Any]) -> list[np.ndarray]:
    """Return the floating-point outputs of a program."""
    outputs = (np.asarray(arrays[value]) for value in tape.outputs)
    return [array for array in outputs if array.dtype.kind == "f"]


def _with_effect(named: Named, one: list[np.ndarray], other: list[np.ndarray]) -> Named:
    """Add how much the outputs change where the first program's result is substituted."""
    changes = [largest_difference(*pair)[1] for pair in zip(one, other, strict=False)]
    effect = max((math.inf if math.isnan(change) else change for change in changes), default=0.0)
    return replace(named, causes=tuple(replace(each, effect=effect) for each in named.causes))


def joined(named: Sequence[Named], labels: tuple[str, str]) -> list[Cause]:
    """Return the causes; what one program computes earlier than the other is one cause."""
    causes: list[Cause] = []
    pending: list[Named] = []  # that have no counterpart yet
    for each in named:
        moved = ((before, each.moved_from(before, labels)) for before in pending[::-1])
        before, cause = next((pair for pair in moved if pair[1] is not None), (None, None))
        if before is None or cause is None:
            pending.append(each)
            causes.extend(each.causes)
            continue
        pending.remove(before)
        effects = [causes_of.causes[0].effect or 0.0 for causes_of in (before, each)]
        causes[causes.index(before.causes[0])] = replace(cause, effect=max(effects))
    return causes


def without_consequences(causes: list[Cause]) -> list[Cause]:
    """Leave out what is likely to follow from another cause of a function of batches.

    A reduced value is read by all that follows, so that weak evidence beside strong is a
    consequence; at one place, the first evidence of a cause is the strongest.
    """
    strong = [cause for cause in causes if cause.name not in LIKELY_CONSEQUENCES]
    first: dict[tuple[str, str], Cause] = {}
    for cause in strong or causes:
        first.setdefault((cause.name, cause.where), cause)
    return list(first.values())


def merged(causes: list[Cause]) -> tuple[Cause, ...]:
    """Join causes of one name and evidence, as in every layer, into one with its places.

    What changes the outputs most is first; what has no known effect, such as a dtype, is last.
    """
    groups: dict[tuple[str, str], list[Cause]] = {}
    for cause in causes:
        groups.setdefault((cause.name, cause.evidence), []).append(cause)
    joint = []
    for group in groups.values():
        where = list(dict.fromkeys(cause.where for cause in group))
        more = f", and {len(where) - 1} more" if where[1:] else ""
        effect = max((cause.effect for cause in group if cause.effect is not None), default=None)
        joint.append(replace(group[0], where=where[0] + more, effect=effect))
    return tuple(sorted(joint, key=lambda cause: -(cause.effect or 0.0)))
