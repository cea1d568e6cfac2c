"""Compare two networks: parameters, functions at equal weights, gradients, and initializers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from ..backends.calling import Inputs
from ..core.errors import TriglotError
from ..core.network import num_params
from ..core.specs import Spec
from . import findings
from .gradients.causes import explain_gradients, first_backward_difference
from .loading import load_network
from .measures import distributions, numbers
from .measures.distributions import Randomness
from .measures.effort import LEVELS, QUICK, STANDARD, operations
from .measures.numbers import EVALUATION, GRADIENTS, OUTPUTS, STATE, TRAINING, Measurement, Setup
from .measures.subject import Subject
from .modules import Section, compare_modules
from .networks import FrozenOnes, Networks
from .pairing.leftovers import find_frozen, find_shared, leftover_causes
from .pairing.pair import find_transposed, layout_cause, pair_parameters
from .pairing.parameters import Pairing
from .pairing.values import weight_causes
from .programs import (
    Explanation,
    explain,
    first_bit_difference,
    first_large_difference,
    outputs_agree,
    precision_cause,
    record_both,
)
from .report import DIFFERENT, EQUIVALENT, IDENTICAL, Report
from .types import Cause, Difference, listed, noted

MAX_KEPT = 2**30  # bytes of values of equal programs
UNPAIRED = ("missing_bias", "unpaired_parameter")  # as the traced programs show them


def diff_networks(
    one: Any,
    other: Any,
    inputs: Inputs,
    *,
    mapping: Mapping[str, str] | None = None,
    seed: int = 0,
    action_spec: Spec | None = None,
    names: tuple[str | None, str | None] = (None, None),
    level: str = STANDARD,
    modules: bool = False,
    compare_weights: bool = False,
) -> Report:
    """Compare two networks at equal weights, and name the likely causes of a difference.

    The weights are those of a module that was given already made, else the first network's initial
    ones. Arrays that an initializer fills with a constant, such as biases, get noise, so that a
    missing one shows. `triglot.diff.measures.numbers` says what counts as rounding.

    Args:
      one, other: what `triglot.diff.loading.load_network` accepts: a Haiku function, a Linen
        module, an NNX or Equinox module, class or constructor, or a `Network`.
      inputs: the spec of one input, such as `Box((4,))`; a tuple of specs for several.
      mapping: canonical names or prefixes of the first network to those of the second; None pairs
        parameters by name, or guesses by shape and by order of use.
      seed: of weights, inputs and targets.
      action_spec: passed to a function of obs_spec and action_spec.
      names: of the networks, in the report.
      level: `quick` compares the functions only, not gradients, steps and initializers; `standard`
        measures of large networks what decides; `thorough` measures everything of any size.
      modules: whether modules are compared side by side, which is done of small networks anyway.
      compare_weights: whether both networks have trained weights, which are compared too.

    Raises:
      TriglotError: if a network fails on such inputs, their outputs have different shapes, no
        parameter can be paired, or the level is unknown.

    >>> import equinox as eqx, haiku as hk
    >>> from triglot.core.specs import Box
    >>> def mlp(x):
    ...     return hk.nets.MLP([8, 2])(x)
    >>> def layers(key):
    ...     return eqx.nn.MLP(4, 2, 8, 1, key=key)
    >>> diff_networks(mlp, layers, Box((4,))).verdict
    'equivalent'
    """
    how: Any = {"mapping": mapping, "seed": seed, "action_spec": action_spec, "names": names}
    how |= {"compare_weights": compare_weights, "modules": modules}
    return Comparison(one, other, inputs, level=level, **how).run()


class Comparison:
    """One comparison, in steps.

    Attributes:
      known: the report of what was found so far.
    """

    def __init__(
        self,
        one: Any,
        other: Any,
        inputs: Inputs,
        *,
        mapping: Mapping[str, str] | None = None,
        seed: int = 0,
        action_spec: Spec | None = None,
        names: tuple[str | None, str | None] = (None, None),
        level: str = STANDARD,
        modules: bool = False,
        compare_weights: bool = False,
        begin: Callable[[str], None] = lambda what: None,
        tell: Callable[[str], None] = lambda found: None,
    ) -> None:
        """Take the arguments of `diff_networks`.

        Args:
          begin: called with what begins.
          tell: called with what was found, one line each.
        """
        if level not in LEVELS:
            raise TriglotError(f"level {level!r} is unknown; expected one of {', '.join(LEVELS)}.")
        first, second = (
            load_network(made, inputs, name=name, action_spec=action_spec)
            for made, name in zip((one, other), names, strict=True)
        )
        self.sides = Networks((first, second), inputs, mapping, seed, level)
        self.labels = self.sides.labels
        self.known = Report(labels=self.labels)
        self._begin, self._tell, self._compare_weights = begin, tell, compare_weights
        self._modules = modules
        self._notes: list[str] = []

    def run(self) -> Report:
        """Compare the networks."""
        self._begin("initializing both networks")
        one, other = self.sides.starts
        sizes = num_params(one.variables.params), num_params(other.variables.params)
        pairing, frozen, causes = self._pair()
        self._know(num_params=sizes, pairing=pairing, causes=tuple(causes))
        self._tell(f"{len(pairing.pairs)} pairs of parameters, {pairing.source}")
        weights: list[Cause] = []
        if self._compare_weights:
            held = one.variables, other.variables
            weights = weight_causes(pairing, self.sides.networks, held, self.labels)
            self._tell(f"{len(weights)} parameters of the checkpoints differ")
        self._begin("comparing operation by operation")
        subjects = self.sides.subjects(pairing, frozen)
        setup, random = self._setup(subjects)
        dtypes_apart = findings.dtype_causes(pairing, subjects, setup)
        causes += dtypes_apart
        search = _Search(self.sides, setup, self._notes, pairing, frozen, subjects)
        search.compare(modules=self._modules or setup.effort.everything)
        self._know(parts=search.parts)
        if search.apart:
            first, found = search.explained(
                with_state=(random is None or not random.same_state) and _has_state(subjects)
            )
            known = findings.without_reordered([*causes, *search.turned, *found])
            self._know(verdict=DIFFERENT, first_difference=first, causes=tuple(known))
            self._tell(findings.told(first, self.known.causes))
            setup = replace(setup, effort=setup.effort.of_different())
        else:
            self._tell("operation by operation, the functions are equal up to rounding")
        measured = numbers.measure(
            *subjects, setup, same_dtypes=not dtypes_apart, begin=self._begin
        )
        measurements = measured.measurements
        self._notes += measured.notes
        located, found = self._explain_gradients(subjects, setup, measurements)
        causes += found or self._gradient_causes(pairing, measured.gradients, search)
        causes += search.turned
        verdict = DIFFERENT if search.apart else findings.verdict_of(measurements)
        if len(setup.modes) == 1 and random is None:
            self._notes.append("training and evaluation are the same program, measured once")
        first = None
        if random is not None:
            self._notes.append(random.note)
            causes += [] if search.apart else random.causes  # outputs that differ anyway
            verdict = EQUIVALENT if verdict == IDENTICAL and not random.identical else verdict
            verdict = verdict if random.same and random.same_state else DIFFERENT
        if verdict == DIFFERENT or (random is not None and not random.identical):
            search.apart |= findings.modes_apart(measurements)
            if random is not None:
                search.apart.add(TRAINING)
            first, explained = search.explained(
                with_state=(
                    not findings.agree(measurements, STATE)
                    if random is None
                    else not random.same_state
                )
            )
            if verdict == DIFFERENT:
                if search.resized:  # the layers behind have other sizes, and are no others
                    causes = [cause for cause in causes if cause.name != "architecture"]
                if pairing.only_one or pairing.only_other:  # named above, with what they mean
                    explained = [cause for cause in explained if cause.name not in UNPAIRED]
                computed = findings.computation_causes(measured.dtypes, self.labels)
                causes = findings.merged(findings.merged(causes, explained), computed)
                causes = findings.without_reordered(causes)
                causes = causes or [findings.unexplained(measurements)]
                first = first or located or findings.first_measured(measurements)
            elif dropout := [cause for cause in explained if cause.name == "dropout"]:
                verdict, causes = DIFFERENT, findings.merged(causes, dropout)
            else:
                first = None
        if "precision" not in {cause.name for cause in causes}:
            programs = [side.traced(setup.key, True) for side in subjects]
            precision = precision_cause(programs, self.labels)
            causes = [*causes, *filter(None, [precision])]
        verdict = DIFFERENT if weights else verdict
        self._know(
            verdict=verdict,
            first_difference=first,
            causes=(*weights, *causes),
            pairing=search.pairing,
            measurements=tuple(measurements),
        )
        self._tell(f"{verdict}, as measured")
        if verdict == EQUIVALENT and setup.effort.level != QUICK:
            self._know(first_rounding=self._rounding(subjects, setup, measurements))
        self._compare_initializers(search.pairing)
        if left_out := self.sides.effort.left_out:
            self._notes.append(f"left out at level {self.sides.level!r}: {left_out}")
        self._know()
        return self.known

    def _know(self, **found: Any) -> None:
        self.known = replace(self.known, notes=tuple(self._notes), **found)

    def _pair(self) -> tuple[Pairing, FrozenOnes, list[Cause]]:
        """Pair the parameters, and explain those without a counterpart."""
        one, other = self.sides.starts
        pairing = pair_parameters(self.sides.networks, self.sides.uses, self.sides.mapping)
        causes = [layout_cause(pairing, p, self.labels) for p in pairing.pairs if p.transposed]
        pairing, shared = find_shared(pairing, self.sides.uses, one, other)
        causes += shared
        frozen = (
            find_frozen(pairing.only_one, one, other),
            find_frozen(pairing.only_other, other, one),
        )
        causes += [each.cause for side in frozen for each in side]
        known = {each.name for side in frozen for each in side}
        causes += leftover_causes(pairing, known, one, other, self.sides.uses)
        return pairing, frozen, findings.located(causes, self.sides.uses)

    def _setup(self, subjects: tuple[Subject, Subject]) -> tuple[Setup, Randomness | None]:
        """Decide what is measured."""
        key = self.sides.keys["training"]
        one, other = (side.is_random(key) for side in subjects)
        is_random = one or other
        modes, learning = (EVALUATION, TRAINING), TRAINING
        if is_random or all(side.same_program(key) for side in subjects):
            modes, learning = (EVALUATION,), EVALUATION
        learns = all(jax.tree.leaves(side.variables.params) for side in subjects)
        setup = Setup(key, modes, learning, learns, self.sides.effort)
        if not is_random:
            return setup, None
        work = max(operations(side.traced(key, True)) for side in subjects)
        key = self.sides.keys["random"]
        return setup, distributions.compare_randomness(subjects, (one, other), key, work)

    def _gradient_causes(
        self, pairing: Pairing, gradients: Sequence[Any], search: "_Search"
    ) -> list[Cause]:
        """Name parameters without a gradient; of networks that differ, others that are unused."""
        causes = findings.gradient_causes(pairing, gradients, self.labels)
        if not search.apart or not causes:
            return causes
        one, other = (
            [name for name, outputs in use.reaches.items() if not outputs]
            for use in self.sides.uses()
        )
        for names, label in zip((one, other), self.labels, strict=True):
            if names:
                self._notes.append(f"unused parameters of {label}: {listed(names, most=4)}")
        return findings.gradient_causes(pairing, gradients, self.labels, (one, other))

    def _explain_gradients(
        self,
        subjects: tuple[Subject, Subject],
        setup: Setup,
        measurements: Sequence[Measurement],
    ) -> tuple[Difference | None, list[Cause]]:
        """Locate other gradients and name their causes where all outputs are equal."""
        if not findings.agree(measurements, OUTPUTS) or findings.agree(measurements, GRADIENTS):
            return None, []
        how: Any = {"train": setup.learning_mode == TRAINING, "key": setup.key}
        native = next(e.native for e in measurements if e.quantity.name == GRADIENTS)
        with noted(self._notes, "the gradients could not be aligned"):
            if (found := explain_gradients(subjects, **how)) is None:
                return first_backward_difference(*subjects, **how), []
            one, other = found.operations
            size: Any = {"max_abs": native.max_abs, "max_rel": native.max_rel}
            return Difference(one=one, other=other, **size), found.causes
        return None, []

    def _rounding(
        self,
        subjects: tuple[Subject, Subject],
        setup: Setup,
        measurements: Sequence[Measurement],
    ) -> Difference | None:
        """Find the first operation whose outputs differ in bits, in the first such batch."""
        apart = [each.quantity for each in measurements
                 if each.quantity.name == OUTPUTS and not each.native.identical]  # fmt: skip
        if not apart:
            return None
        self._begin("locating the first rounding")
        inputs, train = subjects[0].batches[apart[0].batch], apart[0].mode == TRAINING
        with noted(self._notes, "the first rounding was not located"):
            tapes = record_both(*subjects, inputs, train=train, key=setup.key, exact=True)
            return first_bit_difference(*tapes, compiled=setup.effort.everything)

    def _compare_initializers(self, pairing: Pairing) -> None:
        num_keys = min(each.num_keys for each in self.sides.drawn)
        if num_keys:
            self._begin(f"comparing initializers over {num_keys:,} keys")
        rows = distributions.compare_initializers(*self.sides.drawn, pairing)
        made = [network.name for network in self.sides.networks if not network.random_start]
        if made:
            self._notes.append(
                f"initializers were not compared: {made[0]!r} has its weights already"
            )
        found = distributions.initializer_causes(rows, num_keys)
        causes = (*self.known.causes, *found)
        self._know(initializers=tuple(rows), num_keys=num_keys, causes=causes)


@dataclass
class _Search:
    """The search for operations that differ, in each mode, evaluated in float64.

    Attributes:
      sides, setup, notes, frozen: of the comparison.
      pairing: of the parameters; a matrix may be found to be transposed.
      subjects: both networks at the pairing that is given.
      apart: the modes in which results differ.
      turned: the causes for transposed matrices.
      found: what was found in each mode.
      first: the first difference of networks whose parameters have no counterpart.
      answers: what `explained` returned, by what was asked.
      parts: the modules of both networks, if they were compared.
    """

    sides: Networks
    setup: Setup
    notes: list[str]
    pairing: Pairing
    frozen: FrozenOnes
    subjects: tuple[Subject, Subject]
    apart: set[str] = field(default_factory=set)
    turned: list[Cause] = field(default_factory=list)
    found: dict[str, Explanation] = field(default_factory=dict)
    first: Difference | None = None
    answers: dict[Any, tuple[Difference | None, list[Cause]]] = field(default_factory=dict)
    parts: tuple[tuple[Section, ...], tuple[Section, ...]] = ((), ())

    @property
    def size(self) -> int:
        """The bytes of all values that are kept."""
        views = [view for each in self.found.values() for view in each.views]
        return sum(getattr(array, "nbytes", 0) for view in views for array in view.arrays)

    @property
    def resized(self) -> bool:
        """Whether a convolution has results of another size, and all that follows."""
        left = len(self.pairing.only_one), len(self.pairing.only_other)
        return left[0] == left[1] and any(each.resized for each in self.found.values())

    def compare(self, *, modules: bool) -> None:
        """Compare both networks operation by operation, and find transposed matrices.

        Args:
          modules: whether modules are compared side by side.
        """
        for mode in self.setup.modes:
            self._explain(mode)
        if modules and EVALUATION in self.found:
            with noted(self.notes, "the modules were not compared"):
                self.parts = compare_modules(self.found[EVALUATION].views)
        self.apart = {mode for mode, each in self.found.items() if each.diverges}
        if self.pairing.only_one or self.pairing.only_other:
            self.first = self._first_unrepaired(self.setup.modes[0])
            self.apart |= {self.setup.modes[0]} if self.first is not None else set()
        if not any(each.diverges for each in self.found.values()):
            if self.size > MAX_KEPT:
                self.found.clear()  # its values fill the memory, and are rarely needed again
            return
        if self.size > MAX_KEPT and not _has_state(self.subjects):
            for each in self.found.values():
                each.free()
        suspects = frozenset().union(*(each.parameters for each in self.found.values()))
        self.pairing, turned = find_transposed(
            self.pairing, self._agree, self.sides.labels, suspects
        )
        self.turned = findings.located(turned, self.sides.uses)
        if self.turned:
            self.found.clear()

    def explained(self, *, with_state: bool) -> tuple[Difference | None, list[Cause]]:
        """Name the causes in the modes that differ, and of state that is updated in another way."""
        asked = (frozenset(self.apart), with_state)
        if asked not in self.answers:
            self.answers[asked] = self._answer(with_state)
        return self.answers[asked]

    def _answer(self, with_state: bool) -> tuple[Difference | None, list[Cause]]:
        modes = (EVALUATION, TRAINING) if with_state else sorted(self.apart)
        for mode in modes:
            if mode not in self.found or (with_state and self.found[mode].is_freed):
                self._explain(mode)
        first, causes = findings.causes_of(
            self.found,
            self.apart,
            with_state=with_state,
            labels=self.sides.labels,
            finished=self._free_large,
        )
        # Unrepaired, a missing parameter hides what follows it; it may be the first itself.
        if self.apart and (self.pairing.only_one or self.pairing.only_other):
            first = self.first or self._first_unrepaired(sorted(self.apart)[0])
        return first, causes

    def _free_large(self, mode: str) -> None:
        """Forget the values of one mode where all that are kept would fill the memory."""
        if mode in self.found and self.size > MAX_KEPT:
            self.found[mode].free()

    def _explain(self, mode: str) -> None:
        one, other = self._paired(self.pairing, repaired=True)
        how: Any = {"train": mode == TRAINING, "key": self.setup.key}
        with noted(self.notes, f"the programs in {mode} could not be aligned"):
            self.found[mode] = explain(one, other, one.inputs, **how)
            if most := self.found[mode].most:
                self.notes.append(f"only the first {most} differences in {mode} were looked for")

    def _paired(self, pairing: Pairing, *, repaired: bool = False) -> tuple[Subject, Subject]:
        """Return both networks at a pairing; those that are known need no new weights."""
        whole = not (pairing.only_one or pairing.only_other)
        if not self.turned and pairing is self.pairing and (whole or not repaired):
            return self.subjects
        return self.sides.subjects(pairing, self.frozen, repaired=repaired)

    def _first_unrepaired(self, mode: str) -> Difference | None:
        one, other = self._paired(self.pairing)
        how: Any = {"train": mode == TRAINING, "key": self.setup.key}
        with noted(self.notes, "the first difference was not located"):
            return first_large_difference(*record_both(one, other, one.inputs, **how, wide=True))
        return None

    def _agree(self, pairing: Pairing) -> bool:
        """Return whether the outputs are equal at another pairing."""
        one, other = self._paired(pairing, repaired=True)
        key = self.setup.key
        tapes = record_both(one, other, one.inputs, train=False, key=key, wide=True)
        return outputs_agree(*tapes)


def _has_state(subjects: tuple[Subject, Subject]) -> bool:
    return any(jax.tree.leaves(side.variables.state) for side in subjects)
