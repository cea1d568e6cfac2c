"""The values of a recording in the order in which they were computed, and what computed them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .reading import Call, Recording

SMALL = 2  # numbers that anything may have


@dataclass(frozen=True, eq=False)
class Event:
    """A value that a module returned, or that the code between modules computed.

    Attributes:
      index: the position in the order of computation.
      array: the name of the array in the recording.
      call: the call of the module; for code between modules, of the module whose code it is.
      is_code: whether it was computed between modules.
      after, before: the calls between which that code is; None at its ends.
    """

    index: int
    array: str
    call: Call
    is_code: bool
    after: Call | None = None
    before: Call | None = None

    @property
    def operation(self) -> str:
        """What a report calls it: the class of a module."""
        return "code" if self.is_code else self.call.kind

    @property
    def scope(self) -> str:
        """Which module it is, or between which the code is."""
        if not self.is_code:
            return self.call.name
        return f"{self.call.kind}, {self.between}"

    @property
    def between(self) -> str:
        """The modules between which code is."""
        if self.before is not None and self.after is not None:
            return f"between {self.after.name} and {self.before.name}"
        if self.before is not None:
            return f"before {self.before.name}"
        return f"after {self.after.name}" if self.after is not None else "without modules"

    @property
    def source(self) -> str:
        """Its `file:line` in the recorded model."""
        if self.is_code and self.before is not None and self.before.source:
            return self.before.source
        return (self.call.defined_at if self.is_code else "") or self.call.source

    @property
    def time(self) -> int:
        """The number of calls that had begun before what follows."""
        if not self.is_code:
            return self.call.finished
        return self.before.index if self.before is not None else self.call.finished


def events_of(recording: Recording) -> list[Event]:
    """List the floating-point values that are not inputs, each where it first occurs."""
    events: list[Event] = []
    names_seen = {*recording.inputs, *aliases_of(recording)}
    last_ended: dict[int | None, Call] = {}  # the last module, by the module that it is in

    def add(name: str, call: Call, *, is_code: bool, before: Call | None = None) -> None:
        array = recording.arrays[name]
        if (
            name in names_seen
            or name.startswith("weights/")
            or (is_code and _is_weight(recording, array))
        ):
            return
        names_seen.add(name)
        if array.dtype.kind == "f" and np.unique(array[np.isfinite(array)]).size > SMALL:
            last_before = last_ended.get(call.index) if is_code else None
            events.append(Event(len(events), name, call, is_code, last_before, before))

    for call, begins in _begins_and_ends(recording.calls):
        if begins:
            if call.parent is not None:
                for name in call.inputs:
                    add(name, recording.calls[call.parent], is_code=True, before=call)
        else:
            for name in call.outputs:
                add(name, call, is_code=not call.is_leaf)
            last_ended[call.parent] = call
    return events


def _is_weight(recording: Recording, array: np.ndarray) -> bool:
    """Check for a parameter that a module gets as an input, as that of weight normalization."""
    return any(
        array.shape == each.shape and np.array_equal(array, each)
        for each in recording.weights.values()
    )


def aliases_of(recording: Recording) -> dict[str, str]:
    """Map results of modules that only rearrange, as a flattening does, to what they rearrange."""
    aliases: dict[str, str] = {}
    for call in recording.calls:
        if not call.is_leaf or call.weights or len(call.inputs) != 1 or len(call.outputs) != 1:
            continue
        x, y = (recording.arrays[name] for name in (*call.inputs, *call.outputs))
        is_rearranged = call.inputs != call.outputs and x.size == y.size and x.shape != y.shape
        if is_rearranged and np.array_equal(np.sort(x, None), np.sort(y, None)):
            aliases[call.outputs[0]] = call.inputs[0]
    return aliases


def _begins_and_ends(calls: tuple[Call, ...]) -> Iterator[tuple[Call, bool]]:
    """Yield the calls as they begin and end."""
    pending: list[Call] = []
    for call in calls:
        while pending and pending[-1].finished <= call.index:
            yield pending.pop(), False
        yield call, True
        pending.append(call)
    while pending:
        yield pending.pop(), False


def consumers(recording: Recording, event: Event) -> list[str]:
    """List the values that depend on this one: results of modules that read it or contain it."""
    names = [n for c in recording.calls if event.array in c.inputs for n in c.outputs]
    parent = event.call.index if event.is_code else event.call.parent
    while parent is not None:
        names += recording.calls[parent].outputs
        parent = recording.calls[parent].parent
    return [name for name in dict.fromkeys(names) if name != event.array]
