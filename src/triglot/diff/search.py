"""Search two traced programs for the operations that differ, evaluated in float64."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import jax
import numpy as np

from . import findings
from .measures.numbers import EVALUATION, STATE, TRAINING, Measurement, Setup
from .measures.subject import Subjects
from .modules import Section, compare_modules
from .networks import EqualWeights
from .pairing.pair import find_reordered, find_transposed
from .pairing.parameters import Pairing
from .programs import Explanation, explain, first_large_difference, outputs_agree, record_both
from .types import Cause, Difference, note_failure

MAX_KEPT = 2**30  # bytes of values of equal programs
Sections: TypeAlias = tuple[tuple[Section, ...], tuple[Section, ...]]


@dataclass
class Explanations:
    """Explanations of both traced programs by mode; a mode is explained when it is needed.

    The values of large networks would fill the memory. They are freed, and computed again if
    another question needs them.

    Attributes:
      subjects: returns both networks with the same weights, of which no copy is kept.
      key: key of the networks' random draws.
      order: indices of the examples to trace; None for the first ones.
      by_mode: the explanations; a mode whose programs could not be aligned is missing.
      notes: what could not be aligned or located.
    """

    subjects: Callable[[], Subjects]
    key: jax.Array
    order: np.ndarray | None = None
    by_mode: dict[str, Explanation] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of all values that are kept."""
        views = [view for each in self.by_mode.values() for view in each.views]
        return sum(getattr(array, "nbytes", 0) for view in views for array in view.arrays)

    def explain(self, mode: str, *, with_values: bool = False) -> None:
        """Explain the programs of one mode, unless that is done.

        Args:
          mode: training or evaluation.
          with_values: whether the values are read again, and must not have been freed.
        """
        previous = self.by_mode.get(mode)
        if previous is not None and not (with_values and previous.is_freed):
            return
        first, second = self.subjects()
        with note_failure(self.notes, f"the programs in {mode} could not be aligned"):
            inputs = first.inputs
            if self.order is not None:
                inputs = jax.tree.map(lambda array: array[self.order], inputs)
            explanation = explain(first, second, inputs, train=mode == TRAINING, key=self.key)
            self.by_mode[mode] = explanation
            if most := explanation.most:
                self.notes.append(f"the search stopped after {most} differences in {mode}")

    def trace_differing(self, mode: str) -> None:
        """Explain one mode again, with the examples whose outputs differ most."""
        first, second = self.subjects()
        train, differences = mode == TRAINING, np.zeros(0)
        outputs = [
            side.forward(side.variables, side.inputs, self.key, train)[0]
            for side in (first, second)
        ]
        for name, array in outputs[0].items():
            if not np.ndim(array):
                return
            distance = np.abs(np.asarray(array, np.float64) - np.asarray(outputs[1][name]))
            largest = np.nan_to_num(distance.reshape(len(distance), -1).max(1, initial=0.0))
            if differences.size and len(largest) != len(differences):
                return
            differences = np.maximum(differences, largest) if differences.size else largest
        if any(len(array) != len(differences) for array in jax.tree.leaves(first.inputs)):
            return
        self.order = np.argsort(-differences, kind="stable")
        del self.by_mode[mode]
        self.explain(mode)

    def free_large(self, mode: str) -> None:
        """Free the values of one mode if the values of all modes take too much memory."""
        if mode in self.by_mode and self.size > MAX_KEPT:
            self.by_mode[mode].free()


@dataclass(frozen=True)
class Operations:
    """Both programs, compared operation by operation.

    Attributes:
      weights: both networks at the pairing that is given.
      setup: modes and keys.
      pairing: pairing of the parameters, with the matrices that were found to be transposed, or
        the layers in the order of their use.
      differing_modes: modes in which results differ by more than rounding.
      transposed: causes for the transposed matrices, or for layers in another order.
      first_unrepaired: first difference of networks whose parameters lack counterparts, before
        missing biases and scales are set to 0 and 1.
      sections: modules of both networks; empty if they were not compared.
      explanations: explanations of both programs at `pairing`.
    """

    weights: EqualWeights
    setup: Setup
    pairing: Pairing
    differing_modes: frozenset[str]
    transposed: tuple[Cause, ...]
    first_unrepaired: Difference | None
    sections: Sections
    explanations: Explanations


