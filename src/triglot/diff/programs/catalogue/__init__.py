"""The catalogue of causes: each entry names one kind of divergence and confirms it.

Of the smallest parts, the first that an entry explains is taken. A smaller part may end in a pair
of values that agrees with what follows and is not the cause.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ...types import Cause
from .. import places
from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import PARAMS
from ..values import Core
from . import (
    activations,
    attention,
    cells,
    exchanges,
    losses,
    moves,
    norms,
    order,
    positions,
    resampling,
    resizing,
    rotary,
    spectral,
    structure,
    training,
    updates,
    windows,
)
from .features import Entry, Finding


def unpaired_parameter(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a part that reads a parameter without a counterpart, such as a bias."""
    for part, label in zip(divergence.parts, labels, strict=True):
        for value in part.values:
            if value in part.region.leaves and part.tape.depends[value] == PARAMS:
                name = "missing_bias" if part.names == {"add"} else "unpaired_parameter"
                display_name = part.tape.display_name(part.tape.leaves[value])
                evidence = f"{display_name} of {label} has no equal parameter in the other network"
                return Finding(name, evidence, divergence)
    return None


MAX_ALTERNATIVES = 8  # parts of other ends, tried where none of the entries explains the first
MOVED = ("activation", "constant", "operation_missing")
# In order: what has narrower evidence comes first; what any part has, last.
ENTRIES: Sequence[Entry] = (
    order.output_layout,
    spectral.spectral_norm,
    unpaired_parameter,
    positions.padding_positions,
    resampling.resampling,
    training.dropout,
    training.differing_statistics,
    training.starting_statistics,
    training.mixed_statistics,
    norms.norm_form,
    norms.norm_epsilon,
    windows.padding,
    order.concatenation,
    order.flatten_order,
    attention.attention_mask,
    attention.attention_scale,
    cells.gru_variant,
    cells.update_gate,
    cells.forget_bias,
    cells.gate_order,
    attention.attention_heads,
    moves.moved_sum,
    moves.moved_operation,
    activations.activation,
    activations.logarithm,
    structure.reduction,
    structure.transform,
    windows.pooling,
    rotary.rotary_convention,
    exchanges.swapped_axes,
    structure.operand_order,
    exchanges.exchanged_operands,
    exchanges.head_order,
    structure.constant_result,
    structure.constant,
    structure.factor,
    resizing.resizing,
)
# Of functions of a batch, before the others.
OF_BATCHES: Sequence[Entry] = (
    unpaired_parameter,
    losses.standardization,
    losses.error_loss,
    losses.greedy_action,
    updates.gradient_clipping,
    losses.shift,
    losses.clip_range,
    updates.numbers,
    updates.schedule,
    losses.flag,
    losses.parameters_read,
    losses.degrees_of_freedom,
    updates.epsilon,
    updates.bias_correction,
    losses.bound,
    losses.term,
    losses.weight,
    losses.joined_flags,
    losses.reduction,
    losses.term_factor,
    losses.factor,
)
WEAK: Sequence[Entry] = (
    structure.position_embedding,
    structure.differing_operand,
    structure.differing_term,
    moves.operation_order,
    moves.missing_operation,
    moves.other_operation,
    structure.constant_array,
)


@dataclass(frozen=True)
class NamedCauses:
    """The causes of a divergence.

    Attributes:
      causes: the causes, at least one.
      divergence: the divergence that they explain; may be larger than the one that was found.
      places: the places in both programs.
      only: what only one program computes: its index, and the operations; None if both compute
        something.
    """

    causes: tuple[Cause, ...]
    divergence: Divergence
    places: tuple[str, str]
    only: tuple[int, tuple[str, ...]] | None

    def moved_from(self, earlier: "NamedCauses", labels: tuple[str, str]) -> Cause | None:
        """Describe what one program computes at an earlier place than the other, if it does."""
        if self.only is None or earlier.only is None:
            return None
        if any(cause.name not in MOVED for cause in (*earlier.causes, *self.causes)):
            return None
        (side, names), (first, earlier_names) = self.only, earlier.only
        if side == first or names != earlier_names:
            return None
        evidence = f"{' '.join(names)} comes earlier in {labels[first]} than in {labels[side]}"
        places_by_side = {first: earlier.places[first], side: self.places[side]}
        where = "; ".join(f"{label}: {places_by_side[index]}" for index, label in enumerate(labels))
        return Cause("operation_order", where, evidence)


