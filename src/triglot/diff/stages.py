"""Stages of a comparison: each function takes earlier results and returns one named result.

The stage that searches both traced programs for operations that differ is in `search`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..core.network import num_params
from . import findings
from .gradients.causes import backward, explain_gradients, first_backward_difference, nan_causes
from .measures import distributions
from .measures.distributions import InitializerRow, Randomness
from .measures.effort import operations
from .measures.numbers import (
    EVALUATION,
    GRADIENTS,
    OUTPUTS,
    SINGLE_TOLERANCE,
    STATE,
    TRAINING,
    Measured,
    Quantity,
    Setup,
)
from .measures.subject import Subjects
from .networks import FrozenParameters, Networks
from .pairing.leftovers import find_frozen, find_shared, leftover_causes
from .pairing.pair import layout_cause, pair_parameters
from .pairing.parameters import Pairing, display_names
from .pairing.values import weight_causes
from .programs import conditioning, first_bit_difference, precision_cause, record_both
from .search import Operations
from .types import Cause, Difference, join_names, note_failure

LOW_FACTOR = 4  # times the eps of bfloat16 or float16: the rounding of gradients
ROUNDED = (OUTPUTS, STATE, GRADIENTS)  # quantities in which rounding is weighed


@dataclass(frozen=True)
class PairedParameters:
    """The parameters of both networks, paired as far as possible.

    Attributes:
      pairing: all parameters, and the pairs.
      frozen: parameters of each network that the other holds outside its parameters.
      causes: reasons why parameters have no counterpart, or another layout.
      num_params: number of scalars of each network.
    """

    pairing: Pairing = Pairing({}, {}, (), "not yet")
    frozen: FrozenParameters = ([], [])
    causes: tuple[Cause, ...] = ()
    num_params: tuple[int, int] = (0, 0)


class Finding(NamedTuple):
    """Where two networks differ in one respect, and why.

    Attributes:
      first_difference: the first operation of each that differs; None if there is none.
      causes: the causes; none if the difference does not matter.
      notes: what was measured, and what could not be located.
    """

    first_difference: Difference | None = None
    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()


def pair(networks: Networks) -> PairedParameters:
    """Pair the parameters, and explain those without a counterpart."""
    first, second = networks.initial
    uses, labels = networks.uses, networks.labels
    pairing = pair_parameters(networks.networks, uses, networks.options.mapping)
    layouts = [layout_cause(pairing, each, labels) for each in pairing.pairs if each.transposed]
    pairing, shared = find_shared(pairing, uses, first, second)
    frozen = (
        find_frozen(pairing.only_one, first, second),
        find_frozen(pairing.only_other, second, first),
    )
    frozen_causes = [each.cause for side in frozen for each in side]
    explained = {each.name for side in frozen for each in side}
    leftovers = leftover_causes(pairing, explained, first, second, uses)
    causes = findings.with_places([*layouts, *shared, *frozen_causes, *leftovers], uses)
    sizes = num_params(first.variables.params), num_params(second.variables.params)
    return PairedParameters(pairing, frozen, tuple(causes), sizes)


def compare_checkpoints(networks: Networks, pairing: Pairing) -> tuple[Cause, ...]:
    """Name the paired parameters, and the running statistics, whose trained values differ."""
    first, second = networks.initial
    variables = first.variables, second.variables
    return tuple(weight_causes(pairing, networks.networks, variables, networks.labels))


def choose_setup(networks: Networks, subjects: Subjects) -> Setup:
    """Choose the modes in which both networks are measured, and how much is measured."""
    key = networks.keys["training"]
    first, second = (subject.is_random(key) for subject in subjects)
    is_random = first, second
    modes, learning_mode = (EVALUATION, TRAINING), TRAINING
    if any(is_random) or all(subject.same_program(key) for subject in subjects):
        modes, learning_mode = (EVALUATION,), EVALUATION
    learns = all(jax.tree.leaves(subject.variables.params) for subject in subjects)
    return Setup(key, modes, learning_mode, learns, networks.effort, is_random)


def compare_randomness(networks: Networks, subjects: Subjects, setup: Setup) -> Randomness:
    """Test outputs that are random in training; they are equal if no network draws numbers."""
    if not any(setup.is_random):
        return Randomness()
    key = networks.keys["random"]
    work = max(operations(subject.trace(setup.key, True)) for subject in subjects)
    return distributions.compare_randomness(subjects, setup.is_random, key, work)


def compare_gradients(
    networks: Networks, operations: Operations, setup: Setup, measured: Measured
) -> Finding:
    """Locate gradients that differ although all outputs are equal, and name the causes.

    The causes are parameters that get no gradient, and rules of differentiation that differ; the
    notes have unused parameters too.
    """
    subjects, pairing = operations.weights.subjects, operations.weights.pairing
    measurements, labels = measured.measurements, networks.labels
    notes: list[str] = []
    first: Difference | None = None
    causes: list[Cause] = []
    if findings.agree(measurements, OUTPUTS) and not findings.agree(measurements, GRADIENTS):
        train = setup.learning_mode == TRAINING
        native = next(e.native for e in measurements if e.quantity.name == GRADIENTS)
        with note_failure(notes, "the gradients could not be aligned"):
            explained = explain_gradients(subjects, setup.key, train=train)
            if explained is None:
                causes = nan_causes(subjects, measured.gradients, setup.key, train=train)
                first = first_backward_difference(*subjects, train=train, key=setup.key)
            else:
                causes = explained.causes
                first = Difference(
                    one=explained.operations[0],
                    other=explained.operations[1],
                    max_abs=native.max_abs,
                    max_rel=native.max_rel,
                )
    elif not operations.differing_modes and measured.gradients and _is_low(measured.dtypes):
        with note_failure(notes, "the gradients could not be aligned"):
            first, causes = _low_gradients(operations, measured)
    if causes:
        return Finding(first, tuple(causes), tuple(notes))
    causes = findings.gradient_causes(pairing, measured.gradients, labels)
    if causes and operations.differing_modes:  # other parameters may be unused, for that reason
        unused = [
            [name for name, outputs in use.reaches.items() if not outputs]
            for use in networks.uses()
        ]
        sides = pairing.one, pairing.other
        for names, label, side in zip(unused, labels, sides, strict=True):
            if names:
                names_of_unused = join_names(display_names(side, names), most=4)
                notes.append(f"unused parameters of {label}: {names_of_unused}")
        causes = findings.gradient_causes(
            pairing, measured.gradients, labels, (unused[0], unused[1])
        )
    return Finding(first, tuple(causes), tuple(notes))


def _is_low(dtypes: tuple[str, str]) -> bool:
    """Return whether a network computes in bfloat16 or float16."""
    return any(jnp.finfo(dtype or "float64").bits < 32 for dtype in dtypes)


def _low_gradients(
    operations: Operations, measured: Measured
) -> tuple[Difference | None, list[Cause]]:
    """Compare gradients in float64 that are all rounding in the networks' own types."""
    subjects, setup = operations.weights.subjects, operations.setup
    train = setup.learning_mode == TRAINING
    eps = max(float(jnp.finfo(dtype or "float64").eps) for dtype in measured.dtypes)
    first = first_backward_difference(*subjects, train=train, key=setup.key, tolerance=eps)
    if first is None:
        return None, []
    explained = explain_gradients(subjects, setup.key, train=train, tolerance=LOW_FACTOR * eps)
    return first, [] if explained is None else explained.causes


