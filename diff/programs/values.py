"""Compare values whatever their layout: as sorted numbers, then by a permutation of axes."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .tape import Tape

# The rounding of float32 constants in a float64 program, relative to the largest value. Epsilon
# 1e-05 against 1e-06 changes a normalized value by 4.5e-6.
TOLERANCE = 3e-7
HUGE = 1e8


@dataclass(frozen=True, eq=False)
class Core:
    """An array without the axes along which it is constant.

    Attributes:
      array: float64.
      axes: the axes of the whole array that are kept.
      numbers: sorted; not a number and infinity are replaced by large numbers.
      probe: one of the numbers, the same of equal values; 0 if it is huge.
      scale: the largest magnitude.
    """

    array: np.ndarray
    axes: tuple[int, ...]
    numbers: np.ndarray
    probe: float
    scale: float

    @classmethod
    def of(cls, array: Any) -> "Core":
        kept, known = [], np.asarray(array).astype(np.float64)
        for axis in range(known.ndim)[::-1]:
            first = np.take(known, [0], axis) if known.shape[axis] else known
            if known.shape[axis] and np.array_equal(known, np.broadcast_to(first, known.shape)):
                known = np.take(known, 0, axis)
            else:
                kept.append(axis)
        numbers = np.sort(np.nan_to_num(known, nan=1e300, posinf=1e299, neginf=-1e299), axis=None)
        probe = float(numbers[numbers.size // 2]) if numbers.size else 0.0
        usual = np.abs(numbers[np.abs(numbers) < HUGE])
        scale = float(np.max(usual)) if usual.size else 0.0
        shown = 0.0 if abs(probe) >= HUGE else probe
        return cls(known, tuple(kept[::-1]), numbers, shown, scale)


def close(one: np.ndarray, other: np.ndarray, tolerance: float = TOLERANCE) -> bool:
    """Return whether two arrays of one shape are equal up to rounding, relative to the largest.

    Huge numbers beside others, such as masked logits, are equal if they have the same sign.
    """
    if one.shape != other.shape:
        return False
    if np.array_equal(one, other, equal_nan=True):
        return True
    if not tolerance or not one.size:
        return False
    with np.errstate(all="ignore"):
        huge = np.abs(one) >= HUGE
        if np.any(huge) and not np.all(huge):
            if not np.array_equal(huge, np.abs(other) >= HUGE):
                return False
            if np.any((one > 0)[huge] != (other > 0)[huge]):
                return False
            one, other = one[~huge], other[~huge]
        scale = max(np.max(np.abs(one)), np.max(np.abs(other)))
        return bool(np.max(np.abs(one - other)) <= tolerance * scale)


def layouts(array: np.ndarray, shape: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield the arrangements of an array in another shape by permuting and joining axes."""
    if array.size != int(np.prod(shape)):
        return
    moves = [array.transpose(axes) for axes in itertools.permutations(range(array.ndim))]
    yield from (moved for moved in moves if moved.shape == tuple(shape))
    others: dict[tuple[int, ...], np.ndarray] = {}
    for moved in moves:
        others.setdefault(moved.shape, moved)
    yield from (moved.reshape(shape) for own, moved in others.items() if own != tuple(shape))
    for axes in itertools.permutations(range(len(shape))):
        split = array.reshape([shape[axis] for axis in axes])
        moved = split.transpose(np.argsort(axes))
        if axes != tuple(range(len(shape))) and array.ndim < len(shape):
            yield moved


def in_place_of(core: Core, whole: np.ndarray, array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the arrangements of a value, given with its core, in the shape of `array`."""
    own = Core.of(array)
    shape = [array.shape[axis] for axis in own.axes]
    if core.array.size == own.array.size:
        full = [array.shape[axis] if axis in own.axes else 1 for axis in range(array.ndim)]
        for arranged in layouts(core.array, shape):
            yield np.broadcast_to(arranged.reshape(full), array.shape)
    elif whole.size == array.size:
        yield from layouts(whole, array.shape)


class View:
    """A tape with its present values, which replaced ones may have changed."""

    def __init__(self, tape: Tape, arrays: Sequence[Any], tolerance: float = TOLERANCE) -> None:
        self.tape, self.arrays, self.tolerance = tape, arrays, tolerance
        self._cores: dict[int, Core] = {}

    def core(self, value: int) -> Core:
        """Return the core of a value's root."""
        root = self.tape.roots[value]
        if root not in self._cores:
            self._cores[root] = Core.of(self.arrays[root])
        return self._cores[root]

    def compared(self) -> list[int]:
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

    def find_all(self, core: Core, tolerance: float | None = None) -> Iterator[int]:
        """Yield the values with the same numbers, up to this tolerance or the view's."""
        tolerance = self.tolerance if tolerance is None else tolerance
        if core.numbers.size not in self._by_size:
            return
        values, probes, scales = self._by_size[core.numbers.size]
        allowed = tolerance * np.maximum(scales, core.scale)
        for index in np.flatnonzero(np.abs(probes - core.probe) <= allowed):
            if close(core.numbers, self.core(values[index]).numbers, tolerance):
                yield values[index]

    @cached_property
    def _by_size(self) -> dict[int, tuple[list[int], np.ndarray, np.ndarray]]:
        """The values by the number of their elements, with their probes and scales."""
        groups: dict[int, list[int]] = {}
        for value in self.compared():
            groups.setdefault(self.core(value).numbers.size, []).append(value)
        found = {}
        for size, values in groups.items():
            cores = [self.core(value) for value in values]
            probes, scales = [core.probe for core in cores], [core.scale for core in cores]
            found[size] = values, np.array(probes), np.array(scales)
        return found