def name_causes(divergence: Divergence, labels: tuple[str, str]) -> NamedCauses:
    """Name the causes of a divergence: the first entry that explains it, else `unknown`."""
    finding = _explain(divergence, labels) or Finding(
        "unknown", _describe_unexplained(divergence), divergence
    )
    parts = finding.divergence.parts
    if finding.at is None:
        descriptions = _place(parts[0]), _place(parts[1])
    else:
        operations = [
            places.operation(part.tape, v) for part, v in zip(parts, finding.at, strict=True)
        ]
        descriptions = places.describe(operations[0]), places.describe(operations[1])
    place = "; ".join(
        f"{label}: {operation}" for label, operation in zip(labels, descriptions, strict=True)
    )
    names_and_evidence = [(finding.name, finding.evidence), *finding.more]
    causes = tuple(Cause(name, place, evidence) for name, evidence in names_and_evidence)
    return NamedCauses(causes, finding.divergence, descriptions, moves.computed_by_one(parts))


def _explain(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Explain the smallest parts, or others that end elsewhere.

    The smallest parts are not always those of one cause: where an earlier difference is below the
    tolerance, as of an epsilon against a large variance, a norm's squares differ before its epsilon
    does.
    """
    tape = divergence.parts[1].tape
    strong = (*OF_BATCHES, *ENTRIES) if tape.of_batches else ENTRIES
    if (finding := _first_finding(strong, divergence, labels)) is not None:
        return finding
    alternatives = list(
        itertools.islice(divergence.search.parts(far=False), 1, 1 + MAX_ALTERNATIVES)
    )
    likely = [part for part in alternatives if not _ends_inside(part, divergence)]
    for entries, parts in ((strong, alternatives), (WEAK, [divergence, *likely])):
        for part in parts:
            if (finding := _first_finding(entries, part, labels)) is not None:
                return finding
    return None


def _ends_inside(part: Divergence, smallest: Divergence) -> bool:
    """Return whether only steps of the smallest parts read a part's result.

    What agrees there agrees by chance, as a square in one program and that of a norm in the other.
    """
    for outer, inner in zip(part.parts, smallest.parts, strict=True):
        if outer.end is None or outer.end in inner.values:
            continue
        results = {
            value
            for step in outer.tape.readers_of(outer.end)
            for value in step.results
            if value in outer.region.ancestors
        }
        if results and results.issubset(inner.values):
            return True
    return False


def _first_finding(
    entries: Sequence[Entry], divergence: Divergence, labels: tuple[str, str]
) -> Finding | None:
    return next(filter(None, (entry(divergence, labels) for entry in entries)), None)


def _place(part: RegionPart) -> str:
    operation = part.operation()
    if operation is None and part.end is not None and part.end in part.tape.producers:
        return f"no counterpart, after {places.describe(places.operation(part.tape, part.end))}"
    return places.describe(operation)


def is_consequence(divergence: Divergence, explained: Sequence[Divergence]) -> bool:
    """Return whether a divergence contains the first operations of one that has its causes.

    They are left in the second program where the first one's result does not fit in their place, as
    a convolution's of another size, or where something else reads them too.
    """
    for earlier in explained:
        pairs = list(zip(earlier.parts, divergence.parts, strict=True))
        first, repeated = pairs[0]
        if first.steps and first.values == repeated.values and first.end == repeated.end:
            return True
        if all(
            each.first in part.values if each.first is not None else each.end in (None, part.end)
            for each, part in pairs
        ):
            return True
    return False


def _describe_unexplained(divergence: Divergence) -> str:
    largest, relative = divergence.size()
    names = []
    for part in divergence.parts:
        steps = [step.name for step in part.steps]
        names.append(" ".join(steps[:8]) + (" ..." if steps[8:] else "") or "nothing")
    pair = divergence.results()
    if pair is not None and Core.of(pair[0]).same(Core.of(pair[1])):
        return f"the same numbers in another order, which differ by up to {largest:.3g}"
    return (
        f"equal inputs, results differ by up to {largest:.3g} (relative {relative:.3g}): the first "
        f"computes {names[0]}, the second {names[1]}"
    )
