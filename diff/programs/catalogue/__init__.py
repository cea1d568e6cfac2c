"""The catalogue of causes: each entry names one kind of divergence and confirms it."""

from collections.abc import Callable, Sequence

from ...types import Cause
from .. import places
from ..divergence import Divergence
from ..tape import PARAMS
from ..values import Core
from . import (
    activations,
    attention,
    cells,
    norms,
    order,
    resizing,
    rotary,
    structure,
    training,
    windows,
)
from .features import Finding


def unpaired_parameter(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a part that reads a parameter without a counterpart, such as a bias."""
    for part, label in zip(found.parts, labels, strict=True):
        for value in part.values:
            if value in part.region.leaves and part.tape.depends[value] == PARAMS:
                name = "missing_bias" if part.names == {"add"} else "unpaired_parameter"
                shown = part.tape.leaves[value]
                evidence = f"{shown} of {label} has no equal parameter in the other network"
                return Finding(name, evidence, found)
    return None


Entry = Callable[[Divergence, tuple[str, str]], Finding | None]
# In order: what has narrower evidence comes first.
ENTRIES: Sequence[Entry] = (
    unpaired_parameter,
    training.dropout,
    training.differing_statistics,
    training.mixed_statistics,
    norms.norm_form,
    norms.norm_epsilon,
    windows.padding,
    order.flatten_order,
    attention.attention_mask,
    attention.attention_scale,
    cells.gru_variant,
    cells.update_gate,
    cells.forget_bias,
    cells.gate_order,
    attention.attention_heads,
    activations.activation,
    structure.reduction,
    windows.pooling,
    structure.operand,
    structure.constant,
    rotary.rotary_convention,
    resizing.resizing,
    structure.factor,
    structure.operation_order,
    structure.missing_operation,
)


def name_causes(found: Divergence, labels: tuple[str, str]) -> tuple[list[Cause], Divergence]:
    """Name the causes of a divergence: the first entry that explains it, else `unknown`.

    Returns:
      The causes, and the divergence that they explain, which may be larger than the one given.
    """
    findings = (entry(found, labels) for entry in ENTRIES)
    finding = next(filter(None, findings), None) or Finding("unknown", _unexplained(found), found)
    place = places.of_both((part.operation() for part in finding.divergence.parts), labels)
    named = [(finding.name, finding.evidence), *finding.more]
    return [Cause(name, place, evidence) for name, evidence in named], finding.divergence


def is_consequence(found: Divergence, explained: Sequence[Divergence]) -> bool:
    """Return whether a divergence contains the first operations of one that has its causes.

    They are left in the second program where the first one's result does not fit in their place, as
    a convolution's of another size, or where something else reads them too.
    """
    for earlier in explained:
        pairs = zip(earlier.parts, found.parts, strict=True)
        if all(each.first is None or each.first in part.values for each, part in pairs):
            return True
    return False


def _unexplained(found: Divergence) -> str:
    largest, relative = found.size()
    names = []
    for part in found.parts:
        steps = [part.tape.steps[index].name for index in part.steps]
        names.append(" ".join(steps[:8]) + (" ..." if steps[8:] else "") or "nothing")
    pair = found.results()
    if pair is not None and Core.of(pair[0]).same(Core.of(pair[1])):
        return f"the same numbers in another order, which differ by up to {largest:.3g}"
    return (
        f"equal inputs, results differ by up to {largest:.3g} (relative {relative:.3g}): the first "
        f"computes {names[0]}, the second {names[1]}"
    )
