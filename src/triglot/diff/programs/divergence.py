"""Find the smallest parts of two programs in which they diverge, by substituting values.

A pair of values ends such a part if the second program, given the first one's value in place of its
own, computes the values that follow in the first.
"""

import contextlib
import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ..types import Array, Difference
from .regions import Region, RegionPart, differing_outputs, region
from .sums import moves_sign, partial_sums
from .tape import Operand, Step
from .values import Core, View, close, in_place_of, largest_difference

T = TypeVar("T")

MAX_CANDIDATES = 60  # values of each program, in order
MAX_PAIRS = 600  # tried with the operations that follow directly
MAX_NEAR = 250  # tried where one is known
MAX_REPLAYS = 40  # tried with all that follows
NEARLY = 4.0  # times the tolerance, where the results differed by that much more
ROUNDING = 2.0**-16  # of float32 sums in another order, relative to the largest value


@dataclass(frozen=True, eq=False)
class Divergence:
    """Two parts of the programs with equal inputs and different results.

    Attributes:
      search: the search, which has the programs' regions.
      parts: the part of each program; both have an end or none has.
      values, operands: replacements that give the second program the first one's result.
      substitute: the first one's result, in the layout of the second one's; None without an end.
    """

    search: "Search"
    parts: tuple[RegionPart, RegionPart]
    values: Mapping[int, Array] = field(default_factory=dict)
    operands: Mapping[Operand, Array] = field(default_factory=dict)
    substitute: np.ndarray | None = None

    def results(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return both results in the second one's layout; None if the parts have no end."""
        second_part = self.parts[1]
        if self.substitute is None or second_part.end is None:
            return None
        return np.asarray(self.substitute), second_part.view.array(second_part.end)

    def size(self) -> tuple[float, float]:
        """Return the largest absolute and relative difference of the two results."""
        pair = self.results()
        if pair is None:
            return float("nan"), float("nan")
        first_result, second_result = (
            array if array.dtype.kind == "c" else array.astype(np.float64) for array in pair
        )
        return largest_difference(first_result, second_result)

    def agrees_with_numbers(self, numbers: Mapping[Operand, float]) -> bool:
        """Return whether the second program computes the first one's result with other numbers."""
        arrays = self.parts[1].tape.arrays
        return self.agrees(
            {},
            {
                (step, position): np.full(np.shape(arrays[step.operands[position]]), number)
                for (step, position), number in numbers.items()
            },
        )

    def agrees_with_operand(self, value: int, operand: Operand) -> bool:
        """Return whether the second program computes the first one's result from an operand of it.

        Args:
          value: the value of the first program.
          operand: where the second program reads it, in that operand's shape or the result's.
        """
        view, (step, position) = self.parts[1].view, operand
        array = self.parts[0].view.array(value)
        for replaced in (step.operands[position], step.results[0]):
            with contextlib.suppress(ValueError):  # another layout
                arranged = np.broadcast_to(array, view.array(replaced).shape)
                return self.agrees({}, {operand: arranged})
        return False

    def agrees(
        self, values: Mapping[int, Array], operands: Mapping[Operand, Array] | None = None
    ) -> bool:
        """Return whether the second program computes the first one's result.

        Args:
          values: arrays in place of its values.
          operands: arrays in place of operands.
        """
        view, end = self.parts[1].view, self.parts[1].end
        if self.substitute is None or end is None:
            return False
        replaced = [*values.items()]
        replaced += [(step.operands[i], array) for (step, i), array in (operands or {}).items()]
        if any(np.asarray(array).dtype.kind != view.array(v).dtype.kind for v, array in replaced):
            return False
        arrays = view.tape.replay(values, operands, arrays=view.arrays, steps=self._steps_to_end)
        expected, computed = np.asarray(self.substitute), np.asarray(arrays[end])
        tolerance = self.search.tolerance
        if close(expected, computed, tolerance):
            return True
        # The operands may differ by almost the tolerance.
        original = view.array(end)
        return close(expected, computed, NEARLY * tolerance) and not close(
            expected, original, NEARLY**2 * tolerance
        )

    @cached_property
    def _steps_to_end(self) -> list[Step]:
        """The steps of the second program from which its result is computed."""
        end = self.parts[1].end
        return [] if end is None else self.parts[1].tape.steps_for([end])

    def as_difference(self, *, last: bool = False) -> Difference:
        """Describe the first operation of each part, or the `last`."""
        first_operation, second_operation = (part.operation(last=last) for part in self.parts)
        largest, relative = self.size()
        return Difference(
            one=first_operation, other=second_operation, max_abs=largest, max_rel=relative
        )


def find(first_view: View, second_view: View) -> Divergence | None:
    """Find the first divergence of two programs.

    Args:
      first_view, second_view: the programs; with a tolerance of 0, the first rounding that differs
        is found.

    Returns:
      None if the outputs are equal.
    """
    slots = differing_outputs(first_view, second_view, first_view.tolerance)
    if not slots:
        return None
    first = region(first_view, second_view, [first_view.tape.outputs[slot] for slot in slots])
    second = region(second_view, first_view, [second_view.tape.outputs[slot] for slot in slots])
    search = Search(first, second, slots)
    if not any(walked.values or walked.leaves for walked in (first, second)):
        return _rearranged_outputs(search)
    exact = first_rounding(search) if first_view.tolerance == 0 else None
    return exact or smallest(search)


def find_hidden(first_view: View, second_view: View) -> Divergence | None:
    """Find the first rounding of two programs that differs, whether or not it reaches an output."""
    regions = (
        region(first_view, second_view, first_view.data_values()),
        region(second_view, first_view, second_view.data_values()),
    )
    return first_rounding(Search(*regions, []))


def _rearranged_outputs(search: "Search") -> Divergence:
    """Describe outputs that hold the same numbers in another order."""
    first_view, second_view, slot = search.first.view, search.second.view, search.slots[0]
    a, b = first_view.tape.outputs[slot], second_view.tape.outputs[slot]
    roots = ([first_view.tape.roots[a]], [second_view.tape.roots[b]])
    array = first_view.array(a)
    if array.shape != np.shape(second_view.arrays[b]):
        return Divergence(
            search, (RegionPart(search.first, roots[0]), RegionPart(search.second, roots[1]))
        )
    parts = RegionPart(search.first, roots[0], a), RegionPart(search.second, roots[1], b)
    return Divergence(search, parts, {b: array}, substitute=array)


def smallest(search: "Search") -> Divergence:
    """Find the smallest parts that end in a pair of values; the whole regions if there is none."""
    if (divergence := next(search.parts(), None)) is not None:
        return divergence
    first_region, second_region = search.first, search.second
    return Divergence(
        search,
        (
            RegionPart(first_region, first_region.values),
            RegionPart(second_region, second_region.values),
        ),
    )


def first_rounding(search: "Search") -> Divergence | None:
    """Find the first parts whose results are equal up to rounding only; None if there are none.

    A single operation with equal operands is such a part. A sum in another order has other partial
    sums, so that its part is long, and it is found by substitution; unlike in `smallest`, in the
    order of the first program.
    """
    first, second, likely = search.first, search.second, None
    for a in first.values:
        for b in second.view.find_all(first.view.core(a), ROUNDING):
            if b not in second.ancestors or b in second.leaves:
                continue
            array = next(search.substitutes(a, b), None)
            if array is None:
                continue
            divergence = search.divergence_at(a, b, array)
            if search.have_equal_operands(a, b):
                return divergence
            if (checked := search.next_agree(a, b)) is not None:
                return checked
            likely = likely or divergence
    return likely


class Search:
    """Search for the parts of two regions in which the programs diverge.

    Attributes:
      first, second: the region of each program; `regions` has both.
      slots: positions of the outputs that differ.
      tolerance: the largest relative difference of equal values.
    """

    def __init__(self, first_region: Region, second_region: Region, slots: list[int]) -> None:
        self.first, self.second, self.slots = first_region, second_region, slots
        self.regions = first_region, second_region
        self.tolerance = first_region.view.tolerance
        self._answers: dict[Hashable, Any] = {}

    def once(self, question: Hashable, answer: Callable[[], T]) -> T:
        """Answer a question that concerns no single divergence once, and remember the answer."""
        if question not in self._answers:
            self._answers[question] = answer()
        return self._answers[question]

    def parts(self, *, far: bool = True) -> Iterator[Divergence]:
        """Yield parts that end in a pair of values, the smallest first.

        Args:
          far: whether many pairs are tried, and all that follows.
        """
        pairs = list(self.pairs())
        checks = [(self.next_agree, MAX_PAIRS if far else MAX_NEAR)]
        checks += [(self.later_agree, MAX_REPLAYS)] if far else []
        for check, count in checks:
            for a, b in pairs[:count]:
                if (divergence := check(a, b)) is not None:
                    yield divergence

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield pairs of values of equal size, those that end the smallest parts first.

        Parts of very different sizes are tried later: one layer of the first program may agree with
        the next layer of the second.
        """
        sides = []
        for side in (self.first, self.second):
            values = [*sorted(side.boundary | side.leaves), *side.values[:MAX_CANDIDATES]]
            sides.append([(value, len(side.ancestors.get(value, ()))) for value in values])
        pairs = [
            (size + more + abs(size - more) / 2 + self.lonely(a, b), -a, -b, a, b)
            for (a, size), (b, more) in itertools.product(*sides)
            if size + more and self.fits(a, b)
        ]
        for *_, a, b in sorted(pairs):
            yield a, b

    def lonely(self, a: int, b: int) -> float:
        """Penalize a part without a counterpart, more so one of many steps: half an activation.

        A part that reads a parameter without a counterpart, such as a bias, is expected to be one.
        """
        parts = (
            self.first.ancestors.get(a, frozenset()),
            self.second.ancestors.get(b, frozenset()),
        )
        if all(parts) or parts[0] & self.first.leaves or parts[1] & self.second.leaves:
            return 0.0
        return 6.0 if max(map(len, parts)) > 3 else 1.5

    def fits(self, a: int, b: int) -> bool:
        first_view, second_view = self.first.view, self.second.view
        if first_view.arrays[a].dtype.kind != second_view.arrays[b].dtype.kind:
            return False
        cores = first_view.core(a).array.size == second_view.core(b).array.size
        if not cores and np.size(first_view.arrays[a]) != np.size(second_view.arrays[b]):
            return False
        if first_view.core(a).same(second_view.core(b), self.tolerance):
            return False
        if not first_view.tape.of_batches:
            return True
        partial = self.once(partial_sums, lambda: partial_sums(self.first, self.second, self.slots))
        if (0, a) in partial or (1, b) in partial:
            return False
        return not moves_sign(self.first, self.second, a, b)

    def substitutes(self, a: int, b: int) -> Iterator[np.ndarray]:
        first_view, second_view = self.first.view, self.second.view
        yield from in_place_of(first_view.core(a), first_view.array(a), second_view.array(b))

    def have_equal_operands(self, a: int, b: int) -> bool:
        """Return whether two values are computed by the same operation from equal ones."""
        sides = []
        for side, value in ((self.first, a), (self.second, b)):
            if side.ancestors[value] != {value}:
                return False
            sides.append(side.view.cores(side.sources(value)))
        names = self.first.tape.producers[a].name, self.second.tape.producers[b].name
        return names[0] == names[1] and all(
            any(core.same(each, 0.0) for each in sides[1]) for core in sides[0]
        )

    def next_agree(self, a: int, b: int) -> Divergence | None:
        """Check whether a step that reads the substituted value agrees with the first program."""
        core, substituted = self.first.view.core, self.first.view.core(a)
        results = [
            value
            for step in _readers(self.first.view, a)
            for value in step.results
            if not core(value).same(substituted, self.tolerance)
        ]
        result_cores = list(map(core, results))
        compared = self.compared(self.first)
        expected = [core(value) for value in results if value in compared]
        ends = set(self.slots_of(self.first, a)) & set(self.slots_of(self.second, b))
        if not expected and not ends:
            return None
        tape, view = self.second.tape, self.second.view
        compared = self.compared(self.second)
        reading = [
            step for step in _readers(self.second.view, b) if not compared.isdisjoint(step.results)
        ]
        steps = sorted([*tape.rearrangements_of(b), *reading], key=lambda step: step.index)
        for array in self.substitutes(a, b):
            if ends and self.slot_agrees(min(ends), array, b):
                return self.divergence_at(a, b, array)
            if not reading:
                continue
            arrays = tape.replay({b: array}, arrays=view.arrays, steps=steps)
            cores = {step: [Core.of(arrays[v]) for v in step.results] for step in reading}
            if any(self.is_among(core, expected) for each in cores.values() for core in each):
                agreeing_steps = [
                    step
                    for step, each in cores.items()
                    if any(self.is_among(core, result_cores) for core in each)
                ]
                return self.divergence_at(a, b, array, agreeing_steps, arrays)
        return None

    def agree(self, a: int, b: int) -> Divergence | None:
        """Check whether what reads the substituted value, or anything that follows, agrees."""
        return self.next_agree(a, b) or self.later_agree(a, b)

    def later_agree(self, a: int, b: int) -> Divergence | None:
        """Check whether any value that follows agrees with the first program.

        All of it is evaluated again, so that a pair that several causes ask for is checked once.
        """
        return self.once(("later", a, b), lambda: self._later_agree(a, b))

    def _later_agree(self, a: int, b: int) -> Divergence | None:
        if b in self.second.boundary:
            return None
        tape, arrays = self.second.tape, self.second.view.arrays
        expected = self.first.view.cores(_following_values(self.first, a))
        followers = frozenset(_following_values(self.second, b))
        steps = tape.steps_for(followers)
        equal: list[int] = []

        def agrees(value: int, array: Array) -> bool:
            if value in followers and self.is_among(Core.of(array), expected):
                equal.append(value)
            return bool(equal)

        for array in self.substitutes(a, b):
            tape.replay({b: array}, arrays=arrays, steps=steps, until=agrees)
            if equal:
                return self.divergence_at(a, b, array)
        return None

    def divergence_at(
        self,
        a: int,
        b: int,
        array: np.ndarray,
        agreeing_steps: Sequence[Step] = (),
        arrays_after: Sequence[Array] = (),
    ) -> Divergence:
        """Return the divergence that ends in a pair of values, of which the second is replaced.

        Args:
          a, b: the values of the first and of the second program.
          array: the first one's result, in the layout of the second one's.
          agreeing_steps: the steps that agree after the substitution, the only ones that get it if
            the second program has the value elsewhere too.
          arrays_after: the values of the second program after the substitution.
        """
        values = {b: array}
        operands: dict[Operand, Array] = {}
        if b in self.second.boundary:  # which other steps may read too
            tape = self.second.tape
            for step in agreeing_steps:
                for position, value in enumerate(step.operands):
                    if tape.roots[value] == b:
                        operands[step, position] = arrays_after[value]
            slots = () if agreeing_steps else self.slots_of(self.second, b)
            outputs = [tape.outputs[slot] for slot in slots]
            arrays = self.second.view.arrays
            values = {value: np.reshape(array, np.shape(arrays[value])) for value in outputs}
        return self.replacing(a, b, values, operands, array)

    def replacing(
        self,
        a: int,
        b: int,
        values: Mapping[int, Array],
        operands: Mapping[Operand, Array],
        substitute: np.ndarray | None = None,
    ) -> Divergence:
        """Return the divergence that ends in a pair of values, with the given replacements."""
        parts = RegionPart.ending_at(self.first, a), RegionPart.ending_at(self.second, b)
        return Divergence(self, parts, values, operands, substitute)

    def substitute_aligned(self, a: int, b: int, first: int, second: int) -> Divergence | None:
        """Substitute a value in the arrangement in which two equal values, its arguments, agree.

        Args:
          a, b: the values of the first and of the second program.
          first, second: the values of which they are elementwise functions.
        """
        expected = self.second.view.array(second)
        arguments = self.substitutes(first, second)
        for argument, array in zip(arguments, self.substitutes(a, b), strict=False):
            if close(argument, expected, self.tolerance):
                return self.divergence_at(a, b, array)
        return None

    def is_among(self, core: Core, cores: list[Core]) -> bool:
        """Return whether one of some values has the same numbers."""
        return any(core.same(each, self.tolerance) for each in cores)

    def slots_of(self, region: Region, value: int) -> list[int]:
        """Return the outputs that are a value, or have its numbers and are computed from it."""
        core, tape = region.view.core, region.tape
        outputs = [(slot, tape.roots[tape.outputs[slot]]) for slot in self.slots]
        return [
            slot
            for slot, output in outputs
            if output == value
            or (value in region.ancestors.get(output, ()) and core(output).same(core(value), 0.0))
        ]

    def compared(self, region: Region) -> Set[int]:
        """Return the values without a counterpart, and the outputs that differ.

        An output has a counterpart if the other program computes it from it, as `x` where the other
        one joins a function of one half of `x` with the other half.
        """
        outputs = (region.tape.roots[region.tape.outputs[slot]] for slot in self.slots)
        return self.once(("compared", region), lambda: {*region.ancestors, *outputs})

    def slot_agrees(self, slot: int, array: np.ndarray, b: int) -> bool:
        tape = self.second.tape
        arrays = tape.replay({b: array}, arrays=self.second.view.arrays)
        expected = self.first.view.array(self.first.tape.outputs[slot])
        return close(expected, np.asarray(arrays[tape.outputs[slot]]), self.tolerance)


def _readers(view: View, value: int) -> list[Step]:
    """Return the steps that read a value, with zeros around it, or less a mean of 0."""
    steps = view.tape.readers_of(value)
    results = [
        result
        for step in steps
        for result in step.results
        if step.name == "pad" or view.core(result).same(view.core(value), 0.0)
    ]
    return [*steps, *(step for result in results for step in view.tape.readers_of(result))]


def _following_values(region: Region, value: int) -> list[int]:
    start = region.view.core(value)
    return [
        later
        for later in region.values
        if later != value
        and value in region.ancestors[later]
        and not start.same(region.view.core(later), region.view.tolerance)
    ]
