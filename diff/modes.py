"""Explain a difference in each mode, and in running statistics after an update."""

from collections.abc import Collection
from typing import Any

import jax
import numpy as np

from ..core.errors import describe
from ..core.types import PyTree
from .findings import merged
from .measures.numbers import EVALUATION, TRAINING
from .programs import Explanation, explain, explain_tapes
from .programs.catalogue.statistics import states_after
from .programs.tape import STATE
from .programs.wide import is_floating
from .types import Cause, Difference, Side

SCALE = 1.25
STATISTICS = ("norm_momentum", "norm_statistics")  # causes that are about running statistics


def explain_modes(
    one: Side,
    other: Side,
    inputs: PyTree,
    *,
    modes: Collection[str],
    with_state: bool,
    key: jax.Array,
    notes: list[str],
) -> tuple[Difference | None, list[Cause]]:
    """Name the causes of a difference in each mode in which the outputs differ.

    Args:
      one, other, inputs, key: those of `explain`.
      modes: in which the outputs differ.
      with_state: whether outputs differ after updates of the state. Causes are then looked for with
        the statistics of one batch, too: the initial ones hide how they are used and updated.
      notes: what could not be explained is added.

    Returns:
      The first difference, and the causes.
    """
    causes: list[Cause] = []
    found: dict[str, Explanation] = {}
    for mode in (EVALUATION, TRAINING):
        if mode in modes or with_state:
            try:
                found[mode] = explain(one, other, inputs, train=mode == TRAINING, key=key)
            except Exception as error:  # an operation that cannot be evaluated alone
                notes.append(f"the programs in {mode} could not be aligned: {describe(error)}")
    first: Difference | None = None
    for mode, explanation in found.items():
        if mode in modes:
            named = list(explanation.causes)
            if mode == EVALUATION and TRAINING in found:  # only training updates statistics
                named = [cause for cause in named if cause.name != "norm_momentum"]
            causes, first = merged(causes, named), first or explanation.first_difference
    if with_state and TRAINING in found:
        is_explained = any(cause.name not in STATISTICS for cause in found[TRAINING].causes)
        states = states_after(found[TRAINING].views, explained=is_explained)
        for mode in (TRAINING, EVALUATION):
            if mode in found and not any(cause.name in STATISTICS for cause in causes):
                explanation = _after(found[mode], states, (one.label, other.label))
                causes = merged(causes, explanation.causes)
                first = first or explanation.first_difference
    return first, causes


def _after(before: Explanation, states: tuple[list[Any], list[Any]], labels: Any) -> Explanation:
    """Explain the programs of one mode again, at another state."""
    tapes = before.views[0].tape, before.views[1].tape
    arrays = []
    for tape, state in zip(tapes, states, strict=True):
        leaves = [value for value in tape.leaves if tape.depends[value] == STATE]
        # Other statistics than those of the batch, whose average with the batch's shows nothing.
        moved = [SCALE * a if np.ndim(a) and is_floating(a.dtype) else a for a in state]
        arrays.append(tape.replay(dict(zip(leaves, moved, strict=True))))
    return explain_tapes(tapes, labels, arrays=(arrays[0], arrays[1]))
