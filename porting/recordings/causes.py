"""Why a recorded value is missing in the port: by the catalogue of `triglot diff`, and by trying."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...diff.programs import explain_tapes, places
from ...diff.programs.catalogue.activations import name_function
from ...diff.programs.tape import PARAMS
from ...diff.programs.values import Core
from ...diff.types import Cause, Difference, Operation
from .align import LOOSE, Alignment, Found
from .events import Event
from .parts import distance, module_tape, part_of, placed, steps_between

LABELS = ("the recording", "the port")
CONFIRMED = 2e-6  # a float32 result that is computed again in float64
MAX_TERMS = 12
MAX_OPERATIONS = 8
UNKNOWN = "unknown"
UNSURE = {UNKNOWN, "operation_missing", "unpaired_parameter"}


def local_causes(aligned: Alignment, event: Event) -> list[tuple[str, str]]:
    """Compare a module that was found with its formula, in float64.

    Returns:
      Causes with their evidence; none if both are equal.
    """
    end = aligned.places.get(event.array, -1)
    if event.is_code or end not in aligned.computed:
        return []
    known = (*aligned.recording.inputs, *(n for n, v in aligned.places.items() if v in aligned.forced))
    if any(n not in known for n in event.call.inputs if n in aligned.cores):
        return []
    found = formula_causes(aligned, event, end)
    return [] if {name for name, _ in found} & UNSURE else found


def formula_causes(aligned: Alignment, event: Event, end: int) -> list[tuple[str, str]]:
    """Explain the part of the port that ends in a value by what the recorded module computes."""
    known = [value for value in aligned.forced if value != end]
    arrays = list(aligned.arrays)
    if end in aligned.computed:
        arrays[end] = aligned.computed[end]
    part = part_of(aligned.tape, arrays, end, known)
    tape = module_tape(aligned.recording, event.call, np.asarray(arrays[end]))
    if tape is None:
        return []
    return [(each.name, each.evidence) for each in explain_tapes((tape, part), LABELS).causes]


def causes_of(aligned: Alignment, found: Found, label: str) -> tuple[Difference, list[Cause]]:
    """Name the causes of a difference, with its place in both."""
    named: list[tuple[str, str]] = []
    event, end = found.event, found.end
    if end is not None:
        named = [] if event.is_code or found.events[1:] else formula_causes(aligned, event, end)
        if not named or {name for name, _ in named} & UNSURE:
            named = list(_tried(aligned, found))[:1] or named
    if not named or named[0][0] == UNKNOWN:
        named = [(UNKNOWN, _said(aligned, found))]
    operations = _operations(aligned, found)
    where = f"{shown(event)}; {label}: {places.shown(operations[1])}"
    size = (float("nan"), float("nan"))
    if end is not None:
        last = placed(aligned.value(found.events[-1]), aligned.arrays[end])
        size = distance(last[0], np.asarray(aligned.arrays[end])) if last else size
    difference = Difference(
        one=operations[0], other=operations[1], max_abs=size[0], max_rel=size[1]
    )
    return difference, [Cause(name, where, evidence) for name, evidence in named]


def operation_of(event: Event) -> Operation:
    return Operation(event.operation, event.source, event.scope)


def shown(event: Event) -> str:
    """Write where a recorded value was computed."""
    return f"the recording: {places.shown(operation_of(event))}"


def _operations(aligned: Alignment, found: Found) -> tuple[Operation, Operation | None]:
    steps = _steps(aligned, found)
    if not steps:
        return operation_of(found.event), None
    value = aligned.tape.steps[steps[0]].results[0]
    return operation_of(found.event), places.operation(aligned.tape, value)


def _steps(aligned: Alignment, found: Found) -> list[int]:
    """Return the port's steps between the last equal values and the result."""
    if found.end is None:
        return []
    steps = steps_between(aligned.tape, found.end, aligned.forced.keys())
    computed = [i for i in steps if any(aligned.tape.depends[v] & ~PARAMS
                for v in aligned.tape.steps[i].results)]  # fmt: skip
    return [i for i in computed if not aligned.tape.is_layout(aligned.tape.steps[i])] or computed


def _tried(aligned: Alignment, found: Found) -> Iterator[tuple[str, str]]:
    """Yield causes that an experiment confirms."""
    if found.events[1:]:
        yield from _orders(aligned, found)
    yield from _transposed(aligned, found)
    yield from _flattened(aligned, found)
    yield from _activations(aligned, found)
    yield from _scales(aligned, found)
    yield from _sums(aligned, found)


