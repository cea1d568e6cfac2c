"""Compare two networks: parameters, functions at equal weights, gradients, and initializers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from ..backends.calling import Inputs, describe_inputs
from ..backends.libraries import title
from ..core.errors import user_error_context
from ..core.network import Network, Variables, num_params
from ..core.specs import Spec
from . import findings
from .gradients.causes import explain_gradients, first_backward_difference
from .inputs import batch_of, carry_of
from .loading import load_network
from .measures import distributions, numbers, weights
from .measures.distributions import Initial, Randomness
from .measures.numbers import EVALUATION, GRADIENTS, OUTPUTS, STATE, TRAINING, Measurement, Setup
from .measures.subject import Subject
from .outputs import match_outputs
from .pairing.leftovers import BIASES, Frozen, find_frozen, find_shared, leftover_causes
from .pairing.pair import find_transposed, layout_cause, pair_parameters
from .pairing.parameters import Pairing, is_inner_bias
from .pairing.use_order import Uses, read_uses
from .programs import first_bit_difference, first_large_difference, precision_cause, record_both
from .report import DIFFERENT, EQUIVALENT, IDENTICAL, Report
from .types import Cause, Difference, noted

BATCHES = (1, 32)
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

    Raises:
      TriglotError: if a network fails on such inputs, their outputs have different shapes, or no
        parameter can be paired.

    >>> import equinox as eqx, haiku as hk
    >>> from triglot.core.specs import Box
    >>> def mlp(x):
    ...     return hk.nets.MLP([8, 2])(x)
    >>> def layers(key):
    ...     return eqx.nn.MLP(4, 2, 8, 1, key=key)
    >>> diff_networks(mlp, layers, Box((4,))).verdict
    'equivalent'
    """
    networks = tuple(
        load_network(made, inputs, name=name, action_spec=action_spec)
        for made, name in zip((one, other), names, strict=True)
    )
    return _Comparison((networks[0], networks[1]), inputs, mapping, seed).report()


