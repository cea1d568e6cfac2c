"""Find the place of a recorded value that the port lacks."""

from collections.abc import Callable, Sequence

import numpy as np

from ...programs.values import Core
from ...types import Array
from .align import NEAR, Alignment, Mismatch, tolerance
from .events import Event
from .parts import arrangements_like, arrangements_through, masks

MAX_EXPLAINED = 6  # values of the port for which a cause is looked for
AHEAD = 4  # recorded values that follow, of which one must be found
MAX_SPAN = 3  # recorded values that one difference may cover


def find_end(aligned: Alignment, event: Event, explains: Callable[[Event, int], int]) -> Mismatch:
    """Find the port's value in whose place a recorded one belongs.

    Args:
      aligned: has the recorded values that were found.
      event: the recorded value.
      explains: returns the number of causes that are known for a value of the port in its place.

    Returns:
      With the recorded value in its place what follows is equal; else a cause is known, or the
      module's own parameters or its numbers say which it is. A difference covers several values
      where only the last of them has a place, as with two modules in another order.
    """
    if (end := aligned.places.get(event.array)) is not None:
        return Mismatch([event], end, aligned.forced[end], sure=True)
    following = [event, *(e for e in aligned.missing if e.index > event.index)][:MAX_SPAN]
    if mismatch := _confirmed_mismatch(aligned, following[:1]):
        return mismatch
    ends = aligned.ends(event)
    own_end = _own_end(aligned, event, ends)
    candidates = (_using_own(aligned, event, ends) or ends)[::-1][:MAX_EXPLAINED]
    if own_end is not None:  # what follows may be long, such as the steps of an activation
        candidates = [own_end, *(end for end in candidates if end != own_end)]
    counts = {end: count for end in candidates if (count := explains(event, end))}
    if counts:  # fewest, then the module's own, then the last: half an activation is explained, too
        return aligned.mismatch_at(event, min(counts, key=counts.__getitem__))
    for count in range(2, len(following) + 1):
        if following[count - 2].array in aligned.recording.outputs:
            break
        if mismatch := _confirmed_mismatch(aligned, following[:count]):
            return mismatch
    if own_end is not None:
        return aligned.mismatch_at(event, own_end)
    size = aligned.value(event).size
    inputs = [end for end in aligned.inputs(event) if np.size(aligned.arrays[end]) == size]
    if mismatch := _confirmed_mismatch(aligned, [event], inputs):
        return mismatch
    nearest, distance = aligned.nearest(event)
    if nearest is not None and distance <= NEAR:
        return aligned.mismatch_at(event, nearest)
    return Mismatch([event], nearest)


def _confirmed_mismatch(
    aligned: Alignment, events: list[Event], ends: Sequence[int] | None = None
) -> Mismatch | None:
    """Find the place of the last of some values with which what follows is equal.

    Later places come first: half an activation may have the same effect.

    Args:
      aligned: has the recorded values that were found.
      events: the recorded values that the difference covers.
      ends: places in which the value is tried; None for all that it may have.
    """
    last = events[-1]
    ends = aligned.ends(last) if ends is None else ends
    for end in ends[::-1]:
        options = arrangements_through(aligned.tape, end, aligned.value(last))
        for array in (*options, *arrangements_like(aligned.value(last), aligned.arrays[end])[:2]):
            if _follows(aligned, last, end, array, alone=len(events) == 1):
                return Mismatch(events, end, array, sure=True)
    return None


def _using_own(aligned: Alignment, event: Event, ends: Sequence[int]) -> list[int]:
    """Return those of some values that are computed with a module's own parameters."""
    own_bits = 0 if event.is_code else aligned.bits(event.call.weights)
    bits = masks(aligned.tape, aligned.forced) if own_bits else []
    return [end for end in ends if own_bits and bits[end] & own_bits]


def _own_end(aligned: Alignment, event: Event, ends: Sequence[int]) -> int | None:
    """Return the first of some values after which nothing reads a module's own parameters."""
    computed_with_own = _using_own(aligned, event, ends)
    if not computed_with_own:
        return None
    own_bits = aligned.bits(event.call.weights)
    reading = [end for end in computed_with_own if _reads(aligned, end, own_bits)]
    return max(reading, default=computed_with_own[-1])


def _reads(aligned: Alignment, value: int, own_bits: int) -> bool:
    """Return whether the step that computes a value reads some parameters directly."""
    bits = masks(aligned.tape, aligned.forced)
    step = aligned.tape.producers[value]
    return any(
        bits[operand] & own_bits and not aligned.tape.depends[operand] & ~1
        for operand in step.operands
    )


def _follows(aligned: Alignment, event: Event, end: int, array: np.ndarray, *, alone: bool) -> bool:
    """Return whether recorded values that follow are found with one in the port's place."""
    ends_here = alone and event.array in aligned.recording.outputs
    if ends_here and aligned.tape.roots[end] in {
        aligned.tape.roots[v] for v in aligned.tape.outputs
    }:
        return True
    expected = [aligned.cores[e.array] for e in aligned.missing if e.index > event.index][:AHEAD]
    matches: list[Core] = []

    def agrees(value: int, computed: Array) -> bool:
        if aligned.tape.roots[value] == value and isinstance(computed, np.ndarray):
            core = Core.of(computed)
            matches.extend(
                expected_core
                for expected_core in expected
                if expected_core.same(core, tolerance(expected_core))
            )
        return bool(matches)

    aligned.tape.replay({end: array}, arrays=aligned.arrays, unchanged=aligned.forced, until=agrees)
    return bool(matches)