def search_operations(weights: EqualWeights, setup: Setup, *, modules: bool) -> Operations:
    """Compare both networks operation by operation, and find transposed matrices.

    Args:
      weights: both networks at the pairing that is given.
      setup: modes and keys.
      modules: whether modules are compared side by side.
    """
    pairing, labels = weights.pairing, weights.networks.labels
    explanations = Explanations(partial(weights.at, pairing, repaired=True), setup.key)
    for mode in setup.modes:
        explanations.explain(mode)
    sections: Sections = ((), ())
    if modules and EVALUATION in explanations.by_mode:
        with note_failure(explanations.notes, "the modules were not compared"):
            sections = compare_modules(explanations.by_mode[EVALUATION].views)
    mode_explanations = explanations.by_mode.values()
    differing_modes = {mode for mode, each in explanations.by_mode.items() if each.diverges}
    transposed: list[Cause] = []
    if differing_modes:
        if explanations.size > MAX_KEPT and not weights.has_state:
            for each in mode_explanations:
                each.free()
        suspects = frozenset[str]().union(*(each.parameters for each in mode_explanations))
        agree = partial(_outputs_agree, weights, setup)
        pairing, causes = find_reordered(pairing, weights.networks.uses, agree, labels)
        if not causes:
            pairing, causes = find_transposed(pairing, agree, labels, suspects)
        transposed = findings.with_places(causes, weights.networks.uses)
    elif explanations.size > MAX_KEPT:
        explanations.by_mode.clear()  # these values are rarely needed again
    if transposed:
        subjects = partial(weights.at, pairing, repaired=True)
        explanations = Explanations(subjects, setup.key, notes=explanations.notes)
    first_unrepaired = None
    if not weights.pairing.is_complete:
        mode = setup.modes[0]
        first_unrepaired = _first_unrepaired(weights.subjects, mode, explanations)
        differing_modes |= {mode} if first_unrepaired is not None else set()
    return Operations(
        weights=weights,
        setup=setup,
        pairing=pairing,
        differing_modes=frozenset(differing_modes),
        transposed=tuple(transposed),
        first_unrepaired=first_unrepaired,
        sections=sections,
        explanations=explanations,
    )


def _outputs_agree(weights: EqualWeights, setup: Setup, pairing: Pairing) -> bool:
    """Return whether the outputs are equal at another pairing."""
    first, second = weights.at(pairing, repaired=True)
    return outputs_agree(
        *record_both(first, second, first.inputs, train=False, key=setup.key, wide=True)
    )


def _first_unrepaired(
    subjects: Subjects, mode: str, explanations: Explanations
) -> Difference | None:
    """Find the first difference: a parameter without a counterpart may be that itself."""
    first, second = subjects
    train, key = mode == TRAINING, explanations.key
    with note_failure(explanations.notes, "the first difference was not located"):
        tapes = record_both(first, second, first.inputs, train=train, key=key, wide=True)
        return first_large_difference(*tapes)
    return None


@dataclass(frozen=True)
class Located:
    """Where two networks differ first, and why, as their traced programs show.

    Attributes:
      modes: modes in which a difference was looked for.
      with_state: whether differences after updates of the state were looked for.
      first_difference: the first operation that differs; None if none does.
      causes: likely causes.
      resized: whether a convolution or pooling has results of another size, and so has all that
        follows.
    """

    modes: frozenset[str] = frozenset()
    with_state: bool = False
    first_difference: Difference | None = None
    causes: tuple[Cause, ...] = ()
    resized: bool = False


def locate(
    operations: Operations,
    measurements: Sequence[Measurement] | None = None,
    previous: Located = Located(),
    *,
    random_state_differs: bool = False,
) -> Located:
    """Locate the first difference and name the causes, in all modes that differ.

    Args:
      operations: both programs.
      measurements: what was measured; None if nothing has been measured yet, and any state may
        differ.
      previous: an earlier result, which is returned if it answers the same question; by default
        that of no mode.
      random_state_differs: whether networks that are random in training update their state
        differently; their state is not measured.
    """
    setup, weights, pairing = operations.setup, operations.weights, operations.pairing
    modes, state_differs = operations.differing_modes, weights.has_state
    if measurements is not None:
        modes |= findings.differing_modes(measurements)
        modes |= {TRAINING} if any(setup.is_random) else set()
        state_differs = not findings.agree(measurements, STATE)
    with_state = random_state_differs if any(setup.is_random) else state_differs
    if (previous.modes, previous.with_state) == (modes, with_state):
        return previous
    explanations = operations.explanations
    for mode in (EVALUATION, TRAINING) if with_state else sorted(modes):
        explanations.explain(mode, with_values=with_state)
        explanation = explanations.by_mode.get(mode)
        if mode in modes and explanation is not None and not explanation.diverges:
            explanations.trace_differing(mode)
    first, causes = findings.causes_of(
        explanations.by_mode,
        modes,
        with_state=with_state,
        labels=weights.networks.labels,
        finished=explanations.free_large,
    )
    if modes and not pairing.is_complete:  # repaired parameters may be the first difference
        first = operations.first_unrepaired or _first_unrepaired(
            weights.at(pairing), min(modes), explanations
        )
    sizes = len(pairing.only_one), len(pairing.only_other)
    resized = sizes[0] == sizes[1] and any(e.resized for e in explanations.by_mode.values())
    return Located(modes, with_state, first, tuple(causes), resized)
