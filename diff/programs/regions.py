"""Find which values of two programs have no counterpart, and which of them reach the results."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .tape import Tape
from .values import View, close


@dataclass(eq=False)
class Region:
    """The values of one program that have no counterpart and on which differing results depend.

    Attributes:
      view: the program.
      values: computed ones, in order.
      boundary: values with a counterpart, from which they are computed.
      leaves: parameters, state or inputs without a counterpart.
      ancestors: the values of the region on which a value depends, itself included.
    """

    view: View
    values: list[int] = field(default_factory=list)
    boundary: set[int] = field(default_factory=set)
    leaves: set[int] = field(default_factory=set)
    ancestors: dict[int, frozenset[int]] = field(default_factory=dict)

    @property
    def tape(self) -> Tape:
        return self.view.tape

    def sources(self, value: int) -> list[int]:
        """Return the values computed from data that a value is computed from."""
        if value not in self.tape.producers:
            return []
        step = self.tape.steps[self.tape.producers[value]]
        return _data_roots(self.tape, step.operands)

    def inputs(self, values: Iterable[int]) -> list[int]:
        """Return the boundary of some values of the region."""
        found = {source for value in values for source in self.sources(value)}
        return sorted(found & self.boundary)


def consumers(tape: Tape, value: int) -> list[int]:
    """Return the steps, other than rearrangements, that read a value or a rearrangement of it."""
    return tape.readers.get(tape.roots[value], [])


def differing(one: View, other: View, tolerance: float) -> list[int]:
    """Return the positions of the outputs that differ."""
    pairs = zip(one.tape.outputs, other.tape.outputs, strict=False)
    found = []
    for index, (first, second) in enumerate(pairs):
        a, b = (np.asarray(view.arrays[v]) for view, v in ((one, first), (other, second)))
        wide = [array.astype(np.float64) for array in (a, b)]
        if a.shape != b.shape or not close(wide[0], wide[1], tolerance):
            found.append(index)
    return found


def region(view: View, other: View, results: Sequence[int]) -> Region:
    """Walk back from results that differ, over the values that the other program lacks."""
    tape, found = view.tape, Region(view)
    start = [tape.roots[value] for value in results]
    matched: dict[int, bool] = {}
    reached: set[int] = set()

    def has_counterpart(value: int) -> bool:
        if value not in matched:
            array = view.arrays[value]
            known = not isinstance(array, np.ndarray) or other.has(view.core(value))
            matched[value] = known
        return matched[value]

    pending = [value for value in start if not has_counterpart(value)]
    while pending:
        value = pending.pop()
        if value in reached:
            continue
        reached.add(value)
        if value not in tape.producers:
            found.leaves.add(value)
            continue
        for source in found.sources(value):
            if has_counterpart(source):
                found.boundary.add(source)
            else:
                pending.append(source)
    found.boundary.update(value for value in start if has_counterpart(value))
    found.values = sorted(reached - found.leaves)
    found.ancestors.update((leaf, frozenset({leaf})) for leaf in found.leaves)
    for value in found.values:
        own = {value}
        for source in found.sources(value):
            own |= found.ancestors.get(source, frozenset())
        found.ancestors[value] = frozenset(own)
    return found


def _data_roots(tape: Tape, operands: Iterable[int]) -> list[int]:
    roots = (tape.roots[value] for value in operands)
    return [root for root in roots if not tape.is_constant(root)]
