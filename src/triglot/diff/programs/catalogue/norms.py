"""Norms: what they subtract, over which groups and axes they average, and their epsilon."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..divergence import Divergence, Search
from ..regions import Region, RegionPart
from ..values import Core, close
from . import features
from .features import Constant, Finding, in_each

MAX_EPSILON = 0.1
# Whether a norm subtracts the mean, and whether it sums squares: LayerNorm, RMSNorm, L2.
KINDS = ((True, False), (False, False), (False, True))
DEPTH = 5  # operations from a root to the normalized array
DIGITS = 9  # to which numbers are equal
MAX_BEFORE = 16  # values of a region from which a root is computed


@dataclass(frozen=True, eq=False)
class Root:
    """A root by which a program normalizes.

    Attributes:
      value: the root.
      epsilon: the number that is added to the root or to its argument.
      outside: whether it is added to the root.
      divisor: the core of the divisor, as far as it is computed from the root.
      distinct: the number of different values in the divisor.
    """

    value: int
    epsilon: float
    outside: bool
    divisor: Core
    distinct: int

    @classmethod
    def of(cls, region: Region, value: int, epsilon: float, outside: bool) -> "Root":
        """Describe a root of a program."""
        root = region.view.array(value).astype(np.float64)
        if region.tape.producers[value].name == "rsqrt":
            root = 1 / root
        core = Core.of(root + epsilon if outside else root)
        with np.errstate(over="ignore"):  # of huge numbers alone, which have no scale
            scaled = core.numbers / max(core.scale, 1e-30)
        distinct = np.unique(np.round(scaled, DIGITS)).size
        return cls(value, epsilon, outside, core, distinct)

    def fits(self, count: int) -> bool:
        """Return whether its numbers may be those of `count` groups, or repeat them."""
        size = self.divisor.array.size
        return self.distinct <= count and not (size % count and count % size)


@dataclass(frozen=True)
class Norm:
    """A normalization of an array `x`, or of `x - mean(x)`, by its root mean square or L2 norm.

    Attributes:
      centred: whether the mean is subtracted first.
      summed: whether squares are summed (an L2 norm), not averaged.
      shape: the shape in which the array is averaged; one axis may be split in groups.
      axes: the axes over which it is averaged.
      groups: the number of groups into which an axis is split; 1 if none is.
      root: the root, which has the epsilon.
    """

    centred: bool
    summed: bool
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    groups: int
    root: Root

    @property
    def form(self) -> tuple[tuple[bool, bool], int, tuple[int, ...], bool]:
        """What two norms have in common that differ in the size of epsilon only."""
        return (self.centred, self.summed), self.groups, self.axes, self.root.outside

    @property
    def count(self) -> int:
        """How many values are averaged."""
        return int(np.prod([self.shape[axis] for axis in self.axes]))

    def __str__(self) -> str:
        name = f"GroupNorm of {self.groups} groups, by" if self.groups > 1 else "a norm by"
        plain = "the L2 norm" if self.summed else "the root mean square (RMSNorm)"
        return f"{name} {'mean and variance' if self.centred else plain} over {self.count} values"

    def average(self, x: np.ndarray) -> np.ndarray:
        """Return what the root is taken of, without epsilon."""
        reduce = np.sum if self.summed else np.mean
        return reduce(np.square(self.numerator(x)), self.axes, keepdims=True)

    def divisor(self, average: np.ndarray) -> np.ndarray:
        """Return what the array is divided by, from what `average` returns for it."""
        if self.root.outside:
            return np.sqrt(average) + self.root.epsilon
        return np.sqrt(average + self.root.epsilon)

    def numerator(self, x: np.ndarray) -> np.ndarray:
        """Return the array in the norm's shape, without its mean where that is subtracted."""
        reshaped = x.reshape(self.shape)
        return reshaped - np.mean(reshaped, self.axes, keepdims=True) if self.centred else reshaped

    def normalize(self, x: np.ndarray) -> np.ndarray:
        """Normalize an array."""
        return (self.numerator(x) / self.divisor(self.average(x))).reshape(x.shape)


