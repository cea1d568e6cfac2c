"""Compare values whatever their layout: as sorted numbers, then by a permutation of axes."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from ..types import Array
from .tape import Tape

# The rounding of float32 constants in a float64 program, relative to the largest value. Epsilon
# 1e-05 against 1e-06 changes a normalized value by 4.5e-6.
TOLERANCE = 3e-7
SUMMED = 1e-9  # the rounding of a mean of float64 numbers, relative to the largest value
HUGE = 1e8
MIN_KNOWN = 2**14  # numbers of arrays whose comparisons are kept
MAX_SORTED = 2**20  # numbers that are kept sorted


@dataclass(frozen=True, eq=False)
class Core:
    """An array without the axes along which it is constant.

    Attributes:
      array: float64.
      axes: the axes of the whole array that are kept.
      low, high: its smallest and largest number, which equal arrays have in common; 0 if one is
        huge or none.
      scale: the largest magnitude of numbers that are not huge.
    """

    array: np.ndarray
    axes: tuple[int, ...]
    low: float
    high: float
    scale: float

    @classmethod
    def of(cls, array: Array) -> "Core":
        varying_axes, reduced = [], np.asarray(array)
        if reduced.dtype.kind == "c":  # both parts, along one more axis
            reduced = np.stack([np.real(reduced), np.imag(reduced)], -1)
        reduced = reduced.astype(np.float64, copy=False)
        for axis in range(reduced.ndim)[::-1]:
            if _is_constant(reduced, axis):
                reduced = np.moveaxis(reduced, axis, 0)[0]
            else:
                varying_axes.append(axis)
        low, high = (float(np.min(reduced)), float(np.max(reduced))) if reduced.size else (0.0, 0.0)
        if abs(low) < HUGE and abs(high) < HUGE:
            return cls(reduced, tuple(varying_axes[::-1]), low, high, max(abs(low), abs(high)))
        usual = np.abs(reduced[np.abs(reduced) < HUGE])  # a huge number, or NaN
        return cls(reduced, tuple(varying_axes[::-1]), 0.0, 0.0, float(usual.max(initial=0.0)))

    @cached_property
    def mean(self) -> float:
        """The mean of the numbers; 0 if one is huge or none."""
        return float(np.mean(self.array)) if self.low < self.high else self.low

    @property
    def numbers(self) -> np.ndarray:
        """The numbers, sorted; not a number and infinity are replaced by large ones."""
        return self._sorted if self.array.size <= MAX_SORTED else self._sort()

    @cached_property
    def _sorted(self) -> np.ndarray:
        return self._sort()

    def _sort(self) -> np.ndarray:
        finite = np.nan_to_num(self.array, nan=1e300, posinf=1e299, neginf=-1e299)
        return np.sort(finite, axis=None)

    def same(self, other: "Core", tolerance: float = TOLERANCE) -> bool:
        """Return whether both have the same numbers, whatever their layout, up to rounding."""
        allowed = tolerance * max(self.scale, other.scale)
        if self.array.size != other.array.size or abs(self.low - other.low) > allowed:
            return False
        if abs(self.high - other.high) > allowed:
            return False
        if abs(self.mean - other.mean) > allowed + SUMMED * max(self.scale, other.scale):
            return False  # such as the weights of two layers, or two softmaxes: all from 0 to 1
        if self.array.size < MIN_KNOWN:
            return self._has_numbers_of(other, tolerance)
        results = self._comparisons.setdefault(other, {})
        if tolerance not in results:
            results[tolerance] = self._has_numbers_of(other, tolerance)
        return results[tolerance]

    @cached_property
    def _comparisons(self) -> "WeakKeyDictionary[Core, dict[float, bool]]":
        """Results of comparing large arrays, such as parameters, by the other one and tolerance."""
        return WeakKeyDictionary()

    def _has_numbers_of(self, other: "Core", tolerance: float) -> bool:
        array, other_array = self.array, other.array
        if array.shape == other_array.shape and close(array, other_array, tolerance):
            return True
        return close(self.numbers, other.numbers, tolerance)


def _is_constant(array: np.ndarray, axis: int) -> bool:
    """Return whether an array does not change along an axis."""
    size = array.shape[axis]
    if size < 2 or not array.size:
        return size == 1
    along = np.moveaxis(array, axis, 0)  # a view, unlike what `np.take` gives
    return np.array_equal(along[0], along[-1]) and bool(np.all(along == along[0]))


def close(first: np.ndarray, second: np.ndarray, tolerance: float = TOLERANCE) -> bool:
    """Return whether two arrays of one shape are equal up to rounding, relative to the largest.

    Huge numbers beside others, such as masked logits, are equal if they have the same sign.
    """
    if first.shape != second.shape:
        return False
    if np.array_equal(first, second):
        return True
    if np.any(np.isnan(first)) and np.array_equal(first, second, equal_nan=True):
        return True
    if not tolerance or not first.size or "b" in (first.dtype.kind, second.dtype.kind):
        return False
    with np.errstate(all="ignore"):
        huge = np.abs(first) >= HUGE
        if np.any(huge) and not np.all(huge):
            if not np.array_equal(huge, np.abs(second) >= HUGE):
                return False
            if np.any((first > 0)[huge] != (second > 0)[huge]):
                return False
            first, second = first[~huge], second[~huge]
        scale = max(np.max(np.abs(first)), np.max(np.abs(second)))
        return bool(np.max(np.abs(first - second)) <= tolerance * scale)


def largest_difference(one: np.ndarray, other: Array) -> tuple[float, float]:
    """Return the largest absolute difference, and that relative to the largest number.

    Huge numbers of one sign, such as masked logits, are equal. Arrays of different shapes, and
    empty ones, give NaN.
    """
    if one.shape != other.shape or not one.size:
        return float("nan"), float("nan")
    with np.errstate(all="ignore"):
        sizes = np.abs(one), np.abs(other)
        huge = (np.minimum(*sizes) >= HUGE) & (np.sign(one) == np.sign(other))
        largest = float(np.max(np.abs(one - other), initial=0.0, where=~huge))
        scale = float(np.max(np.maximum(*sizes), initial=0.0, where=~huge))
    return largest, largest / scale if scale else 0.0


def layouts(array: np.ndarray, shape: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield the arrangements of an array in another shape by permuting and joining axes."""
    if array.size != int(np.prod(shape)):
        return
    transposed = [array.transpose(axes) for axes in itertools.permutations(range(array.ndim))]
    yield from (arrangement for arrangement in transposed if arrangement.shape == tuple(shape))
    by_shape: dict[tuple[int, ...], np.ndarray] = {}
    for arrangement in transposed:
        by_shape.setdefault(arrangement.shape, arrangement)
    by_shape.pop(tuple(shape), None)
    yield from (arrangement.reshape(shape) for arrangement in by_shape.values())
    for axes in itertools.permutations(range(len(shape))):
        split = array.reshape([shape[axis] for axis in axes])
        arrangement = split.transpose(np.argsort(axes))
        if axes != tuple(range(len(shape))) and array.ndim < len(shape):
            yield arrangement


