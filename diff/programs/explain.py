"""Explain why two networks give different outputs at equal weights."""

from typing import Any

import jax

from ...core.types import PyTree
from ..types import Cause, Difference, Explanation, Side
from . import divergence
from .arithmetic import arithmetic_difference, mixes_types
from .catalogue import name_causes
from .catalogue.statistics import norm_momentum
from .recording import record_both
from .values import View

MAX_CAUSES = 24


def explain(one: Side, other: Side, inputs: PyTree, *, train: bool, key: jax.Array) -> Explanation:
    """Find the first operations in which two networks differ, and the likely causes.

    Both forward passes are evaluated operation by operation in float64, and their values are
    compared whatever their layout. At each difference the second network is given the first one's
    result and the comparison goes on, so that several differences are all found.

    Args:
      one, other: networks with a codec, and their weights.
      inputs: a batch of inputs `[B, ...]` for both; at most 3 examples are used.
      train: training mode or evaluation.
      key: of the networks' random draws, which are replaced by constants.

    Raises:
      TriglotError: if a network has no codec or gives another number of outputs.
    """
    tapes = record_both(one, other, inputs, train=train, key=key, wide=True)
    first: Difference | None = None
    causes: list[Cause] = []
    views = [View(tape, tape.arrays) for tape in tapes]
    values: dict[int, Any] = {}
    operands: dict[tuple[int, int], Any] = {}
    labels = (one.label, other.label)
    for _ in range(MAX_CAUSES):
        found = divergence.find(*views)
        if found is None:
            break
        named, found = name_causes(found, labels)
        first = first or found.described()
        causes.extend(named)
        if not found.values and not found.operands:
            break
        values.update(found.values)
        operands.update(found.operands)
        views[1] = View(tapes[1], tapes[1].replay(values, operands))
    if train and (momentum := norm_momentum(views, tapes, labels)) is not None:
        causes.append(momentum)
    if any(map(mixes_types, tapes)):
        native = record_both(one, other, inputs, train=train, key=key)
        if (arithmetic := arithmetic_difference(views, native, labels)) is not None:
            causes.append(arithmetic[0])
            first = first or arithmetic[1]
    return Explanation(first, merged(causes))


def first_divergence(
    one: Side, other: Side, inputs: PyTree, *, train: bool, key: jax.Array
) -> Difference | None:
    """Find the first operations in which two networks differ, without causes; None if they agree.

    The arguments are those of `explain`.
    """
    tapes = record_both(one, other, inputs, train=train, key=key, wide=True)
    found = divergence.find(*(View(tape, tape.arrays) for tape in tapes))
    return None if found is None else found.described()


def merged(causes: list[Cause]) -> tuple[Cause, ...]:
    """Join causes of one name and evidence, as in every layer, into one with its places."""
    places_of: dict[tuple[str, str], list[str]] = {}
    for cause in causes:
        known = places_of.setdefault((cause.name, cause.evidence), [])
        if cause.where not in known:
            known.append(cause.where)
    return tuple(
        Cause(name, where[0] + (f", and {len(where) - 1} more" if where[1:] else ""), evidence)
        for (name, evidence), where in places_of.items()
    )
