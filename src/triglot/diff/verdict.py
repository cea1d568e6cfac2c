"""The verdict, the causes and the report, as decided from the results of all stages.

`RULES` is the decision: a table that is read from top to bottom, of which the first line that
applies gives the verdict. To add a rule, add a line, and a field of `Results` if a new stage
measures what the rule reads.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from . import findings
from .measures.distributions import Randomness
from .measures.numbers import Measured, Measurement
from .pairing.pair import layer_order_note
from .report import DIFFERENT, EQUIVALENT, IDENTICAL, UNFINISHED, Report
from .search import Located, Operations
from .stages import Finding, Initializers, PairedParameters
from .types import Cause, Difference

UNPAIRED = ("missing_bias", "unpaired_parameter")  # as the traced programs show them
# What differs.
FUNCTION, DRAWS, WEIGHTS, PRECISION, NOTHING = "function", "draws", "weights", "precision", ""


@dataclass(kw_only=True)
class Results:
    """The results of the stages so far; None, or empty, where a stage has not run.

    Attributes:
      labels: labels of both networks.
      parameters: the parameters and their pairs.
      checkpoints: causes for trained weights that differ, if both networks have some.
      dtypes: causes for dtypes of parameters and outputs that differ.
      randomness: distributions of outputs that are random in training.
      operations: both programs, compared operation by operation in float64.
      measured: outputs, gradients and steps, measured in each arithmetic.
      gradients: what differs in the gradients alone.
      precision: cause for a precision that only one program states.
      weighed: where the networks round so differently that it matters.
      located: where the networks differ first, and why.
      rounding: where two equivalent networks round differently.
      initializers: what both initializers draw.
      notes: what the level leaves out.
    """

    labels: tuple[str, str]
    parameters: PairedParameters = PairedParameters()
    checkpoints: tuple[Cause, ...] = ()
    dtypes: tuple[Cause, ...] = ()
    randomness: Randomness = Randomness()
    operations: Operations | None = None
    measured: Measured | None = None
    gradients: Finding = Finding()
    precision: Cause | None = None
    weighed: Finding = Finding()
    located: Located = Located()
    rounding: Finding = Finding()
    initializers: Initializers = Initializers()
    notes: tuple[str, ...] = ()

    @property
    def measurements(self) -> list[Measurement]:
        """What was measured; empty if nothing has been measured yet."""
        return [] if self.measured is None else self.measured.measurements

    @property
    def operations_differ(self) -> bool:
        """Whether outputs differ in float64, operation by operation."""
        return self.operations is not None and bool(self.operations.differing_modes)

    @property
    def draws_differ(self) -> bool:
        """Whether outputs in training are random, and the same keys give different ones."""
        return not self.randomness.identical


class Rule(NamedTuple):
    """A line of the decision.

    Attributes:
      verdict: the verdict, if the rule applies.
      differs_in: what differs: the function of the weights, random draws, the weights, or the
        precision.
      reason: why the rule gives the verdict.
      applies: whether the rule applies to results.
    """

    verdict: str
    differs_in: str
    reason: str
    applies: Callable[[Results], bool]


RULES = (
    Rule(
        DIFFERENT, FUNCTION,
        "operation by operation in float64, outputs differ by more than rounding",
        lambda results: results.operations_differ,
    ),
    Rule(
        DIFFERENT, FUNCTION,
        "outputs, gradients or steps differ by more than rounding, as measured",
        lambda results: not all(each.agrees for each in results.measurements),
    ),
    Rule(
        DIFFERENT, FUNCTION,
        "operation by operation in float64, gradients differ by more than rounding",
        lambda results: results.gradients.first_difference is not None,
    ),
    Rule(
        DIFFERENT, FUNCTION,
        "outputs that are random in training have different distributions over keys",
        lambda results: not results.randomness.same,
    ),
    Rule(
        DIFFERENT, FUNCTION,
        "networks that are random in training update their state differently",
        lambda results: not results.randomness.same_state,
    ),
    Rule(
        DIFFERENT, DRAWS,
        "the programs apply dropout differently",
        lambda results: results.draws_differ and bool(_dropout(results)),
    ),
    Rule(
        DIFFERENT, WEIGHTS,
        "the checkpoints hold different weights",
        lambda results: bool(results.checkpoints),
    ),
    Rule(
        UNFINISHED, NOTHING,
        "nothing has been measured yet",
        lambda results: results.measured is None,
    ),
    Rule(
        DIFFERENT, PRECISION,
        "in the types in which the networks compute, rounding differs by more than is allowed",
        lambda results: bool(results.weighed.causes),
    ),
    Rule(
        EQUIVALENT, NOTHING,
        "random outputs have equal distributions, but differ for the same keys",
        lambda results: results.draws_differ,
    ),
    Rule(
        IDENTICAL, NOTHING,
        "all bits are equal in native arithmetic",
        lambda results: all(each.native.identical for each in results.measurements),
    ),
    Rule(
        EQUIVALENT, NOTHING,
        "all differences are rounding",
        lambda results: True,
    ),
)  # fmt: skip


def decide(results: Results) -> Rule:
    """Return the first rule that applies to the results."""
    return next(rule for rule in RULES if rule.applies(results))


def report_of(results: Results) -> Report:
    """Make the report of the results so far."""
    rule, operations = decide(results), results.operations
    return Report(
        labels=results.labels,
        verdict=rule.verdict,
        first_difference=_first_difference(results, rule),
        first_rounding=results.rounding.first_difference,
        causes=tuple(_causes(results, rule)),
        pairing=(operations or results.parameters).pairing,
        num_params=results.parameters.num_params,
        measurements=tuple(results.measurements),
        initializers=results.initializers.rows,
        num_keys=results.initializers.num_keys,
        parts=((), ()) if operations is None else operations.sections,
        notes=tuple(dict.fromkeys(_notes(results))),
    )


def _first_difference(results: Results, rule: Rule) -> Difference | None:
    """Return the first operation that differs, else the first quantity that was measured."""
    if rule.differs_in == PRECISION:
        return results.weighed.first_difference
    if rule.differs_in not in (FUNCTION, DRAWS):
        return None
    first = results.located.first_difference
    if rule.differs_in == DRAWS:
        return first
    backward = results.gradients.first_difference
    return first or backward or findings.first_measured_difference(results.measurements)


def _dropout(results: Results) -> list[Cause]:
    """Return the causes by which two programs apply dropout differently."""
    names = ("dropout", "stochastic_depth")
    return [cause for cause in results.located.causes if cause.name in names]


def _causes(results: Results, rule: Rule) -> Iterator[Cause]:
    """Yield all causes: of checkpoints, of the function, and of initializers."""
    yield from results.checkpoints
    causes = _of_stages(results)
    if rule.differs_in == FUNCTION:
        causes = _of_function(results, causes)
    elif rule.differs_in == DRAWS:
        causes = findings.add_causes(causes, _dropout(results))
    elif rule.differs_in == PRECISION:
        causes = findings.add_causes(causes, results.weighed.causes)
    yield from causes
    if results.precision is not None and all(cause.name != "precision" for cause in causes):
        yield results.precision
    yield from results.initializers.causes


def _of_stages(results: Results) -> list[Cause]:
    """List the causes that each stage names by itself, in the order of the stages."""
    causes = [*results.parameters.causes, *results.dtypes, *results.gradients.causes]
    if results.operations is not None:
        causes += results.operations.transposed
    return causes if results.operations_differ else [*causes, *results.randomness.causes]


def _of_function(results: Results, causes: list[Cause]) -> list[Cause]:
    """Add what the traced programs and the dtypes show; say so if nothing explains a difference."""
    located, operations = results.located, results.operations
    if operations is not None:
        if located.resized:  # the layers that follow have other sizes, and are not other layers
            causes = [cause for cause in causes if cause.name != "architecture"]
        unpaired = () if operations.pairing.is_complete else UNPAIRED  # named with their meaning
        located_causes = [cause for cause in located.causes if cause.name not in unpaired]
        causes = findings.add_causes(causes, located_causes)
    if results.measured is not None:
        computed = findings.computation_causes(results.measured.dtypes, results.labels)
        causes = findings.add_causes(causes, computed)
    causes = findings.without_reordered(causes)
    if not causes and results.measured is not None:
        causes = [findings.unexplained_cause(results.measurements)]
    return causes


def _notes(results: Results) -> Iterator[str]:
    """Yield what was not measured or located, and why, in the order of the stages."""
    yield from filter(None, [layer_order_note(results.parameters.pairing, results.labels)])
    if results.operations is not None:
        yield from results.operations.explanations.notes
    if results.measured is not None:
        yield from results.measured.notes
    yield from results.gradients.notes
    yield from filter(None, [results.randomness.note])
    for stage in (results.weighed, results.rounding, results.initializers):
        yield from stage.notes
    yield from results.notes
