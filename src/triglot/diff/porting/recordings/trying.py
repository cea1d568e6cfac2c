"""Experiments: changes of the port with which its result matches the recording."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ...programs.catalogue.activations import name_function
from ...programs.sums import SUMS
from ...programs.tape import PARAMS, Step
from ...programs.values import Core, largest_difference
from ...types import Array
from .align import Alignment, Mismatch
from .parts import LOOSE, arrangements_like

CONFIRMED = 2e-6  # a float32 result that is computed again in float64
MAX_TERMS = 12
LEAST_FACTOR = 0.01  # apart from 1, below which another epsilon is as likely


class ConfirmedCause(NamedTuple):
    """A cause that an experiment confirms, and the value of the port at which it is."""

    name: str
    evidence: str
    value: int | None = None


def steps_of(aligned: Alignment, mismatch: Mismatch) -> list[Step]:
    """Return the port's steps between the last equal values and the result."""
    if mismatch.end is None:
        return []
    tape, steps = aligned.tape, aligned.tape.steps_for([mismatch.end], aligned.forced)
    computed = [step for step in steps if any(tape.depends[v] & ~PARAMS for v in step.results)]
    return [step for step in computed if not tape.is_layout(step)] or computed


def confirmed_causes(aligned: Alignment, mismatch: Mismatch) -> Iterator[ConfirmedCause]:
    """Yield the causes that an experiment confirms."""
    if mismatch.end is None:
        return
    if mismatch.events[1:]:
        yield from _orders(aligned, mismatch)
    if not mismatch.event.is_code:
        yield from _transposed_matrix(aligned, mismatch)
        yield from _flatten_order(aligned, mismatch)
    yield from _activations(aligned, mismatch, mismatch.end)
    yield from _scales(aligned, mismatch)
    if mismatch.event.is_code:
        yield from _sums(aligned, mismatch)
    yield from _factors(aligned, mismatch, mismatch.end)


def _orders(aligned: Alignment, mismatch: Mismatch) -> Iterator[ConfirmedCause]:
    """Find an activation that the port computes before the module that it follows."""
    first, last = mismatch.events[0], mismatch.events[-1]
    if last.is_code:
        return
    arrays = aligned.recording.arrays
    inputs = [np.asarray(arrays[name], np.float64) for name in first.call.inputs]
    for name in last.call.inputs:
        function = _function(np.asarray(arrays[name]), aligned.value(last))
        if function in (None, "none"):
            continue
        for value in (v for step in steps_of(aligned, mismatch) for v in step.results):
            computed = np.asarray(aligned.arrays[value])
            if any(
                _function(each, computed) == function
                for x in inputs
                for each in arrangements_like(x, computed)[:3]
            ):
                yield ConfirmedCause(
                    "operation_order",
                    f"the recording computes {first.scope}, then {last.scope} ({function}); the "
                    f"port computes {function} first",
                    value,
                )
                return


def _function(x: np.ndarray, y: np.ndarray) -> str | None:
    if x.shape != y.shape or x.dtype.kind != "f":
        return None
    return name_function(np.ravel(x).astype(np.float64), np.ravel(y), LOOSE)


def _transposed_matrix(aligned: Alignment, mismatch: Mismatch) -> Iterator[ConfirmedCause]:
    """Find a square matrix of the port that gives the recorded result once it is transposed."""
    port_names = {aligned.names[n] for n in mismatch.event.call.weights if n in aligned.names}
    for value, name in aligned.tape.leaves.items():
        array = aligned.tape.arrays[value]
        if name not in port_names or array.ndim != 2 or array.shape[0] != array.shape[1]:
            continue
        if _reproduces(aligned, mismatch, {value: array.T}):
            evidence = f"with {name} transposed, the port's result matches the recording"
            yield ConfirmedCause("kernel_layout", evidence)


def _flatten_order(aligned: Alignment, mismatch: Mismatch) -> Iterator[ConfirmedCause]:
    """Find a value of the port that holds the numbers of the recorded input in another order."""
    tape = aligned.tape
    operands = {v for step in steps_of(aligned, mismatch) for v in step.operands}
    data = [value for value in sorted(operands) if tape.depends[value] & ~PARAMS]
    for name in mismatch.event.call.inputs:
        x = np.asarray(aligned.recording.arrays[name], np.float64)
        for value in data:
            array = np.asarray(aligned.arrays[value])
            if array.shape != x.shape or not Core.of(x).same(Core.of(array), LOOSE):
                continue
            if _reproduces(aligned, mismatch, {value: x}):
                yield ConfirmedCause(
                    "flatten_order",
                    "the port joins the axes of the input in another order: with the recorded "
                    "order, its result matches the recording",
                    value,
                )
                return


