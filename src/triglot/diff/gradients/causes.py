"""Why the gradients of two networks with equal outputs differ: the rule, or the operation."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...core.network import Variables
from ...core.types import PyTree
from ..measures.numbers import DOUBLE_EPS, SINGLE_TOLERANCE, distance
from ..measures.subject import Arrays, Subject, Subjects, double_precision
from ..programs import first_large_difference, places, record_both
from ..programs.tape import Step, Tape
from ..programs.values import TOLERANCE
from ..types import Cause, Difference, Operation, codec_of, join_names
from .rules import CUSTOM, STOP, Program, Rule

MOST_RULES = 3  # tried together, of those that change a gradient


class Explained(NamedTuple):
    """Why gradients differ.

    Attributes:
      causes: `not_trainable`, `stop_gradient` or `custom_gradient`.
      operations: the place of each network's first rule; None for a network without one.
    """

    causes: list[Cause]
    operations: tuple[Operation | None, Operation | None]


def explain_gradients(
    subjects: tuple[Subject, Subject],
    key: jax.Array,
    *,
    train: bool,
    tolerance: float | None = None,
) -> Explained | None:
    """Find the fewest rules of differentiation without which both networks' gradients are equal.

    A rule is a `stop_gradient` or a function with a custom derivative. It is left out by
    substitution: the identity in place of the first, the function's own operations of the second.

    Args:
      subjects: networks with equal outputs.
      key, train: the key and the mode of both networks.
      tolerance: rounding of the gradients of networks that compute in bfloat16 or float16; None to
        compare in float64.

    Returns:
      None if no rules explain it.
    """
    if tolerance is not None:
        return _explain(subjects, key, train, tolerance)
    try:
        with double_precision():
            wide = (subjects[0].in_double(), subjects[1].in_double())
            return _explain(wide, key, train, DOUBLE_EPS)
    except Exception:  # a network that fails on float64
        return _explain(subjects, key, train, SINGLE_TOLERANCE)


def _explain(
    subjects: tuple[Subject, Subject], key: jax.Array, train: bool, tolerance: float
) -> Explained | None:
    programs = [Program(subject, key, train=train) for subject in subjects]

    def agree(without: frozenset[Rule]) -> bool:
        first_gradients, second_gradients = (program.gradients(without) for program in programs)
        return distance(first_gradients, second_gradients, together=True).max_rel <= tolerance

    chosen = next(filter(agree, _candidates(programs, tolerance)), None)
    if chosen is None:
        return None
    for rule in (rule for program in programs for rule in program.rules):
        chosen = chosen - {rule} if rule in chosen and agree(chosen - {rule}) else chosen
    causes: list[Cause] = []
    first_operations: list[Operation | None] = []
    for program, subject in zip(programs, subjects, strict=True):
        rules = [rule for rule in program.rules if rule in chosen]
        first_operations.append(rules[0].operation if rules else None)
        for rule in rules:
            stopped = _stopped_parameters(program, chosen, rule) if rule.kind == STOP else []
            causes.append(_cause(rule, stopped, subject))
    return Explained(causes, (first_operations[0], first_operations[1]))


def _candidates(programs: Sequence[Program], tolerance: float) -> Iterator[frozenset[Rule]]:
    """Yield sets of rules, small ones of those that change a gradient first, then all of a kind."""
    rules = [(program, rule) for program in programs for rule in program.rules]
    effective = [rule for program, rule in rules if _changes(program, rule, tolerance)]
    for size in range(1, MOST_RULES + 1):
        yield from map(frozenset, itertools.combinations(effective, size))
    # One `stop_gradient` behind another has no effect of its own.
    for kinds in ((STOP,), (CUSTOM,), (STOP, CUSTOM)):
        yield frozenset(rule for _, rule in rules if rule.kind in kinds)


def _changes(program: Program, rule: Rule, tolerance: float) -> bool:
    pair = program.gradients(), program.gradients(frozenset({rule}))
    return distance(*pair, together=True).max_rel > tolerance


def _stopped_parameters(program: Program, chosen: frozenset[Rule], rule: Rule) -> list[str]:
    """List the parameters that get no gradient at all because of one rule."""
    without_rule, with_rule = program.gradients(chosen), program.gradients(chosen - {rule})
    return [
        name for name in without_rule if np.any(without_rule[name]) and not np.any(with_rule[name])
    ]


def _cause(rule: Rule, stopped: list[str], subject: Subject) -> Cause:
    label = subject.label
    where = f"{label}: {places.describe(rule.operation)}"
    if stopped:
        display_names = codec_of(subject.network).display_names
        names = join_names(display_names[subject.names[name]] for name in stopped)
        evidence = (
            f"{names} of {label} get no gradient because of a stop_gradient; without it, "
            "both networks have equal gradients"
        )
        return Cause("not_trainable", where, evidence)
    if rule.kind == STOP:
        evidence = "a stop_gradient; without it, both networks have equal gradients"
        return Cause("stop_gradient", where, evidence)
    evidence = (
        f"{rule.name} has a custom derivative; with that of its operations, both networks have "
        "equal gradients"
    )
    return Cause("custom_gradient", where, evidence)


SINGULAR = ("div", "log", "pow", "rsqrt", "sqrt")  # whose derivative is infinite at 0


def nan_causes(
    subjects: Subjects,
    gradients: Sequence[Mapping[str, np.ndarray]],
    key: jax.Array,
    *,
    train: bool,
) -> list[Cause]:
    """Name the operation at 0 that makes the gradients of one network NaN or infinite.

    Args:
      subjects: networks with equal outputs.
      gradients: the gradients of both, by shared name.
      key, train: the key and the mode of both networks.
    """
    finite = [all(np.all(np.isfinite(array)) for array in arrays.values()) for arrays in gradients]
    if len(finite) != 2 or finite[0] == finite[1]:
        return []
    side = int(finite[0])
    tapes = record_both(*subjects, subjects[0].inputs, train=train, key=key, wide=True, exact=True)
    tape = tapes[side]
    label, other_label = subjects[side].label, subjects[1 - side].label
    for step in tape.steps:
        if (problem := _singularity(tape, step)) is None:
            continue
        place = places.describe(places.operation(tape, step.results[0]))
        evidence = (
            f"the gradients are not finite in {label}, where {problem}; they are finite in "
            f"{other_label}"
        )
        return [Cause("nan_gradient", f"{label}: {place}", evidence)]
    return []


def _singularity(tape: Tape, step: Step) -> str | None:
    """Describe where an operation has no finite derivative; None if it has one."""
    if step.name not in SINGULAR:
        return None
    operand = step.operands[-1 if step.name == "div" else 0]
    array = np.asarray(tape.arrays[operand])
    if tape.is_constant(operand):
        return None
    if not np.all(array):
        return f"{step.name} of 0 has an infinite derivative"
    if np.any(array < 0) and np.any(np.isnan(np.asarray(tape.arrays[step.results[0]]))):
        return f"{step.name} of a negative number is NaN, even where its result is not used"
    return None


def first_backward_difference(
    first: Subject, second: Subject, *, train: bool, key: jax.Array, tolerance: float = TOLERANCE
) -> Difference | None:
    """Align the traced gradients of two networks, and find the first operation that differs.

    The loss is a sum of the outputs with fixed weights, so that its own derivative is no operation.

    Args:
      first, second: networks with a codec, and their weights; at most 3 examples are used.
      train: training mode or evaluation.
      key: the key of the networks' random draws.
      tolerance: the largest difference of equal values, relative to the largest of an array.

    Returns:
      None if the gradients are equal.
    """
    sides = backward(first), backward(second)
    tapes = record_both(*sides, first.inputs, train=train, key=key, wide=True)
    return first_large_difference(*tapes, tolerance=tolerance)


def backward(side: Subject) -> Subject:
    """Return a network whose outputs are the gradients of shared parameters by name."""
    network = side.network

    def apply(variables: Variables, inputs: PyTree, **options: PyTree) -> tuple[Arrays, PyTree]:
        def loss(params: PyTree) -> tuple[jax.Array, PyTree]:
            at_params = Variables(params=params, state=variables.state)
            outputs, state = network.apply(at_params, inputs, **options)
            leaves = jax.tree.leaves(outputs)
            return _weighted_sum([leaves[index] for _, index in side.outputs]), state

        (_, state), gradients = network.value_and_grad(loss)(variables.params)
        return side.named_gradients(gradients), state

    return replace(side, network=replace(network, apply=apply))


def _weighted_sum(outputs: list[jax.Array]) -> jax.Array:
    total = jnp.zeros(())
    for leaf in outputs:
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            weights = jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32)).reshape(leaf.shape)
            total = total + jnp.sum(leaf.astype(jnp.float32) * weights)
    return total
