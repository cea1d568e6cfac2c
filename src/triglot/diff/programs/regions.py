"""Find which values of two programs have no counterpart, and which of them reach the results.

A value on which nothing depends is no counterpart: a port may compute the mean and then read the
maximum.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..types import Operation
from . import places
from .tape import Step, Tape
from .values import View, close


@dataclass(eq=False)
class Region:
    """The values of one program that have no counterpart and on which differing results depend.

    Attributes:
      view: the program.
      values: the computed values, in order.
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
        step = self.tape.producers.get(value)
        operands = () if step is None else step.operands
        roots = (self.tape.roots[operand] for operand in operands)
        return [root for root in roots if not self.tape.is_constant(root)]

    def steps(self, values: Iterable[int]) -> list[Step]:
        """Return the steps that compute some values, in order."""
        producers = self.tape.producers
        found = {producers[value] for value in values if value in producers}
        return sorted(found, key=lambda step: step.index)


@dataclass(frozen=True, eq=False)
class RegionPart:
    """The part of a region that computes one result.

    Attributes:
      region: the region of the program.
      values: what is computed in the part, in order, and leaves without a counterpart.
      end: its result; None if none was found that ends a part of the other program, too.
    """

    region: Region
    values: list[int]
    end: int | None = None

    @classmethod
    def ending_at(cls, region: Region, end: int) -> "RegionPart":
        """Return the part that computes a value of the region."""
        return cls(region, sorted(region.ancestors.get(end, ())), end)

    @property
    def view(self) -> View:
        return self.region.view

    @property
    def tape(self) -> Tape:
        return self.region.tape

    @property
    def steps(self) -> list[Step]:
        """The steps that compute its values, in order."""
        return self.region.steps(self.values)

    @property
    def names(self) -> set[str]:
        """The names of its operations."""
        return {step.name for step in self.steps}

    @property
    def inputs(self) -> list[int]:
        """The values with a counterpart from which it is computed."""
        sources = {source for value in self.values for source in self.region.sources(value)}
        return sorted(sources & self.region.boundary)

    @property
    def first(self) -> int | None:
        """The first computed value, or the first leaf."""
        computed = (value for value in self.values if value in self.tape.producers)
        return next(computed, next(iter(self.values), None))

    @property
    def last(self) -> int | None:
        """The first value with the numbers of its result; the first of all if it has no end."""
        if self.end is None:
            return self.first
        # Adding a bias of 0 does not change the numbers: the product before it is the result.
        core = self.view.core(self.end)
        equal_values = (value for value in self.values if self.view.core(value).same(core, 0.0))
        return next(equal_values, self.end)

    def operation(self, *, last: bool = False) -> Operation | None:
        """Describe its first operation, or the `last`; None if it is empty."""
        value = self.last if last else self.first
        return None if value is None else places.operation(self.tape, value)


def differing_outputs(first_view: View, second_view: View, tolerance: float) -> list[int]:
    """Return the positions of the outputs that differ."""
    pairs = zip(first_view.tape.outputs, second_view.tape.outputs, strict=False)
    indices = []
    for index, (first, second) in enumerate(pairs):
        pair = first_view.arrays[first], second_view.arrays[second]
        a, b = (np.asarray(array).astype(np.float64, copy=False) for array in pair)
        if not close(a, b, tolerance):
            indices.append(index)
    return indices


def _operation_name(tape: Tape, value: int) -> str:
    """Return the operation that computes a value."""
    step = tape.step_of(value)
    return "" if step is None else step.name


def region(view: View, other_view: View, results: Sequence[int]) -> Region:
    """Walk back from results that differ, over the values that the other program lacks."""
    tape, reached_region = view.tape, Region(view)
    start = [tape.roots[value] for value in results]
    visited: set[int] = set()

    @functools.cache
    def has_counterpart(value: int) -> bool:
        array = view.arrays[value]
        if not isinstance(array, np.ndarray):
            return True
        core, is_integer = view.core(value), array.dtype.kind in "iu" and value in tape.producers
        if not is_integer or core.array.size > 1:
            return other_view.has(core)
        # One whole number, such as the same index of all examples, is easily found by chance.
        equal = other_view.find_all(core)
        return any(
            _operation_name(other_view.tape, each) == _operation_name(tape, value) for each in equal
        )

    pending = [value for value in start if not has_counterpart(value)]
    while pending:
        value = pending.pop()
        if value in visited:
            continue
        visited.add(value)
        if value not in tape.producers:
            reached_region.leaves.add(value)
            continue
        for source in reached_region.sources(value):
            if has_counterpart(source):
                reached_region.boundary.add(source)
            else:
                pending.append(source)
    reached_region.boundary.update(value for value in start if has_counterpart(value))
    reached_region.values = sorted(visited - reached_region.leaves)
    reached_region.ancestors.update((leaf, frozenset({leaf})) for leaf in reached_region.leaves)
    for value in reached_region.values:
        ancestors = {value}
        for source in reached_region.sources(value):
            ancestors |= reached_region.ancestors.get(source, frozenset())
        reached_region.ancestors[value] = frozenset(ancestors)
    return reached_region
