"""Why the port lacks a recorded value: by the catalogue of `triglot diff`, and by trying."""

import numpy as np

from ...programs import explain_tapes, places
from ...programs.values import largest_difference
from ...types import Cause, Difference, Operation
from .align import Alignment, Mismatch
from .events import Event
from .parts import module_tape, part_of
from .trying import confirmed_causes, steps_of

LABELS = ("the recording", "the port")
MAX_OPERATIONS = 8
UNKNOWN = "unknown"
REPLAYED = {"activation", "attention_mask", "attention_scale", "flatten_order", "kernel_layout"}
UNSURE = {UNKNOWN, "operation_missing", "unpaired_parameter"}


def local_causes(aligned: Alignment, event: Event) -> list[tuple[str, str]]:
    """Compare a module that was found with its formula, in float64.

    Returns:
      Causes with their evidence; none if both are equal.
    """
    end = aligned.places.get(event.array, -1)
    if event.is_code or end not in aligned.computed:
        return []
    known_names = (
        *aligned.recording.inputs,
        *(n for n, v in aligned.places.items() if v in aligned.forced),
    )
    if any(n not in known_names for n in event.call.inputs if n in aligned.cores):
        return []
    return sure_causes(aligned, event, end)


def sure_causes(aligned: Alignment, event: Event, end: int) -> list[tuple[str, str]]:
    """Explain a part of the port by what the recorded module computes; none if it is not sure."""
    causes = [] if event.is_code else formula_causes(aligned, event, end)
    unsure = any(name in UNSURE or "none in " in evidence for name, evidence in causes)
    return [] if unsure else causes


def num_causes(aligned: Alignment, event: Event, end: int) -> int:
    """Count the causes that are known if a value of the port is the recorded one."""
    if causes := sure_causes(aligned, event, end):
        return len(causes)
    return int(
        any(each.name in REPLAYED for each in confirmed_causes(aligned, Mismatch([event], end)))
    )


def formula_causes(aligned: Alignment, event: Event, end: int) -> list[tuple[str, str]]:
    """Explain the part of the port that ends in a value by what the recorded module computes."""
    known_values = [value for value in aligned.forced if value != end]
    arrays = list(aligned.arrays)
    if end in aligned.computed:
        arrays[end] = aligned.computed[end]
    part = part_of(aligned.tape, arrays, end, known_values)
    tape = module_tape(aligned.recording, event.call, np.asarray(arrays[end]))
    if tape is None:
        return []
    return [(each.name, each.evidence) for each in explain_tapes((tape, part), LABELS).causes]


def causes_of(aligned: Alignment, mismatch: Mismatch, label: str) -> tuple[Difference, list[Cause]]:
    """Name the causes of a difference, with its place in both."""
    named_causes: list[tuple[str, str]] = []
    event, end, value = mismatch.event, mismatch.end, None
    if end is not None and end in aligned.forced and event.array not in aligned.places:
        evidence = (
            "the port computes nothing in its place; substituting the recorded value makes "
            "everything downstream match"
        )
        named_causes = [("operation_missing", f"{_recorded_computation(event)}; {evidence}")]
    elif end is not None:
        named_causes = (
            [] if event.is_code or mismatch.events[1:] else formula_causes(aligned, event, end)
        )
        if not named_causes or {name for name, _ in named_causes} & UNSURE:
            confirmed = next(confirmed_causes(aligned, mismatch), None)
            if confirmed is not None:
                named_causes, value = [(confirmed.name, confirmed.evidence)], confirmed.value
    if not named_causes or (
        {name for name, _ in named_causes} & UNSURE and named_causes[0][0] != "operation_missing"
    ):
        named_causes = [(UNKNOWN, _describe_both(aligned, mismatch))]
    operations = operation_of(event), _port_operation(aligned, mismatch, value)
    where = f"{place_in_recording(event)}; {label}: {places.describe(operations[1])}"
    size = (float("nan"), float("nan"))
    if end is not None:
        arranged = aligned.arranged(mismatch.events[-1], end)
        if arranged is not None:
            size = largest_difference(arranged, np.asarray(aligned.arrays[end]))
    difference = Difference(
        one=operations[0], other=operations[1], max_abs=size[0], max_rel=size[1]
    )
    return difference, [Cause(name, where, evidence) for name, evidence in named_causes]


def operation_of(event: Event) -> Operation:
    return Operation(event.operation, event.source, event.scope)


def place_in_recording(event: Event) -> str:
    """Write where a recorded value was computed."""
    return f"the recording: {places.describe(operation_of(event))}"


def _port_operation(aligned: Alignment, mismatch: Mismatch, value: int | None) -> Operation | None:
    """Describe where the port differs: at a value, else at the first step after equal ones."""
    steps = steps_of(aligned, mismatch)
    if value is None and not steps:
        return None
    if value is None:
        value = steps[0].results[0]
    return places.operation(aligned.tape, value)


def _recorded_computation(event: Event) -> str:
    """Say what the recording computes."""
    return f"the recording computes {event.operation} ({event.scope})"


def _describe_both(aligned: Alignment, mismatch: Mismatch) -> str:
    """Say what both compute, where no cause is known."""
    event = mismatch.event
    steps = [step.name for step in steps_of(aligned, mismatch)]
    names = " ".join(steps[:MAX_OPERATIONS]) + (" ..." if steps[MAX_OPERATIONS:] else "")
    parts = [f"its inputs are equal and its result is not: the port computes {names or 'nothing'}"]
    if event.is_code:
        parts = [
            f"the modules before it are equal: the difference is in the code of {event.scope}, "
            f"where the port computes {names or 'nothing'}"
        ]
    elif event.call.settings:
        settings = ", ".join(f"{n}={v}" for n, v in list(event.call.settings.items())[:8])
        parts.append(f"the recorded settings are {settings}")
    if mismatch.events[1:]:
        parts.append(f"equal again after {mismatch.events[-1].scope}")
    return "; ".join(parts)