def compare_precision(subjects: Subjects, setup: Setup, labels: tuple[str, str]) -> Cause | None:
    """Name a precision that only one program states for its products."""
    return precision_cause([subject.trace(setup.key, True) for subject in subjects], labels)


def weigh_rounding(operations: Operations, measured: Measured, max_rounding: float) -> Finding:
    """Find why outputs or gradients differ in the networks' own types, though not in float64.

    Programs of one function round alike in bfloat16 and float16 if they round the same values,
    whatever the order of their sums: each is compared with itself in float64.

    Args:
      operations: both programs, compared in float64.
      measured: what was measured in the networks' own types.
      max_rounding: the largest relative difference that does not matter.

    Returns:
      The cause, `dtype` or `conditioning`; none if rounding does not matter. A note says by how
      much results differ.
    """
    weighed = [each for each in measured.measurements if each.quantity.name in ROUNDED]
    worst = max(weighed, key=lambda each: each.native.max_rel, default=None)
    if worst is None or worst.native.max_rel <= SINGLE_TOLERANCE:
        return Finding()
    name, mode, _ = worst.quantity
    mode = TRAINING if name == STATE else mode
    size = f"rounding changes {name} in {mode} by {worst.native.max_rel:.2g} of the largest"
    low = _is_low(measured.dtypes)
    if worst.native.max_rel <= max_rounding:
        return Finding(notes=(f"{size}: no more than {max_rounding:g}",))
    notes: list[str] = []
    located: tuple[Cause, Difference] | None = None
    with note_failure(notes, f"{size}; the operation was not located"):
        located = _dtype_difference(operations, mode) if low else None
        located = located or _conditioning(operations, worst.quantity, mode, low=low)
    if located is not None:
        return Finding(located[1], (located[0],))
    if low:
        dtype = min(measured.dtypes, key=lambda each: jnp.finfo(each or "float64").bits)
        ordinary = f"{size}: ordinary in {dtype}, where both round equal values"
        return Finding(notes=(*notes, ordinary))
    evidence = f"{size}, and vanishes in float64"
    return Finding(None, (Cause("conditioning", name, evidence),), tuple(notes))