class Sums:
    """Sums of an array and of its squares, from which norms of many forms are tried."""

    def __init__(self, x: np.ndarray) -> None:
        self.shape = x.shape
        self._over: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {(): (x, np.square(x))}

    def over(self, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Sum the array and its squares over some of its axes, which are kept."""
        if axes not in self._over:
            total, square = (np.sum(a, axes[-1], keepdims=True) for a in self.over(axes[:-1]))
            self._over[axes] = total, square
        return self._over[axes]

    def average(self, norm: Norm) -> np.ndarray:
        """Return what `Norm.average` does for the array, up to rounding."""
        split = next((i for i, s in enumerate(self.shape) if s != norm.shape[i]), None)
        if split is None:
            total, square = self.over(norm.axes)
        else:  # the axes but that of the groups, in the array's shape, and then within the groups
            axes = [axis - (axis > split) for axis in norm.axes if axis != split + 1]
            kept_shape = tuple(1 if i in norm.axes and i != split + 1 else s
                         for i, s in enumerate(norm.shape))  # fmt: skip
            total, square = (
                np.sum(array.reshape(kept_shape), split + 1, keepdims=True)
                for array in self.over(tuple(axes))
            )
        squares = square - np.square(total) / norm.count if norm.centred else square
        return np.maximum(squares if norm.summed else squares / norm.count, 0.0)


@features.of_search
def norm_form(search: Search, labels: tuple[str, str]) -> Finding | None:
    """Find norms of one array that differ in more than the size of epsilon: in kind, axes or place.

    Confirmed by evaluating the first one's formula in the second program: the two results, which
    may hold a common scale, must have the ratio of the two formulas.
    """
    roots = [_roots(region) for region in search.regions]
    second_region = search.second
    firsts, seconds = (
        {value for root in side for value in _values_from_root(region, root.value)}
        for region, side in zip(search.regions, roots, strict=True)
    )
    # In any arrangement: a norm may read an array with its axes moved. What it reads itself first,
    # but after what has the axes of the array: groups split one.
    arrays = second_region.view.arrays
    ends = {*seconds, *(root.value for root in roots[1])}
    source_roots = {source for end in ends for source in _sources(second_region, end)}
    candidates = [v for v, root in enumerate(second_region.tape.roots) if root in source_roots]
    steps = second_region.steps(second_region.values)
    operands_read = {v for step in steps for v in step.operands}
    split = {
        v for v in candidates if np.ndim(arrays[v]) != np.ndim(arrays[second_region.tape.roots[v]])
    }
    for source in (
        sorted(candidates, key=lambda v: (v in split, v not in operands_read)) if all(roots) else ()
    ):
        x = np.asarray(arrays[source])
        if x.ndim < 2 or x.dtype.kind != "f":
            continue
        x = np.ascontiguousarray(x)  # reshaped for each grouping, without a copy
        norms = [_norms(side, x, second_region.view.tolerance) for side in roots]
        # Of an array whose mean is 0, such as one minus its mean, norms of both kinds are equal.
        if {norm.form for norm in norms[0]} & {norm.form for norm in norms[1]}:
            continue
        pairs = sorted(
            itertools.product(norms[0], norms[1]), key=lambda pair: len(_differences(*pair))
        )
        for a, b in itertools.product(sorted(firsts), sorted(seconds)) if pairs else ():
            result = np.asarray(arrays[b])
            if x.size != result.size or not search.fits(a, b):
                continue
            for array in search.substitutes(a, b):
                outcomes = np.asarray(array), result
                for pair in pairs:
                    if _are_results(outcomes, x, pair, search.tolerance):
                        confirmed = search.divergence_at(a, b, array)
                        return _norm_finding(confirmed, pair, labels)
    return None


def _are_results(
    arrays: tuple[np.ndarray, np.ndarray], x: np.ndarray, norms: tuple[Norm, Norm], tolerance: float
) -> bool:
    """Return whether two arrays are the results of two norms of `x`, up to a common factor."""
    first_normalized, second_normalized = (
        norm.normalize(x).reshape(arrays[1].shape) for norm in norms
    )
    return close(arrays[0] * second_normalized, arrays[1] * first_normalized, tolerance)


def _differences(first_norm: Norm, second_norm: Norm) -> list[str]:
    """Name the causes for which two norms have different forms."""
    causes = ("norm_kind", "norm_kind", "norm_axis", "norm_epsilon")
    parts = zip(causes, first_norm.form, second_norm.form, strict=True)
    return [cause for cause, first, second in parts if first != second]


def _norm_finding(
    divergence: Divergence, norms: tuple[Norm, Norm], labels: tuple[str, str]
) -> Finding:
    first_norm, second_norm = norms
    name = _differences(first_norm, second_norm)[0]
    confirmed = "with the first formula in both, the results are equal"
    epsilons = "; ".join(
        f"epsilon {norm.root.epsilon:g} {'added to' if norm.root.outside else 'under'} the root in "
        f"{label}"
        for norm, label in zip(norms, labels, strict=True)
    )
    if name == "norm_epsilon":
        return Finding(name, f"{epsilons}; {confirmed}", divergence)
    evidence = f"{in_each(norms, labels)}; {confirmed}"
    if name == "norm_axis":
        axes = [f"({', '.join(map(str, norm.axes))})" for norm in norms]
        reduced = "sums" if first_norm.summed else "averages"
        evidence = (
            f"{reduced} over {first_norm.count} values in {labels[0]}, over {second_norm.count} "
            f"in {labels[1]}; over axes {axes[0]} instead of {axes[1]} the second gives the first "
            f"one's {reduced}"
        )
    same_epsilon = (first_norm.root.epsilon, first_norm.root.outside) == (
        second_norm.root.epsilon,
        second_norm.root.outside,
    )
    return Finding(
        name, evidence, divergence, () if same_epsilon else (("norm_epsilon", epsilons),)
    )


def _sources(region: Region, value: int) -> set[int]:
    """Return the values with a counterpart from which a value of a region is computed."""
    sources = {source for each in region.ancestors[value] for source in region.sources(each)}
    return sources & region.boundary


def _roots(region: Region) -> list[Root]:
    """List the roots that begin a region, with what is added before or after.

    A root behind many other values is that of a later norm, whose input differs.
    """
    tape, roots = region.tape, []
    for value in region.values:
        step = tape.producers[value]
        if step.name not in features.ROOTS or len(region.ancestors[value]) > MAX_BEFORE:
            continue
        inside = filter(None, [tape.step_of(step.operands[0])])
        places = [(each, False) for each in inside]
        places += [(each, True) for each in tape.readers_of(value) if step.name == "sqrt"]
        sums = [
            Root.of(region, value, constant.value, outside)
            for each, outside in places
            if each.name == "add"
            for constant in features.constants(tape, each)
        ]
        roots += sums or [Root.of(region, value, 0.0, False)]
    return roots


def _values_from_root(region: Region, root: int) -> list[int]:
    """List the values that are computed from a root in a few products and quotients."""
    steps = features.onward(region.tape, [root], DEPTH, ("mul", "div", "add"))
    results = (result for step in steps for result in step.results)
    return [result for result in results if result in region.ancestors]


def _norms(roots: list[Root], x: np.ndarray, tolerance: float) -> list[Norm]:
    """List the norms of an array `[B, ...]` whose divisors a program has, root by root."""
    by_root: dict[Root, list[Norm]] = {root: [] for root in roots}
    sums = Sums(x)
    for shape, groups, axes in _averages(x.shape):
        count = x.size // math.prod(shape[axis] for axis in axes)
        fitting = [root for root in by_root if root.fits(count)]
        for centred, summed in KINDS if fitting else ():
            norms = [Norm(centred, summed, shape, axes, groups, root) for root in fitting]
            average = sums.average(norms[0])  # the same for all roots
            for norm in norms:
                divisor = Core.of(norm.divisor(average))
                if _agree_repeated(divisor, norm.root.divisor, x.size, tolerance):
                    by_root[norm.root].append(norm)
    return [norm for root in roots for norm in by_root[root]]


def _agree_repeated(first_core: Core, second_core: Core, size: int, tolerance: float) -> bool:
    """Return whether two arrays have the same numbers, each as often as in `size` elements."""
    allowed = tolerance * max(first_core.scale, second_core.scale)
    if (
        abs(first_core.low - second_core.low) > allowed
        or abs(first_core.high - second_core.high) > allowed
    ):
        return False
    return close(_repeat_sorted(first_core, size), _repeat_sorted(second_core, size), tolerance)


def _repeat_sorted(core: Core, size: int) -> np.ndarray:
    """Sort an array's numbers, each as often as in one of `size` elements: groups may repeat."""
    return np.repeat(core.numbers, size // core.numbers.size)


def _averages(shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int, tuple[int, ...]]]:
    """Yield what a norm may average over: a shape, the number of groups in it, and axes."""
    for size in range(1, len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), size):
            yield shape, 1, axes
    for split in sorted({1, len(shape) - 1}):  # where libraries have the channels
        for groups in range(2, shape[split]):
            if shape[split] % groups:
                continue
            grouped = (*shape[:split], groups, shape[split] // groups, *shape[split + 1 :])
            other_axes = [axis for axis in range(1, len(grouped)) if axis not in (split, split + 1)]
            for size in range(len(other_axes) + 1):
                for axes in itertools.combinations(other_axes, size):
                    yield grouped, groups, tuple(sorted((*axes, split + 1)))


def norm_epsilon(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find two epsilons, confirmed by the first one's in both programs."""
    first_epsilon, second_epsilon = map(_epsilon, divergence.parts)
    if divergence.substitute is None or not (first_epsilon or second_epsilon):
        return None
    numbers = [
        0.0 if epsilon is None else epsilon.value for epsilon in (first_epsilon, second_epsilon)
    ]
    description = f"epsilon {in_each([f'{number:g}' for number in numbers], labels)}"
    if second_epsilon is None:
        offset = features.offset(divergence)
        confirmed = offset is not None and np.isclose(offset, numbers[0], rtol=1e-3)
    else:
        operand = second_epsilon.step, second_epsilon.position
        confirmed = divergence.agrees_with_numbers({operand: numbers[0]})
    if confirmed:
        evidence = f"{description}; with {numbers[0]:g} in both, the results are equal"
        return Finding("norm_epsilon", evidence, _at(divergence, first_epsilon, second_epsilon))
    places = [
        _place(part, each)
        for part, each in zip(divergence.parts, (first_epsilon, second_epsilon), strict=True)
    ]
    if first_epsilon and second_epsilon and places[0] != places[1]:
        evidence = (
            f"{description}; added {places[0]} the root in the first, {places[1]} it in the second"
        )
        return Finding("norm_epsilon", evidence, divergence)
    return None


def _at(divergence: Divergence, *epsilons: Constant | None) -> Divergence:
    """Let the parts begin with the epsilons."""
    first_part, second_part = (
        part if part.values or epsilon is None else replace(part, values=[epsilon.step.results[0]])
        for part, epsilon in zip(divergence.parts, epsilons, strict=True)
    )
    return replace(divergence, parts=(first_part, second_part))


def _epsilon(part: RegionPart) -> Constant | None:
    """Find the small constant that is added to, or bounds, what a root is taken of."""
    tape = part.tape
    # Where it is too small to make a difference, the part ends before the sum or with it.
    near = part.values if part.values or part.end is None else [part.end]
    for step in part.region.steps(near):
        if step.name not in ("add", "max", "clamp"):
            continue
        for constant in features.constants(tape, step):
            result = step.results[0]
            root = features.leads_to(tape, result, features.POWERS, 2)
            root = root or features.comes_from(tape, result, ("sqrt",), 3)
            if 0 < constant.value <= MAX_EPSILON and root is not None:
                return constant
    return None


def _place(part: RegionPart, epsilon: Constant | None) -> str:
    if epsilon is None:
        return ""
    root = features.comes_from(part.tape, epsilon.step.results[0], ("sqrt",), 3)
    return "before" if root is None else "after"
