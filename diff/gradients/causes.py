"""Name the `stop_gradient` or the custom derivative that makes two networks' gradients differ."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..measures.numbers import DOUBLE_EPS, SINGLE_TOLERANCE, distance
from ..measures.subject import Subject, double_precision
from ..programs import places
from ..types import Cause, Operation
from .rules import CUSTOM, STOP, Program, Rule

MOST_RULES = 3  # tried together, of those that change a gradient

Chosen = tuple[frozenset[Rule], frozenset[Rule]]  # of each network


class Explained(NamedTuple):
    """Why gradients differ.

    Attributes:
      causes: `not_trainable`, `stop_gradient` or `custom_gradient`.
      operations: where the first rule is, of each network; None in the one without it.
    """

    causes: list[Cause]
    operations: tuple[Operation | None, Operation | None]


def explain_gradients(
    subjects: tuple[Subject, Subject], key: jax.Array, *, train: bool
) -> Explained | None:
    """Find the fewest rules of differentiation without which both networks' gradients are equal.

    A rule is a `stop_gradient` or a function with a custom derivative. It is left out by
    substitution: the identity in place of the first, the function's own operations of the second.

    Args:
      subjects: networks with equal outputs.
      key, train: passed to both networks.

    Returns:
      None if no rules explain it.
    """
    try:
        with double_precision():
            wide = (subjects[0].in_double(), subjects[1].in_double())
            return _explain(wide, key, train, DOUBLE_EPS)
    except Exception:  # a network that fails on float64
        return _explain(subjects, key, train, SINGLE_TOLERANCE)


def _explain(
    subjects: tuple[Subject, Subject], key: jax.Array, train: bool, tolerance: float
) -> Explained | None:
    one, other = (Program(subject, key, train=train) for subject in subjects)

    def agree(chosen: Chosen) -> bool:
        pair = one.gradients(chosen[0]), other.gradients(chosen[1])
        return distance(*pair, together=True).max_rel <= tolerance

    found = next(filter(agree, _candidates((one, other), tolerance)), None)
    if found is None:
        return None
    for side, rule in ((i, rule) for i in (0, 1) for rule in found[i]):
        fewer = _minus(found, side, rule)
        found = fewer if agree(fewer) else found
    causes: list[Cause] = []
    operations: list[Operation | None] = [None, None]
    for side, program in enumerate((one, other)):
        for rule in (rule for rule in program.rules if rule in found[side]):
            operations[side] = operations[side] or rule.operation
            stopped = _stopped(program, found[side], rule) if rule.kind == STOP else []
            causes.append(_cause(rule, stopped, subjects[side]))
    return Explained(causes, (operations[0], operations[1]))


def _candidates(programs: tuple[Program, Program], tolerance: float) -> Iterator[Chosen]:
    """Yield sets of rules, small ones of those that change a gradient first, then all of a kind."""
    effective = [
        (side, rule)
        for side, program in enumerate(programs)
        for rule in program.rules
        if _changes(program, rule, tolerance)
    ]
    for size in range(1, MOST_RULES + 1):
        for chosen in itertools.combinations(effective, size):
            yield _by_side(chosen)
    # One `stop_gradient` behind another has no effect of its own.
    everything = [(side, rule) for side, program in enumerate(programs) for rule in program.rules]
    for kinds in ((STOP,), (CUSTOM,), (STOP, CUSTOM)):
        yield _by_side([each for each in everything if each[1].kind in kinds])


def _changes(program: Program, rule: Rule, tolerance: float) -> bool:
    pair = program.gradients(), program.gradients(frozenset({rule}))
    return distance(*pair, together=True).max_rel > tolerance


def _by_side(chosen: Sequence[tuple[int, Rule]]) -> Chosen:
    one, other = (frozenset(rule for side, rule in chosen if side == i) for i in (0, 1))
    return one, other


def _minus(chosen: Chosen, side: int, rule: Rule) -> Chosen:
    one, other = (each - {rule} if i == side else each for i, each in enumerate(chosen))
    return one, other


def _stopped(program: Program, chosen: frozenset[Rule], rule: Rule) -> list[str]:
    """List the parameters that get no gradient at all because of one rule."""
    without, with_it = program.gradients(chosen), program.gradients(chosen - {rule})
    return [name for name in without if _any(without[name]) and not _any(with_it[name])]


def _any(array: Any) -> bool:
    return bool(np.any(np.asarray(array) != 0))


def _cause(rule: Rule, stopped: list[str], subject: Subject) -> Cause:
    label = subject.label
    where = f"{label}: {places.shown(rule.operation)}"
    if stopped:
        names = ", ".join(subject.names[name] for name in stopped[:3])
        more = f" and {len(stopped) - 3} more" if stopped[3:] else ""
        evidence = (
            f"{names}{more} of {label} get no gradient at all behind a stop_gradient; without it, "
            "both networks have equal gradients"
        )
        return Cause("not_trainable", where, evidence)
    if rule.kind == STOP:
        evidence = "a stop_gradient; without it, both networks have equal gradients"
        return Cause("stop_gradient", where, evidence)
    evidence = (
        f"{rule.name} has a derivative of its own; with that of its operations, both networks have "
        "equal gradients"
    )
    return Cause("custom_gradient", where, evidence)
