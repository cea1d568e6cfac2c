"""The kind of a norm: what it subtracts, over which groups it averages, where its epsilon is."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..divergence import Divergence
from ..regions import Region, consumers
from ..values import Core, close
from . import features
from .features import Finding

DEPTH = 5  # operations from a root to the normalized array


@dataclass(frozen=True)
class Root:
    """A root by which a program normalizes.

    Attributes:
      value: the root.
      epsilon: what is added to it or to what it is taken of.
      outside: whether it is added to the root.
    """

    value: int
    epsilon: float
    outside: bool


@dataclass(frozen=True)
class Norm:
    """A normalization of an array `x`, or of `x - mean(x)`, by its root mean square.

    Attributes:
      centred: whether the mean is subtracted first.
      shape: in which the array is averaged; one axis may be split in groups.
      axes: over which it is averaged.
      groups: into which an axis is split; 1 if none is.
      root: has the epsilon.
    """

    centred: bool
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    groups: int
    root: Root

    @property
    def form(self) -> tuple[bool, int, bool]:
        """What two norms of one kind have in common."""
        return self.centred, self.groups, self.root.outside

    def __str__(self) -> str:
        name = f"GroupNorm of {self.groups} groups, by" if self.groups > 1 else "a norm by"
        what = "mean and variance" if self.centred else "the root mean square (RMSNorm)"
        return f"{name} {what} over {int(np.prod([self.shape[axis] for axis in self.axes]))} values"

    def divisor(self, x: np.ndarray) -> np.ndarray:
        """Return what the array is divided by."""
        average = np.mean(np.square(self.numerator(x)), self.axes, keepdims=True)
        if self.root.outside:
            return np.sqrt(average) + self.root.epsilon
        return np.sqrt(average + self.root.epsilon)

    def numerator(self, x: np.ndarray) -> np.ndarray:
        """Return the array in the norm's shape, without its mean where that is subtracted."""
        own = x.reshape(self.shape)
        return own - np.mean(own, self.axes, keepdims=True) if self.centred else own

    def normalized(self, x: np.ndarray) -> np.ndarray:
        """Normalize an array."""
        return (self.numerator(x) / self.divisor(x)).reshape(x.shape)