def in_place_of(core: Core, source: np.ndarray, array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the arrangements of a value, given with its core, in the shape of `array`."""
    if "c" in (source.dtype.kind, array.dtype.kind):
        if source.dtype == array.dtype:
            yield from layouts(source, array.shape)
        return
    target = Core.of(array)
    shape = [array.shape[axis] for axis in target.axes]
    if core.array.size == target.array.size:
        full = [array.shape[axis] if axis in target.axes else 1 for axis in range(array.ndim)]
        for arranged in layouts(core.array, shape):
            yield np.broadcast_to(arranged.reshape(full), array.shape)
    elif source.size == array.size:
        yield from layouts(source, array.shape)


class View:
    """A tape with its present values, which replaced ones may have changed."""

    def __init__(
        self,
        tape: Tape,
        arrays: Sequence[Array],
        tolerance: float = TOLERANCE,
        previous: "View | None" = None,
    ) -> None:
        """Take the present values; those that are as in the view `previous` need no new core."""
        self.tape, self.arrays, self.tolerance = tape, arrays, tolerance
        previous_cores = previous._cores.items() if previous is not None else ()
        self._cores: dict[int, Core] = {
            value: core
            for value, core in previous_cores
            if previous is not None and arrays[value] is previous.arrays[value]
        }

    def free(self) -> None:
        """Free the values; the tape still locates operations."""
        self.arrays = ()
        self._cores.clear()

    def array(self, value: int) -> np.ndarray:
        """Return a value, which is no key."""
        return np.asarray(self.arrays[value])

    def core(self, value: int) -> Core:
        """Return the core of a value's root."""
        root = self.tape.roots[value]
        if root not in self._cores:
            self._cores[root] = Core.of(self.arrays[root])
        return self._cores[root]

    def cores(self, values: Iterable[int]) -> list[Core]:
        """Return the cores of some values' roots."""
        return [self.core(value) for value in values]

    def data_values(self) -> list[int]:
        """Return the values that are computed from data, without mere rearrangements."""
        tape = self.tape
        return [
            value
            for value, array in enumerate(self.arrays)
            if tape.roots[value] == value
            and tape.depends[value] & ~8
            and isinstance(array, np.ndarray)
        ]

    def has(self, core: Core) -> bool:
        """Return whether a value has the same numbers."""
        return next(self.find_all(core), None) is not None

    def find_all(
        self, core: Core, tolerance: float | None = None, *, unused: bool = False
    ) -> Iterator[int]:
        """Yield the values with the same numbers, up to this tolerance or the view's.

        Values that are computed and never used are left out, unless `unused`.
        """
        tolerance = self.tolerance if tolerance is None else tolerance
        if core.array.size not in self._by_size:
            return
        values, lows, highs, scales = self._by_size[core.array.size]
        allowed = tolerance * np.maximum(scales, core.scale)
        near = (np.abs(lows - core.low) <= allowed) & (np.abs(highs - core.high) <= allowed)
        for index in np.flatnonzero(near):
            if not unused and self.tape.is_unused(values[index]):
                continue
            if core.same(self.core(values[index]), tolerance):
                yield values[index]

    @cached_property
    def _by_size(self) -> dict[int, tuple[list[int], np.ndarray, np.ndarray, np.ndarray]]:
        """The values by the number of their elements, with what their cores have in common."""
        groups: dict[int, list[int]] = {}
        for value in self.data_values():
            groups.setdefault(self.core(value).array.size, []).append(value)
        by_size = {}
        for size, values in groups.items():
            cores = self.cores(values)
            lows, highs, scales = (
                np.array([getattr(core, name) for core in cores])
                for name in ("low", "high", "scale")
            )
            by_size[size] = values, lows, highs, scales
        return by_size