def _orders(aligned: Alignment, found: Found) -> Iterator[tuple[str, str]]:
    """Find two modules that the port computes in the other order."""
    first, last = found.events[0], found.events[-1]
    steps = _steps(aligned, found)
    if found.end is None or not steps or last.is_code:
        return
    for name in last.call.inputs:
        x, y = aligned.recording.arrays[name], aligned.value(last)
        if x.shape != y.shape:
            continue
        function = name_function(np.ravel(x).astype(np.float64), np.ravel(y), LOOSE)
        before = [aligned.recording.arrays[n] for n in first.call.inputs]
        if function is None or function == "none":
            continue
        for index in steps:
            for value in aligned.tape.steps[index].results:
                own = np.asarray(aligned.arrays[value])
                for array in before:
                    if own.size == array.size and _maps(array, own, function):
                        yield "operation_order", (
                            f"the recording computes {first.scope}, then {last.scope} ({function}); "
                            f"the port applies {function} first"
                        )
                        return


def _maps(x: np.ndarray, y: np.ndarray, function: str) -> bool:
    arranged = placed(np.asarray(x, np.float64), y)
    return any(name_function(np.ravel(a), np.ravel(y), LOOSE) == function for a in arranged[:3])


def _transposed(aligned: Alignment, found: Found) -> Iterator[tuple[str, str]]:
    """Find a square matrix of the port that gives the recorded result once it is transposed."""
    if found.event.is_code or found.end is None:
        return
    names = {aligned.names[n]: n for n in found.event.call.weights if n in aligned.names}
    for value, name in aligned.tape.leaves.items():
        array = aligned.tape.arrays[value]
        if name in names and array.ndim == 2 and array.shape[0] == array.shape[1]:
            if _gives(aligned, found, {value: array.T}):
                yield "kernel_layout", (
                    f"with {name} transposed, the port's result is the recorded one"
                )


def _flattened(aligned: Alignment, found: Found) -> Iterator[tuple[str, str]]:
    """Find a value of the port that holds the numbers of the recorded input in another order."""
    if found.event.is_code or found.end is None:
        return
    tape = aligned.tape
    operands = {v for i in _steps(aligned, found) for v in tape.steps[i].operands}
    for name in found.event.call.inputs:
        x = np.asarray(aligned.recording.arrays[name], np.float64)
        for value in sorted(operands):
            own = np.asarray(aligned.arrays[value])
            if own.shape == x.shape and tape.depends[value] & ~PARAMS:
                if Core.of(x).same(Core.of(own)) and _gives(aligned, found, {value: x}):
                    yield "flatten_order", (
                        "the port joins the axes of the input in another order: with the recorded "
                        "order, its result is the recorded one"
                    )
                    return


def _activations(aligned: Alignment, found: Found) -> Iterator[tuple[str, str]]:
    """Find two functions of the same value, at least one of them a known activation."""
    if found.end is None:
        return
    y = np.asarray(aligned.arrays[found.end], np.float64)
    recorded = placed(aligned.value(found.events[-1]), y)
    for value in _sources(aligned, found):
        x = np.asarray(aligned.arrays[value], np.float64)
        if x.size != y.size or not recorded:
            continue
        for arranged in placed(x, y)[:3] if x.shape != y.shape else [x]:
            names = [
                name_function(np.ravel(arranged), np.ravel(each), tolerance)
                for each, tolerance in ((recorded[0], CONFIRMED), (y, CONFIRMED))
            ]
            if None not in names and names[0] != names[1]:
                yield "activation", f"{names[0]} in {LABELS[0]}, {names[1]} in {LABELS[1]}"
                return


def _sources(aligned: Alignment, found: Found) -> list[int]:
    """Return the values that the differing part reads, and those that it computes."""
    steps = steps_between(aligned.tape, found.end or 0, aligned.forced.keys())
    read = [aligned.tape.roots[v] for i in steps for v in aligned.tape.steps[i].operands]
    kept = [v for v in dict.fromkeys(read) if aligned.tape.depends[v] & ~PARAMS]
    return sorted(kept, key=lambda value: (value not in aligned.forced, value))


