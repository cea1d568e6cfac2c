"""What the entries of the catalogue look for in a part of a program."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..divergence import Divergence
from ..regions import Region, consumers
from ..tape import Tape
from ..values import close

ROOTS = ("rsqrt", "sqrt", "pow", "integer_pow")


@dataclass(frozen=True)
class Finding:
    """A named cause: its evidence, and the divergence that it explains.

    `more` has further causes of the same divergence, by name and evidence.
    """

    name: str
    evidence: str
    divergence: Divergence
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Constant:
    """A scalar constant that a step reads."""

    step: int
    position: int
    value: float


def steps_of(region: Region, values: Iterable[int]) -> list[int]:
    """Return the steps that compute some values, in order."""
    producers = region.tape.producers
    return sorted({producers[value] for value in values if value in producers})


def names_of(region: Region, values: Iterable[int]) -> set[str]:
    """Return the names of the operations that compute some values."""
    return {region.tape.steps[index].name for index in steps_of(region, values)}


def scalar(tape: Tape, value: int, arrays: Any = None) -> float | None:
    """Return the number that a constant holds everywhere; None if it is something else."""
    if not tape.is_constant(value):
        return None
    array = (tape.arrays if arrays is None else arrays)[value]
    if not isinstance(array, np.ndarray) or not array.size or array.dtype.kind not in "fiub":
        return None
    return float(array.flat[0]) if np.all(array == array.flat[0]) else None


def constants(tape: Tape, index: int) -> list[Constant]:
    """Return the scalar constants that a step reads."""
    found = []
    for position, value in enumerate(tape.steps[index].operands):
        number = scalar(tape, value)
        if number is not None:
            found.append(Constant(index, position, number))
    return found


def leads_to(tape: Tape, value: int, names: Collection[str], depth: int = 3) -> int | None:
    """Return the first step of such a name that reads a value, or what is computed of it."""
    level = {tape.roots[value]}
    for _ in range(depth):
        following: set[int] = set()
        for root in level:
            for index in consumers(tape, root):
                if tape.steps[index].name in names:
                    return index
                following.update(tape.steps[index].results)
        level = following
    return None


def comes_from(tape: Tape, value: int, names: Collection[str], depth: int = 3) -> int | None:
    """Return the last step of such a name from which a value is computed."""
    level = {tape.roots[value]}
    for _ in range(depth):
        preceding: set[int] = set()
        for root in level:
            if root in tape.producers:
                index = tape.producers[root]
                if tape.steps[index].name in names:
                    return index
                preceding.update(tape.roots[v] for v in tape.steps[index].operands)
        level = preceding
    return None


def ends_agree(found: Divergence, arrays: list[Any]) -> bool:
    """Return whether the second program's end, among other values, is the first one's result."""
    assert found.ends is not None and found.substitute is not None
    own = np.asarray(arrays[found.ends[1]])
    return close(np.asarray(found.substitute), own, found.search.tolerance)


def replayed(found: Divergence, operands: dict[tuple[int, int], Any]) -> list[Any]:
    """Evaluate the second program with other operands."""
    view = found.search.other.view
    return view.tape.replay({}, operands, arrays=view.arrays)


def like(tape: Tape, constant: Constant, value: float) -> np.ndarray:
    """Return another number in the shape of a constant."""
    operand = tape.steps[constant.step].operands[constant.position]
    return np.full(np.shape(tape.arrays[operand]), value)


def results(found: Divergence) -> tuple[np.ndarray, np.ndarray] | None:
    """Return both results in the second one's layout; None if the parts have no common end."""
    if found.ends is None or found.substitute is None:
        return None
    own = np.asarray(found.search.other.view.arrays[found.ends[1]])
    return np.asarray(found.substitute), own


def ratio(found: Divergence) -> float | None:
    """Return by what number the first result is the second one multiplied; None if by none."""
    pair = results(found)
    if pair is None or not np.all(np.isfinite(pair)) or not np.any(pair[1]):
        return None
    one, other = (array.astype(np.float64) for array in pair)
    factor = float(np.sum(one * other) / np.sum(other * other))
    return factor if close(one, factor * other) else None


def offset(found: Divergence) -> float | None:
    """Return the number by which the first result exceeds the second; None if it varies."""
    pair = results(found)
    if pair is None or not np.all(np.isfinite(pair)):
        return None
    one, other = (array.astype(np.float64) for array in pair)
    number = float(np.mean(one - other))
    return number if close(one, other + number) else None


def sides(found: Divergence) -> Iterator[tuple[Region, list[int], int | None]]:
    """Yield each program's region, the values of its part and its end."""
    ends = found.ends or (None, None)
    yield from zip(found.regions, found.parts, ends, strict=True)