def _dtype_difference(operations: Operations, mode: str) -> tuple[Cause, Difference] | None:
    """Find an equal value that only one program computes in a type."""
    explanations = operations.explanations
    explanations.explain(mode)
    explanation = explanations.by_mode.get(mode)
    if explanation is None or explanation.first_difference is None:
        return None
    cause = next((each for each in explanation.causes if each.name == "dtype"), None)
    return None if cause is None else (cause, explanation.first_difference)


def _conditioning(
    operations: Operations, quantity: Quantity, mode: str, *, low: bool
) -> tuple[Cause, Difference] | None:
    """Find the operation at which one program loses digits, in outputs or in gradients."""
    sides = operations.weights.subjects
    if quantity.name == GRADIENTS:
        sides = backward(sides[0]), backward(sides[1])
    train = mode == TRAINING
    wide, native = (
        record_both(
            *sides, sides[0].inputs, train=train, key=operations.setup.key, wide=wide, exact=True
        )
        for wide in (True, False)
    )
    return conditioning(wide, native, operations.weights.networks.labels, low=low)


def locate_rounding(subjects: Subjects, setup: Setup, measured: Measured) -> Finding:
    """Find the first operation whose results differ in bits, in the first batch with any."""
    differing = [
        each.quantity
        for each in measured.measurements
        if each.quantity.name == OUTPUTS and not each.native.identical
    ]
    if not differing:
        return Finding()
    inputs, train = subjects[0].batches[differing[0].batch], differing[0].mode == TRAINING
    notes: list[str] = []
    first = None
    with note_failure(notes, "the first rounding was not located"):
        tapes = record_both(*subjects, inputs, train=train, key=setup.key, exact=True)
        first = first_bit_difference(*tapes, compiled=setup.effort.everything)
    return Finding(first, notes=tuple(notes))


class Initializers(NamedTuple):
    """What both initializers draw.

    Attributes:
      rows: one row per pair of parameters; empty if a network has its weights already.
      num_keys: number of keys over which they were compared.
      causes: `initializer`, where distributions differ.
      notes: why they were not compared.
    """

    rows: tuple[InitializerRow, ...] = ()
    num_keys: int = 0
    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()


def compare_initializers(networks: Networks, pairing: Pairing) -> Initializers:
    """Compare the distributions of both networks' initial parameters over keys."""
    rows = distributions.compare_initializers(*networks.drawings, pairing)
    trained = [network.name for network in networks.networks if not network.random_start]
    notes = (
        (f"initializers were not compared: {trained[0]!r} has its weights already",)
        if trained and pairing.pairs
        else ()
    )
    causes = distributions.initializer_causes(rows, networks.num_keys, networks.labels)
    return Initializers(tuple(rows), networks.num_keys, causes, notes)