@dataclass(frozen=True, eq=False)
class _Comparison:
    """The steps of one comparison; each is computed once."""

    networks: tuple[Network, Network]
    inputs: Inputs
    mapping: Mapping[str, str] | None
    seed: int

    @cached_property
    def keys(self) -> dict[str, jax.Array]:
        names = ("one", "other", "inputs", "carry", "training", "random")
        split = jax.random.split(jax.random.key(self.seed), len(names))
        return dict(zip(names, split, strict=True))

    @cached_property
    def labels(self) -> tuple[str, str]:
        first, second = (f"{each.name} ({title(each.backend)})" for each in self.networks)
        return (first, second) if first != second else (f"{first}, one", f"{second}, other")

    @cached_property
    def drawn(self) -> tuple[Initial, Initial]:
        made = []
        for network, name in zip(self.networks, ("one", "other"), strict=True):
            with user_error_context(f"{network.name!r} failed when it was initialized"):
                made.append(distributions.initialize(network, self.keys[name]))
        return made[0], made[1]

    @cached_property
    def starts(self) -> tuple[Subject, Subject]:
        """Both networks at their initial variables, with the outputs that they share."""
        given = [
            (network, drawn.variables, self._batches(network, drawn.variables))
            for network, drawn in zip(self.networks, self.drawn, strict=True)
        ]
        shapes = [self._shapes(*each) for each in given]
        names = self.networks[0].name, self.networks[1].name
        shared = match_outputs(shapes[0], shapes[1], names)
        random, leaves = np.random.default_rng(self.seed), jax.tree.leaves(shapes[0])
        targets = tuple(random.standard_normal(leaves[each.indices[0]].shape) for each in shared)
        one, other = (
            Subject(
                label=self.labels[index],
                network=network,
                variables=variables,
                names={},
                batches=batches,
                outputs=tuple((each.name, each.indices[index]) for each in shared),
                targets=targets,
            )
            for index, (network, variables, batches) in enumerate(given)
        )
        return one, other

    def _batches(self, network: Network, variables: Variables) -> dict[int, Any]:
        whole = batch_of(self.inputs, max(BATCHES), self.keys["inputs"])
        found = {}
        for size in BATCHES:
            found[size] = jax.tree.map(lambda leaf, size=size: leaf[:size], whole)
            if network.recurrent:
                found[size] = found[size], carry_of(network, variables, size, self.keys["carry"])
        return found

    def _shapes(self, network: Network, variables: Variables, batches: dict[int, Any]) -> Any:
        """Return the shapes of a network's outputs for the largest batch."""
        with user_error_context(f"{network.name!r} failed on {describe_inputs(self.inputs)}"):
            return jax.eval_shape(
                lambda v, i: network.apply(v, i)[0], variables, batches[max(BATCHES)]
            )

    def subjects(
        self, pairing: Pairing, frozen: tuple[list[Frozen], list[Frozen]], *, repaired: bool = False
    ) -> tuple[Subject, Subject]:
        """Put equal weights into both networks.

        Args:
          pairing: says which parameters are equal, and which are transposed.
          frozen: values of parameters that the other side holds outside its parameters.
          repaired: set biases and scales that the other side lacks to 0 and 1.
        """
        named_pairs = pairing.by_name().items()
        shared = {n: p.one for n, p in named_pairs}, {n: p.other for n, p in named_pairs}
        ones = [pair.one for pair in pairing.pairs]
        others = [pair.other for pair in pairing.pairs]
        turned: tuple[set[str], set[str]] = (set(), set())
        for pair in pairing.pairs:
            if pair.transposed:  # on the side where no other pair has the same array
                side = 0 if others.count(pair.other) > 1 and ones.count(pair.one) == 1 else 1
                turned[side].add((pair.one, pair.other)[side])
        networks = [
            weights.with_transposed(n, t) for n, t in zip(self.networks, turned, strict=True)
        ]
        own = [
            weights.with_noise(weights.canonical(network, start.variables), self.seed + index)
            for index, (network, start) in enumerate(zip(networks, self.starts, strict=True))
        ]
        from_other = self.networks[0].random_start and not self.networks[1].random_start
        values = weights.shared_values(pairing, own[from_other], from_other=from_other)
        subjects = []
        for index, (network, start) in enumerate(zip(networks, self.starts, strict=True)):
            left = (pairing.only_one, pairing.only_other)[index]
            named = {each.name: own[index][each.name] for each in left}
            for name, array in named.items():
                if is_inner_bias(name):  # one of two variants has no such bias
                    named[name] = np.zeros_like(array)
                elif repaired and name.rpartition("/")[2] in (*BIASES, "scale"):
                    named[name] = np.full_like(array, name.endswith("scale"))
            named |= {shared[index][name]: array for name, array in values.items()}
            named |= {each.name: each.value for each in frozen[index]}
            variables = weights.put(network, start.variables, named)
            subjects.append(
                replace(start, network=network, variables=variables, names=shared[index])
            )
        return subjects[0], subjects[1]

    def report(self) -> Report:
        """Run the comparison."""
        one, other = self.starts  # networks without equal outputs are refused first
        pairing = pair_parameters(self.networks, self._uses, self.mapping)
        causes = [layout_cause(pairing, p, self.labels) for p in pairing.pairs if p.transposed]
        pairing, shared = find_shared(pairing, self._uses, one, other)
        causes += shared
        frozen = (
            find_frozen(pairing.only_one, one, other),
            find_frozen(pairing.only_other, other, one),
        )
        causes += [each.cause for side in frozen for each in side]
        known = {each.name for side in frozen for each in side}
        causes += leftover_causes(pairing, known, one, other)
        subjects = self.subjects(pairing, frozen)
        setup, random = self._setup(subjects)
        dtypes_apart = findings.dtype_causes(pairing, subjects, setup)
        causes += dtypes_apart
        measured = numbers.measure(*subjects, setup, same_dtypes=not dtypes_apart)
        measurements, notes = measured.measurements, measured.notes
        located, found = self._explain_gradients(subjects, setup, measurements, notes)
        causes += found or findings.gradient_causes(pairing, measured.gradients, self.labels)
        if not findings.agree(measurements, OUTPUTS):
            agreement = numbers.forward_agreement(subjects, setup.key)
            pairing, found = find_transposed(
                pairing,
                lambda turned: agreement(self.subjects(turned, frozen, repaired=True)),
                self.labels,
            )
            causes += found
        verdict = findings.verdict_of(measurements)
        if len(setup.modes) == 1 and random is None:
            notes.append("training and evaluation are the same program, measured once")
        first: Difference | None = None
        if random is not None:
            notes.append(random.note)
            causes += random.causes
            verdict = EQUIVALENT if verdict == IDENTICAL and not random.identical else verdict
            verdict = verdict if random.same else DIFFERENT
        if verdict == DIFFERENT or (random is not None and not random.identical):
            first, explained = self._explain(pairing, frozen, measurements, random, notes)
            if verdict == DIFFERENT:
                if pairing.only_one or pairing.only_other:  # named above, with what they mean
                    explained = [cause for cause in explained if cause.name not in UNPAIRED]
                computed = findings.computation_causes(measured.dtypes, self.labels)
                causes = findings.merged(findings.merged(causes, explained), computed)
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
        rounding = self._rounding(subjects, measurements, notes) if verdict == EQUIVALENT else None
        rows = distributions.compare_initializers(*self.drawn, pairing)
        num_keys = min(each.num_keys for each in self.drawn)
        made = [network.name for network in self.networks if not network.random_start]
        if made:
            notes.append(f"initializers were not compared: {made[0]!r} has its weights already")
        return Report(
            labels=self.labels,
            verdict=verdict,
            first_difference=first,
            first_rounding=rounding,
            causes=(*causes, *distributions.initializer_causes(rows, num_keys)),
            pairing=pairing,
            num_params=(num_params(one.variables.params), num_params(other.variables.params)),
            measurements=tuple(measurements),
            initializers=tuple(rows),
            num_keys=num_keys,
            notes=tuple(notes),
        )

    def _explain_gradients(
        self,
        subjects: tuple[Subject, Subject],
        setup: Setup,
        measurements: Sequence[Measurement],
        notes: list[str],
    ) -> tuple[Difference | None, list[Cause]]:
        """Locate other gradients and name their causes where all outputs are equal."""
        if not findings.agree(measurements, OUTPUTS) or findings.agree(measurements, GRADIENTS):
            return None, []
        how: Any = {"train": setup.learning_mode == TRAINING, "key": setup.key}
        native = next(e.native for e in measurements if e.quantity.name == GRADIENTS)
        with noted(notes, "the gradients could not be aligned"):
            if (found := explain_gradients(subjects, **how)) is None:
                return first_backward_difference(*subjects, **how), []
            one, other = found.operations
            size: Any = {"max_abs": native.max_abs, "max_rel": native.max_rel}
            return Difference(one=one, other=other, **size), found.causes
        return None, []

    def _rounding(
        self,
        subjects: tuple[Subject, Subject],
        measurements: Sequence[Measurement],
        notes: list[str],
    ) -> Difference | None:
        """Find the first operation whose outputs differ in bits, in the first such batch."""
        apart = [each.quantity for each in measurements
                 if each.quantity.name == OUTPUTS and not each.native.identical]  # fmt: skip
        if not apart:
            return None
        inputs, train = subjects[0].batches[apart[0].batch], apart[0].mode == TRAINING
        with noted(notes, "the first rounding was not located"):
            key = self.keys["training"]
            tapes = record_both(*subjects, inputs, train=train, key=key, exact=True)
            return first_bit_difference(*tapes)

    def _uses(self) -> tuple[Uses, Uses]:
        one, other = (
            read_uses(side.network, side.variables, side.example, [i for _, i in side.outputs])
            for side in self.starts
        )
        return one, other

    def _setup(self, subjects: tuple[Subject, Subject]) -> tuple[Setup, Randomness | None]:
        """Decide what is measured."""
        key = self.keys["training"]
        one, other = (side.is_random(key) for side in subjects)
        is_random = one or other
        modes, learning = (EVALUATION, TRAINING), TRAINING
        if is_random or all(side.same_program(key) for side in subjects):
            modes, learning = (EVALUATION,), EVALUATION
        learns = all(jax.tree.leaves(side.variables.params) for side in subjects)
        setup = Setup(key, modes, learning, learns)
        if not is_random:
            return setup, None
        return setup, distributions.compare_randomness(subjects, (one, other), self.keys["random"])

    def _explain(
        self,
        pairing: Pairing,
        frozen: Any,
        measurements: Sequence[Measurement],
        random: Randomness | None,
        notes: list[str],
    ) -> tuple[Difference | None, list[Cause]]:
        """Ask the traced programs, in each mode in which the outputs differ."""
        apart = {each.quantity.mode for each in measurements if not each.agrees
                 and each.quantity.name == OUTPUTS}  # fmt: skip
        modes = sorted({*apart, TRAINING} if random else apart)
        inputs, key = self.starts[0].inputs, self.keys["training"]
        first, causes = findings.explain_modes(
            *self.subjects(pairing, frozen, repaired=True),
            inputs,
            modes=modes,
            with_state=random is None and not findings.agree(measurements, STATE),
            key=key,
            notes=notes,
        )
        # Unrepaired, a missing parameter hides what follows it; it may be the first itself.
        if modes and (pairing.only_one or pairing.only_other):
            sides, train = self.subjects(pairing, frozen), modes[0] == TRAINING
            with noted(notes, "the first difference was not located"):
                tapes = record_both(*sides, inputs, train=train, key=key, wide=True)
                first = first_large_difference(*tapes)
        return first, causes