def _activations(aligned: Alignment, mismatch: Mismatch, end: int) -> Iterator[ConfirmedCause]:
    """Find two functions of the same value, at least one of them a known activation."""
    y = np.asarray(aligned.arrays[end], np.float64)
    recorded = arrangements_like(aligned.value(mismatch.events[-1]), y)
    for value in _sources(aligned, end):
        x = np.asarray(aligned.arrays[value], np.float64)
        if x.size != y.size or not recorded:
            continue
        for arranged in [x] if x.shape == y.shape else arrangements_like(x, y)[:3]:
            names = [
                name_function(np.ravel(arranged), np.ravel(each), CONFIRMED)
                for each in (recorded[0], y)
            ]
            if None not in names and names[0] != names[1]:
                evidence = f"{names[0]} in the recording, {names[1]} in the port"
                yield ConfirmedCause("activation", evidence)
                return


def _sources(aligned: Alignment, end: int) -> list[int]:
    """Return the values that the differing part reads, the equal ones first."""
    tape = aligned.tape
    steps = tape.steps_for([end], aligned.forced)
    operands = {tape.roots[v] for step in steps for v in step.operands}
    data = [v for v in operands if tape.depends[v] & ~PARAMS]
    return sorted(data, key=lambda value: (value not in aligned.forced, value))


def _scales(aligned: Alignment, mismatch: Mismatch) -> Iterator[ConfirmedCause]:
    """Find the factor of attention's logits, or a mask, that gives the recorded result."""
    tape, steps = aligned.tape, steps_of(aligned, mismatch)
    sizes = {n for step in steps for v in step.results for n in np.shape(tape.arrays[v])}
    for index, exponential in enumerate(steps):
        maxima = [step for step in steps[:index] if step.name == "reduce_max"]
        if exponential.name != "exp" or not maxima:
            continue
        logits = tape.roots[maxima[-1].operands[0]]
        array = np.asarray(aligned.arrays[logits], np.float64)
        for size in sorted(sizes - {1}):
            factors = {f"1/sqrt({size})": size**-0.5, f"sqrt({size})": size**0.5,
                       f"1/{size}": 1 / size}  # fmt: skip
            for words, factor in factors.items():
                if _reproduces(aligned, mismatch, {logits: array * factor}):
                    yield ConfirmedCause(
                        "attention_scale",
                        f"with the logits multiplied by {words}, the port's result matches "
                        "the recording",
                        logits,
                    )
                    return
        if array.ndim > 1 and array.shape[-1] == array.shape[-2]:
            causal = np.tril(np.ones(array.shape[-2:], bool))
            if _reproduces(aligned, mismatch, {logits: np.where(causal, array, -1e30)}):
                evidence = "with a causal mask, the port's result matches the recording"
                yield ConfirmedCause("attention_mask", evidence, logits)
                return


def _sums(aligned: Alignment, mismatch: Mismatch) -> Iterator[ConfirmedCause]:
    """Find the two recorded values whose sum is the recorded one, where the port adds others."""
    recorded, recording = aligned.value(mismatch.event), aligned.recording
    earlier = [e.array for e in aligned.events[: mismatch.event.index]][-MAX_TERMS:]
    names = [*recording.inputs, *earlier]
    terms = [
        (name, np.asarray(recording.arrays[name], np.float64))
        for name in names
        if recording.arrays[name].shape == recorded.shape
    ]
    for index, (first_name, a) in enumerate(terms):
        for second_name, b in terms[index + 1 :]:
            if largest_difference(a + b, recorded)[1] > CONFIRMED:
                continue
            terms_added = " and ".join(
                _describe_value(aligned, name) for name in (first_name, second_name)
            )
            evidence = f"the recording adds {terms_added}"
            steps = [step for step in steps_of(aligned, mismatch) if step.name in SUMS]
            if steps:
                value = steps[-1].results[0]
                yield ConfirmedCause(
                    "residual_source", f"{evidence}; the port adds another value", value
                )
            else:
                yield ConfirmedCause("operation_missing", f"{evidence}; the port has no sum there")
            return


def _factors(aligned: Alignment, mismatch: Mismatch, end: int) -> Iterator[ConfirmedCause]:
    """Find results that differ by a factor."""
    computed = np.asarray(aligned.arrays[end], np.float64)
    for recorded in arrangements_like(aligned.value(mismatch.events[-1]), computed)[:2]:
        square = float(np.sum(computed * computed))
        factor = float(np.sum(computed * recorded)) / square if square else 0.0
        if (
            abs(factor - 1) > LEAST_FACTOR
            and largest_difference(factor * computed, recorded)[1] < LOOSE / 10
        ):
            yield ConfirmedCause(
                "constant", f"the recorded result is {factor:.6g} times the port's"
            )
            return


def _describe_value(aligned: Alignment, name: str) -> str:
    event = next((each for each in aligned.events if each.array == name), None)
    if event is None:
        return "the input"
    return f"the result of {event.scope}" if not event.is_code else f"that of {event.scope}"


def _reproduces(aligned: Alignment, mismatch: Mismatch, values: Mapping[int, Array]) -> bool:
    """Return whether the port computes the recorded result with other values."""
    if mismatch.end is None:
        return False
    end = mismatch.end
    forced = {value: array for value, array in aligned.forced.items() if value != end}
    replayed = aligned.tape.replay({**forced, **values})
    return Core.of(replayed[end]).same(Core.of(aligned.value(mismatch.events[-1])), LOOSE / 2)