def norm_kind(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find two norms that differ in what they subtract, in their groups or where epsilon is added.

    Confirmed by evaluating the first one's formula in the second program: the two results, which
    may hold a common scale, must have the ratio of the two formulas.
    """
    regions = found.search.one, found.search.other
    roots = [_roots(region) for region in regions]
    if not all(roots):
        return None
    other = found.search.other
    firsts, seconds = (
        [value for root in side for value in _normalized(region, root.value)]
        for region, side in zip(regions, roots, strict=True)
    )
    # In any arrangement: a norm may read an array with its axes moved.
    known = [v for v, root in enumerate(other.tape.roots) if root in other.boundary]
    for source in known:
        x = np.asarray(other.view.arrays[source])
        if x.ndim < 2 or x.dtype.kind != "f":
            continue
        norms = [_norms(region, side, x) for region, side in zip(regions, roots, strict=True)]
        pairs = itertools.product(dict.fromkeys(firsts), dict.fromkeys(seconds))
        for a, b in pairs if all(norms) else ():
            result = np.asarray(other.view.arrays[b])
            if x.size != result.size or not found.search.fits(a, b):
                continue
            for array in found.search.substitutes(a, b):
                pair = _confirmed(norms, x, (np.asarray(array), result), found.search.tolerance)
                if pair is not None:
                    whole = found.search.made(a, b, array, [], other.view.arrays)
                    return _finding(whole, pair, labels)
    return None


def _confirmed(
    norms: list[list[Norm]], x: np.ndarray, results: tuple[np.ndarray, np.ndarray], tolerance: float
) -> tuple[Norm, Norm] | None:
    """Return the two norms of which two arrays are the results; None if they are of one kind."""
    confirmed = []
    for one, other in itertools.product(*norms):
        formulas = (norm.normalized(x).reshape(results[1].shape) for norm in (other, one))
        left, right = (own * formula for own, formula in zip(results, formulas, strict=True))
        if close(left, right, tolerance):
            confirmed.append((one, other))
    # Of an array whose mean is 0, such as one minus its mean, norms of both kinds are equal.
    if any(one.form == other.form for one, other in confirmed):
        return None
    return next(iter(confirmed), None)


def _finding(found: Divergence, norms: tuple[Norm, Norm], labels: tuple[str, str]) -> Finding:
    one, other = norms
    confirmed = "with the first one's formula in both, the results are equal"
    epsilons = "; ".join(
        f"epsilon {norm.root.epsilon:g} {'added to' if norm.root.outside else 'under'} the root in "
        f"{label}"
        for norm, label in zip(norms, labels, strict=True)
    )
    if one.form[:2] == other.form[:2]:
        return Finding("norm_epsilon", f"{epsilons}; {confirmed}", found)
    evidence = f"{one} in {labels[0]}, {other} in {labels[1]}; {confirmed}"
    same = (one.root.epsilon, one.root.outside) == (other.root.epsilon, other.root.outside)
    return Finding("norm_kind", evidence, found, () if same else (("norm_epsilon", epsilons),))


def _roots(region: Region) -> list[Root]:
    """List the roots of a region, with what is added before or after."""
    tape, found = region.tape, []
    for value in region.values:
        step = tape.steps[tape.producers[value]]
        if step.name not in ("rsqrt", "sqrt"):
            continue
        source = tape.roots[step.operands[0]]
        inside = [tape.producers[source]] if source in tape.producers else []
        places = [(index, False) for index in inside]
        places += [(index, True) for index in consumers(tape, value) if step.name == "sqrt"]
        for index, outside in places:
            if tape.steps[index].name == "add":
                found += [Root(value, c.value, outside) for c in features.constants(tape, index)]
    return found


def _normalized(region: Region, root: int) -> list[int]:
    """List the values that are computed from a root in a few products and quotients."""
    tape, level, found = region.tape, {root}, []
    for _ in range(DEPTH):
        following = {
            result
            for value in level
            for index in consumers(tape, value)
            if tape.steps[index].name in ("mul", "div", "add")
            for result in tape.steps[index].results
            if result in region.ancestors
        }
        found += sorted(following - set(found))
        level = following
    return found


def _norms(region: Region, roots: list[Root], x: np.ndarray) -> list[Norm]:
    """List the norms of an array `[B, ...]` whose divisors a program has."""
    tape, view = region.tape, region.view
    found = []
    for root, (shape, groups, axes) in itertools.product(roots, _averages(x.shape)):
        own = np.asarray(view.arrays[root.value], np.float64)
        if tape.steps[tape.producers[root.value]].name == "rsqrt":
            own = 1 / own
        wanted = _repeated(own + root.epsilon if root.outside else own, x.size)
        for centred in (True, False):
            norm = Norm(centred, shape, axes, groups, root)
            if close(_repeated(norm.divisor(x), x.size), wanted, view.tolerance):
                found.append(norm)
    return found


def _repeated(array: np.ndarray, size: int) -> np.ndarray:
    """Sort an array's numbers, each as often as in one of `size` elements: groups may repeat."""
    numbers = Core.of(array).numbers
    return np.repeat(numbers, size // numbers.size)


def _averages(shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int, tuple[int, ...]]]:
    """Yield what a norm may average over: a shape, the number of groups in it, and axes."""
    own = range(1, len(shape))
    for size in range(1, len(shape)):
        yield from ((shape, 1, axes) for axes in itertools.combinations(own, size))
    for split in sorted({1, len(shape) - 1}):  # where libraries have the channels
        for groups in range(2, shape[split]):
            if shape[split] % groups:
                continue
            grouped = (*shape[:split], groups, shape[split] // groups, *shape[split + 1 :])
            rest = [axis for axis in range(1, len(grouped)) if axis not in (split, split + 1)]
            for size in range(len(rest) + 1):
                for axes in itertools.combinations(rest, size):
                    yield grouped, groups, tuple(sorted((*axes, split + 1)))
