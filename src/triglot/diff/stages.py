"""Stages of a comparison: each function takes what is known and returns one named result.

The stage that searches both traced programs for operations that differ is in `search`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax

from ..core.network import num_params
from . import findings
from .gradients.causes import explain_gradients, first_backward_difference
from .measures import distributions
from .measures.distributions import InitializerRow, Randomness
from .measures.numbers import EVALUATION, GRADIENTS, OUTPUTS, TRAINING, Measured, Setup
from .measures.subject import Subjects
from .networks import FrozenParameters, Networks
from .pairing.leftovers import find_frozen, find_shared, leftover_causes
from .pairing.pair import layout_cause, pair_parameters
from .pairing.parameters import Pairing
from .pairing.values import weight_causes
from .programs import first_bit_difference, precision_cause, record_both
from .search import Operations
from .types import Cause, Difference, listed, noted


@dataclass(frozen=True)
class PairedParameters:
    """The parameters of both networks, paired as far as possible.

    Attributes:
      pairing: all parameters, and the pairs.
      frozen: parameters of each network that the other holds outside its parameters.
      causes: reasons why parameters have no counterpart, or another layout.
      num_params: number of scalars of each network.
    """

    pairing: Pairing
    frozen: FrozenParameters
    causes: tuple[Cause, ...]
    num_params: tuple[int, int]


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


def compare_randomness(networks: Networks, subjects: Subjects, setup: Setup) -> Randomness | None:
    """Test outputs that are random in training; None if neither network draws random numbers."""
    if not any(setup.is_random):
        return None
    return distributions.compare_randomness(subjects, setup.is_random, networks.keys["random"])


class Gradients(NamedTuple):
    """What differs in the gradients alone.

    Attributes:
      first_difference: first operation of the backward pass that differs, where all outputs are
        equal; None if there is none.
      causes: parameters that get no gradient, and rules of differentiation that differ.
      notes: what could not be located, and unused parameters.
    """

    first_difference: Difference | None
    causes: tuple[Cause, ...]
    notes: tuple[str, ...]


def compare_gradients(
    networks: Networks, operations: Operations, setup: Setup, measured: Measured
) -> Gradients:
    """Locate gradients that differ although all outputs are equal, and name the causes."""
    subjects, pairing = operations.weights.subjects, operations.weights.pairing
    measurements, labels = measured.measurements, networks.labels
    notes: list[str] = []
    first: Difference | None = None
    causes: list[Cause] = []
    if findings.agree(measurements, OUTPUTS) and not findings.agree(measurements, GRADIENTS):
        train = setup.learning_mode == TRAINING
        native = next(e.native for e in measurements if e.quantity.name == GRADIENTS)
        with noted(notes, "the gradients could not be aligned"):
            explained = explain_gradients(subjects, setup.key, train=train)
            if explained is None:
                first = first_backward_difference(*subjects, train=train, key=setup.key)
            else:
                causes = explained.causes
                first = Difference(
                    one=explained.operations[0],
                    other=explained.operations[1],
                    max_abs=native.max_abs,
                    max_rel=native.max_rel,
                )
    if causes:
        return Gradients(first, tuple(causes), tuple(notes))
    causes = findings.gradient_causes(pairing, measured.gradients, labels)
    if causes and operations.differing_modes:  # other parameters may be unused, for that reason
        unused = [
            [name for name, outputs in use.reaches.items() if not outputs]
            for use in networks.uses()
        ]
        for names, label in zip(unused, labels, strict=True):
            if names:
                notes.append(f"unused parameters of {label}: {listed(names, most=4)}")
        causes = findings.gradient_causes(
            pairing, measured.gradients, labels, (unused[0], unused[1])
        )
    return Gradients(first, tuple(causes), tuple(notes))


def compare_precision(subjects: Subjects, setup: Setup, labels: tuple[str, str]) -> Cause | None:
    """Name a precision that only one program states for its products."""
    return precision_cause([subject.traced(setup.key, True) for subject in subjects], labels)


class Rounding(NamedTuple):
    """Where two equivalent networks round differently.

    Attributes:
      first: first operation whose results differ in bits; None if outputs are identical.
      notes: why it could not be located.
    """

    first: Difference | None
    notes: tuple[str, ...]


def locate_rounding(subjects: Subjects, setup: Setup, measured: Measured) -> Rounding:
    """Find the first operation whose results differ in bits, in the first batch with any."""
    differing = [
        each.quantity
        for each in measured.measurements
        if each.quantity.name == OUTPUTS and not each.native.identical
    ]
    if not differing:
        return Rounding(None, ())
    inputs, train = subjects[0].batches[differing[0].batch], differing[0].mode == TRAINING
    notes: list[str] = []
    first = None
    with noted(notes, "the first rounding was not located"):
        tapes = record_both(*subjects, inputs, train=train, key=setup.key, exact=True)
        first = first_bit_difference(*tapes, compiled=setup.effort.everything)
    return Rounding(first, tuple(notes))


class Initializers(NamedTuple):
    """What both initializers draw.

    Attributes:
      rows: one row per pair of parameters; empty if a network has its weights already.
      num_keys: number of keys over which they were compared.
      causes: `initializer`, where distributions differ.
      notes: why they were not compared.
    """

    rows: tuple[InitializerRow, ...]
    num_keys: int
    causes: tuple[Cause, ...]
    notes: tuple[str, ...]


def compare_initializers(networks: Networks, pairing: Pairing) -> Initializers:
    """Compare the distributions of both networks' initial parameters over keys."""
    rows = distributions.compare_initializers(*networks.drawings, pairing)
    trained = [network.name for network in networks.networks if not network.random_start]
    notes = (
        (f"initializers were not compared: {trained[0]!r} has its weights already",)
        if trained
        else ()
    )
    causes = distributions.initializer_causes(rows, networks.num_keys)
    return Initializers(tuple(rows), networks.num_keys, causes, notes)
