"""Explain why two traced programs give different results."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from ...core.types import PyTree
from ..types import Array, Cause, Difference, Side
from . import divergence, places
from .arithmetic import arithmetic_difference, is_rounded_constant, mixes_types
from .catalogue import NamedCauses, is_consequence, name_causes, windows
from .catalogue.training import norm_momentum
from .recording import record_both
from .tape import Operand, Tape
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
      most: the number of differences that were found, if there may be more; else 0.
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


def explain(
    first_side: Side, second_side: Side, inputs: PyTree, *, train: bool, key: jax.Array
) -> Explanation:
    """Find the first operations in which two networks differ, and the likely causes.

    Args:
      first_side, second_side: networks with a codec, and their weights.
      inputs: a batch of inputs `[B, ...]` for both; at most 3 examples are used.
      train: training mode or evaluation.
      key: the key of the networks' random draws, which are replaced by constants.

    Raises:
      TriglotError: if a network has no codec or gives another number of outputs.
    """
    record = functools.partial(record_both, first_side, second_side, inputs, train=train, key=key)
    labels = (first_side.label, second_side.label)
    explanation = explain_tapes(record(wide=True), labels, record)
    shared = first_side.names.keys() & second_side.names.keys()
    names = {"": "", **{first_side.names[name]: second_side.names[name] for name in shared}}
    names_of_causes = {cause.name for cause in explanation.causes}
    if not explanation.diverges or names_of_causes.isdisjoint(UNEXPLAINED):
        return explanation
    resized = windows.other_sizes(explanation.views, names, labels)
    if resized is None:
        return explanation
    causes = [cause for cause in explanation.causes if cause.name != "unknown"]
    if resized.name not in names_of_causes:
        causes.insert(0, resized)
    return replace(explanation, causes=tuple(causes), resized=True)


def explain_tapes(
    tapes: Tapes,
    labels: tuple[str, str],
    native: Callable[[], Tapes] | None = None,
    arrays: tuple[Sequence[Array], Sequence[Array]] | None = None,
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
    first_view, second_view = (
        View(tape, values) for tape, values in zip(tapes, start, strict=True)
    )
    originals = (first_view, second_view)
    first: Difference | None = None
    named_causes: list[NamedCauses] = []
    values: dict[int, Array] = {}
    operands: dict[Operand, Array] = {}
    num_left = most
    while num_left:
        difference = divergence.find(first_view, second_view)
        if difference is None:
            break
        num_left -= 1
        rounded = is_rounded_constant(difference)
        if not rounded and not is_consequence(
            difference, [each.divergence for each in named_causes]
        ):
            named_causes.append(name_causes(difference, labels))
            difference = named_causes[-1].divergence
        first = first or (None if rounded else difference.as_difference())
        is_named = bool(named_causes) and named_causes[-1].divergence is difference
        if not difference.values and not difference.operands:
            if is_named:
                pair = _outputs(tapes[0], first_view.arrays), _outputs(tapes[1], second_view.arrays)
                named_causes[-1] = _with_effect(named_causes[-1], *pair)
            break
        values.update(difference.values)
        operands.update(difference.operands)
        anew = {step for step, _ in difference.operands}
        unchanged = values.keys() - difference.values.keys()
        arrays_after = tapes[1].replay(
            difference.values,
            operands,
            arrays=second_view.arrays,
            unchanged=unchanged,
            steps_with_operands=anew,
        )
        if is_named:
            pair = _outputs(tapes[1], second_view.arrays), _outputs(tapes[1], arrays_after)
            named_causes[-1] = _with_effect(named_causes[-1], *pair)
        previous, second_view = second_view, View(tapes[1], arrays_after, previous=second_view)
        if previous is not originals[1]:
            previous.free()
    views, causes = (first_view, second_view), join_moved(named_causes, labels)
    explained = [each.divergence for each in named_causes]
    if (momentum := norm_momentum(views, originals, labels)) is not None:
        causes.append(momentum)
    if native is not None and any(map(mixes_types, tapes)):
        arithmetic, located = arithmetic_difference(views, native(), labels)
        causes, first = causes + arithmetic, first or located
    parameters_read = frozenset(
        places.parameter_of(part.tape, step)
        for difference in explained
        for part in difference.parts
        for step in part.steps[:MAX_STEPS]
    )
    limit = 0 if num_left else most
    causes = without_consequences(causes) if tapes[0].of_batches else causes
    return Explanation(
        first, merge_equal(causes), views, bool(explained), parameters_read, most=limit
    )


def _outputs(tape: Tape, arrays: Sequence[Array]) -> list[np.ndarray]:
    """Return the floating-point outputs of a program."""
    outputs = (np.asarray(arrays[value]) for value in tape.outputs)
    return [array for array in outputs if array.dtype.kind == "f"]


def _with_effect(
    named: NamedCauses, before: list[np.ndarray], after: list[np.ndarray]
) -> NamedCauses:
    """Add how much the outputs change where the first program's result is substituted."""
    changes = [largest_difference(*pair)[1] for pair in zip(before, after, strict=False)]
    effect = max((math.inf if math.isnan(change) else change for change in changes), default=0.0)
    return replace(named, causes=tuple(replace(each, effect=effect) for each in named.causes))


def join_moved(named: Sequence[NamedCauses], labels: tuple[str, str]) -> list[Cause]:
    """Return the causes; what one program computes earlier than the other is one cause."""
    causes: list[Cause] = []
    pending: list[NamedCauses] = []  # that have no counterpart yet
    for each in named:
        pairs = ((earlier, each.moved_from(earlier, labels)) for earlier in pending[::-1])
        earlier, cause = next((pair for pair in pairs if pair[1] is not None), (None, None))
        if earlier is None or cause is None:
            pending.append(each)
            causes.extend(each.causes)
            continue
        pending.remove(earlier)
        effects = [causes_of.causes[0].effect or 0.0 for causes_of in (earlier, each)]
        causes[causes.index(earlier.causes[0])] = replace(cause, effect=max(effects))
    return causes


def without_consequences(causes: list[Cause]) -> list[Cause]:
    """Leave out causes that are likely to follow from another one, in a function of batches.

    A reduced value is read by all that follows, so that weak evidence beside strong is a
    consequence; at one place, the first evidence of a cause is the strongest.
    """
    strong = [cause for cause in causes if cause.name not in LIKELY_CONSEQUENCES]
    first: dict[tuple[str, str], Cause] = {}
    for cause in strong or causes:
        first.setdefault((cause.name, cause.where), cause)
    return list(first.values())


def merge_equal(causes: list[Cause]) -> tuple[Cause, ...]:
    """Join causes of one name and evidence, as in every layer, into one with its places.

    What changes the outputs most is first; what has no known effect, such as a dtype, is last.
    """
    groups: dict[tuple[str, str], list[Cause]] = {}
    for cause in causes:
        groups.setdefault((cause.name, cause.evidence), []).append(cause)
    joined_causes = []
    for group in groups.values():
        places_of_group = list(dict.fromkeys(cause.where for cause in group))
        more = f", and {len(places_of_group) - 1} more" if places_of_group[1:] else ""
        effect = max((cause.effect for cause in group if cause.effect is not None), default=None)
        joined_causes.append(replace(group[0], where=places_of_group[0] + more, effect=effect))
    return tuple(sorted(joined_causes, key=lambda cause: -(cause.effect or 0.0)))
