"""Find each recorded value among those of the port's program, and the first that it lacks.

Two programs are aligned step by step (`diff.programs.divergence`). A recording has values and no
steps between them, so its values are looked for in the port's program. Both use the same values,
substitution and catalogue, and a recorded layer with a formula is compared as a program.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...programs.tape import DATA, Tape
from ...programs.values import Core, View, largest_difference
from ...types import Array
from .events import Event, aliases_of, consumers, events_of
from .parts import LOOSE, arrangements_like, masks
from .reading import Call, Recording

LOCAL = 2e-5  # of float32 sums in one module
NEAR = 0.05  # of a value that is computed in another way, relative to the largest number
TIGHT = 1e-5  # of few numbers, which others may have by chance
FEW = 8
EXACT = 1e-7
MAX_ENDS = 24  # values of the port that are tried for a recorded one


@dataclass(eq=False)
class Mismatch:
    """A recorded value that the port lacks although it has those that it is computed from.

    Attributes:
      events: the value, and those that follow up to the first that has a place in the port.
      end: the value of the port in its place; None if there is none.
      substitute: the recorded value, as the port arranges it.
      sure: whether what follows is found once the port has the recorded value there.
    """

    events: list[Event]
    end: int | None = None
    substitute: np.ndarray | None = None
    sure: bool = False

    @property
    def event(self) -> Event:
        """The first of its values."""
        return self.events[0]


@dataclass(eq=False)
class Alignment:
    """The recorded values and the port's program, evaluated with the recorded ones in it.

    Attributes:
      recording: the recording of the original.
      tape: the port's program in float64.
      names: the port's parameters by the recording's names.
      forced: recorded values by the port's value in whose place they are put.
      places: the port's value of each recorded one that was found.
      arrays: the port's values, computed from the forced ones.
      computed: the port's own results in the places of forced values.
      lost: recorded values without a place, on which others depend.
      settled: recorded values whose difference was explained.
    """

    recording: Recording
    tape: Tape
    names: Mapping[str, str]
    forced: dict[int, np.ndarray] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    arrays: list[Array] = field(default_factory=list)
    computed: dict[int, Array] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    settled: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.arrays = list(self.tape.arrays)
        self._find(self.events)
        self._evaluate()

    @cached_property
    def events(self) -> list[Event]:
        return events_of(self.recording)

    @cached_property
    def aliases(self) -> dict[str, str]:
        return aliases_of(self.recording)

    def place(self, name: str) -> int | None:
        """Return the port's value of a recorded one; None if it was not found."""
        while name in self.aliases and name not in self.places:
            name = self.aliases[name]
        return self.places.get(name)

    @cached_property
    def cores(self) -> dict[str, Core]:
        return {each.array: Core.of(self.recording.arrays[each.array]) for each in self.events}

    @property
    def missing(self) -> list[Event]:
        """The recorded values that were not found, in order."""
        return [e for e in self.events if e.array not in self.places and e.array not in self.lost]

    @property
    def outputs_agree(self) -> bool:
        """Whether the port, as it is, returns the recorded outputs."""
        recorded = [self.recording.arrays[name] for name in self.recording.outputs]
        computed = [np.asarray(self.tape.arrays[value]) for value in self.tape.outputs]
        return all(
            any(
                Core.of(recorded_output).same(Core.of(computed_output), LOOSE)
                for computed_output in computed
            )
            for recorded_output in recorded
            if recorded_output.dtype.kind == "f"
        )

    def _evaluate(self) -> None:
        """Compute the port's values with the recorded ones in their places, and find more."""
        count = -1
        while count < len(self.forced):
            count = len(self.forced)
            self.computed = {}
            self.arrays = self.tape.replay(self.forced, computed=self.computed)
            self._find(self.missing)

    def first_missing(self) -> Event | None:
        """Return the first value that the port lacks although it has what it is computed from.

        What the port computes in another way, such as three products as one, is not missing: what
        is computed from it is there.
        """
        for event in self.events:
            if event.array in self.settled or not self.is_off(event):
                continue
            if event.array not in self.places:
                if self._depends_on_lost(event):
                    self.lost.add(event.array)
                    continue
                later = any(name in self.places for name in consumers(self.recording, event))
                if later and self.nearest(event)[1] > NEAR:
                    continue
            return event
        return None

    def is_off(self, event: Event) -> bool:
        """Return whether the port lacks a value, or computes it with more than rounding error."""
        if event.array in self.lost:
            return False
        return event.array not in self.places or self.error(event)[1] > LOCAL

    def error(self, event: Event) -> tuple[float, float]:
        """Return how far the port's value is from a recorded one that was found."""
        end = self.places.get(event.array, -1)
        if end not in self.computed:
            return 0.0, 0.0
        return largest_difference(self.forced[end], np.asarray(self.computed[end]))

    def nearest(self, event: Event) -> tuple[int | None, float]:
        """Return the port's value nearest to a recorded one, and its relative distance."""
        ends = self.ends(event)
        if not ends:
            return None, float("inf")
        end = min(ends, key=lambda each: self._distance(event, each))
        scale = float(np.max(np.abs(self.value(event))))
        return end, self._distance(event, end) / scale

    def _depends_on_lost(self, event: Event) -> bool:
        if not event.is_code:
            return any(self.aliases.get(name, name) in self.lost for name in event.call.inputs)
        return any(name in self.lost for name in self._inside(event.call))

    def _inside(self, call: Call) -> set[str]:
        return {
            name
            for each in self.recording.calls[call.index : call.finished]
            for name in (*each.inputs, *each.outputs)
        }

    def value(self, event: Event) -> np.ndarray:
        return np.asarray(self.recording.arrays[event.array], np.float64)

    def arranged(self, event: Event, end: int) -> np.ndarray | None:
        """Return a recorded value as the port arranges one; None if they have other sizes."""
        return next(iter(arrangements_like(self.value(event), self.arrays[end])), None)

    def mismatch_at(self, event: Event, end: int) -> Mismatch:
        """Return a recorded value as one that the port has elsewhere, and differently."""
        return Mismatch([event], end, self.arranged(event, end))

    def _distance(self, event: Event, end: int) -> float:
        arranged = self.arranged(event, end)
        return (
            float("inf") if arranged is None else largest_difference(arranged, self.arrays[end])[0]
        )

    def ends(self, event: Event) -> list[int]:
        """List the port's values that may correspond to a recorded one, in order."""
        size, later = self.value(event).size, self._later(event)
        bits, tape = masks(self.tape, self.forced), self.tape
        inputs = self.inputs(event)
        first = max((tape.producers[v].index for v in inputs if v in tape.producers), default=-1)
        values = [
            value
            for value, array in enumerate(self.arrays)
            if tape.roots[value] == value
            and value in tape.producers
            and tape.depends[value] & DATA
            and isinstance(array, np.ndarray)
            and array.dtype.kind == "f"
            and array.size == size
            and value not in self.forced
            and tape.producers[value].index > first
            and not bits[value] & later
        ]
        return values[:MAX_ENDS]

    def inputs(self, event: Event) -> list[int]:
        """Return the port's values that a recorded one is computed from, as far as known."""
        names = event.call.inputs
        if event.is_code and event.after is not None:
            names = event.after.outputs
        return [end for name in names if (end := self.place(name)) is not None]

    def _later(self, event: Event) -> int:
        """Return bits of the parameters of modules that are called after a value is computed."""
        calls = self.recording.calls
        used = {name for call in calls[: event.time] for name in call.weights}
        later = {name for call in calls[event.time :] for name in call.weights} - used
        return self.bits(later)

    def bits(self, names: Iterable[str]) -> int:
        port_names = {self.names[name] for name in names if name in self.names}
        order = sorted(self.tape.leaves)
        return sum(1 << i for i, value in enumerate(order) if self.tape.leaves[value] in port_names)

    def substitute(self, mismatch: Mismatch) -> None:
        """Put a recorded value in its place and go on; without a place, it is lost."""
        self.settled.update(event.array for event in mismatch.events)
        for event in mismatch.events[:-1]:
            self.places[event.array] = -1
        last = mismatch.events[-1]
        self.settled.update(name for name, end in self.places.items() if end == mismatch.end)
        if mismatch.end is None or mismatch.substitute is None:
            self.lost.add(last.array)
            return
        self.places[last.array] = mismatch.end
        self.forced[mismatch.end] = mismatch.substitute
        self._evaluate()

    def _find(self, events: Iterable[Event]) -> None:
        view, bits = View(self.tape, self.arrays, LOOSE), masks(self.tape, self.forced)
        for event in events:
            core = self.cores[event.array]
            parameter_bits = 0 if event.is_code else self.bits(event.call.weights)
            # A new batch norm hardly changes its input, which is no result of it all the same.
            matching = [
                end
                for end in view.find_all(core, tolerance(core))
                if end in self.tape.producers and bits[end] & parameter_bits == parameter_bits
            ]
            ends = [end for end in matching if end not in self.forced]
            if not ends:
                equal_ends = [
                    end for end in matching if core.same(Core.of(self.forced[end]), EXACT)
                ]
                if equal_ends:  # the same numbers in another shape
                    self.places[event.array] = equal_ends[0]
                continue
            end = min(ends, key=lambda e: self._distance(event, e))
            self.places[event.array] = end
            arranged = self.arranged(event, end)
            if arranged is None:
                continue
            if largest_difference(arranged, self.arrays[end])[1] <= 10 * LOOSE:
                self.forced[end] = arranged


def tolerance(core: Core) -> float:
    return TIGHT if core.array.size < FEW else LOOSE