def _scales(aligned: Alignment, found: Found) -> Iterator[tuple[str, str]]:
    """Find the factor of attention's logits, or a mask, that gives the recorded result."""
    tape, steps = aligned.tape, _steps(aligned, found)
    for index in steps:
        step = tape.steps[index]
        if step.name != "exp":
            continue
        logits = _before_max(aligned, steps, index)
        if logits is None:
            continue
        array = np.asarray(aligned.arrays[logits], np.float64)
        shapes = {n for i in steps for v in tape.steps[i].results for n in np.shape(tape.arrays[v])}
        for size in sorted(shapes - {1}):
            for factor, words in ((size**-0.5, "1/sqrt({})"), (size**0.5, "sqrt({})"),
                                  (1 / size, "1/{}")):  # fmt: skip
                if _gives(aligned, found, {logits: array * factor}):
                    yield "attention_scale", (
                        f"with the logits multiplied by {words.format(size)}, the port's result "
                        "is the recorded one"
                    )
                    return
        if array.ndim > 1 and array.shape[-1] == array.shape[-2]:
            causal = np.tril(np.ones(array.shape[-2:], bool))
            if _gives(aligned, found, {logits: np.where(causal, array, -1e30)}):
                yield "attention_mask", "with a causal mask, the port's result is the recorded one"
                return


def _before_max(aligned: Alignment, steps: list[int], index: int) -> int | None:
    """Return the logits of a softmax: what its largest number is taken of."""
    tape = aligned.tape
    for i in reversed([i for i in steps if i < index]):
        if tape.steps[i].name == "reduce_max":
            return tape.roots[tape.steps[i].operands[0]]
    return None


def _sums(aligned: Alignment, found: Found) -> Iterator[tuple[str, str]]:
    """Find the two recorded values whose sum is the recorded one, where the port adds others."""
    if not found.event.is_code:
        return
    wanted, recording = aligned.value(found.event), aligned.recording
    earlier = [e.array for e in aligned.events[: found.event.index]][-MAX_TERMS:]
    names = [*recording.inputs, *earlier]
    terms = [(n, np.asarray(recording.arrays[n], np.float64)) for n in names
             if recording.arrays[n].shape == wanted.shape]  # fmt: skip
    for i, (one, a) in enumerate(terms):
        for other, b in terms[i + 1 :]:
            if distance(a + b, wanted)[1] > CONFIRMED:
                continue
            steps = [aligned.tape.steps[s] for s in _steps(aligned, found)]
            if any(step.name in ("add", "add_any", "sub") for step in steps):
                yield "residual_source", (
                    f"the recording adds {_spoken(aligned, one)} and {_spoken(aligned, other)}; "
                    "the port adds another value"
                )
            else:
                yield "operation_missing", (
                    f"the recording adds {_spoken(aligned, one)} and {_spoken(aligned, other)}; "
                    "the port has no sum there"
                )
            return


def _spoken(aligned: Alignment, name: str) -> str:
    event = next((e for e in aligned.events if e.array == name), None)
    if event is None:
        return "the input"
    return f"the result of {event.scope}" if not event.is_code else f"that of {event.scope}"


def _gives(aligned: Alignment, found: Found, values: dict[int, Any]) -> bool:
    """Return whether the port computes the recorded result with other values."""
    if found.end is None:
        return False
    now = aligned.tape.replay({**aligned.forced, **values})
    wanted = Core.of(aligned.value(found.events[-1]))
    return Core.of(now[found.end]).same(wanted, LOOSE)


def _said(aligned: Alignment, found: Found) -> str:
    """Say what both compute, where no cause is known."""
    event = found.event
    steps = [aligned.tape.steps[index].name for index in _steps(aligned, found)]
    names = " ".join(steps[:MAX_OPERATIONS]) + (" ..." if steps[MAX_OPERATIONS:] else "")
    what = [f"its inputs are equal and its result is not: the port computes {names or 'nothing'}"]
    if event.is_code:
        what = [
            f"the modules before it are equal: the difference is in the code of {event.scope}, where "
            f"the port computes {names or 'nothing'}"
        ]
    elif event.call.settings:
        settings = ", ".join(f"{n}={v}" for n, v in list(event.call.settings.items())[:8])
        what.append(f"the recorded settings are {settings}")
    if found.events[1:]:
        what.append(f"equal again after {found.events[-1].scope}")
    return "; ".join(what)
