"""Images and signals of another size: the kernel of a resize, its antialiasing, adaptive pooling.

Both programs resample one array along some axes. Each form below is a matrix `[size, length]`, or
windows of which the mean or the maximum is taken; a form is confirmed by its result.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import astuple, dataclass

import numpy as np

from ..divergence import Search
from ..regions import Region
from ..values import Core, close
from .features import Finding, in_each, of_search

MAX_SIZE = 2**18  # numbers of an array that is resampled
MAX_AXES = 5
MAX_VALUES = 40  # of each program, in order
CUBIC = (-0.5, -0.75)


@dataclass(frozen=True)
class Form:
    """How an axis gets another size.

    Attributes:
      kind: `nearest`, `linear`, `cubic`, or the windows of a pooling.
      coefficient: the coefficient of a cubic kernel; 0 for other kernels.
      antialias: whether the kernel is as wide as the pixels of a smaller image.
      corners: whether the first and last pixels keep their places.
      clamps: whether pixels beyond an edge repeat it; otherwise they are left out.
      pools: `mean` or `max` of windows; empty for a kernel.
    """

    kind: str
    coefficient: float = 0.0
    antialias: bool = False
    corners: bool = False
    clamps: bool = True
    pools: str = ""

    def __str__(self) -> str:
        if self.pools:
            return f"the {self.pools} of {self.kind}"
        words = [f"{self.kind} resizing"]
        words += [f"with a = {self.coefficient:g}"] if self.coefficient else []
        words += ["with antialiasing"] if self.antialias else []
        words += ["with aligned corners"] if self.corners else []
        words += [] if self.clamps else ["without pixels beyond the edges"]
        return " ".join(words)


ADAPTIVE = ("adaptive windows that overlap", "adaptive windows that do not overlap")


@of_search
def resampling(search: Search, labels: tuple[str, str]) -> Finding | None:
    """Find an array that both programs resample in two forms."""
    first_region, second_region = search.first, search.second
    for source in sorted(first_region.boundary | first_region.leaves):
        x = first_region.view.array(source)
        if x.dtype.kind != "f" or not 2 <= x.ndim <= MAX_AXES or x.size > MAX_SIZE:
            continue
        core = first_region.view.core(source)
        if not any(
            core.same(second_region.view.core(v))
            for v in second_region.boundary | second_region.leaves
        ):
            continue
        firsts, seconds = (
            _resampled_values(region, x, core) for region in (first_region, second_region)
        )
        for (a, first_forms), (b, second_forms) in itertools.product(
            firsts.items(), seconds.items()
        ):
            if {*first_forms} & {*second_forms} or not search.fits(a, b):
                continue
            result = second_region.view.array(b)
            arrays = list(search.substitutes(a, b))
            if not arrays:
                continue
            # The axes are those in which the results are most alike.
            array = min(arrays, key=lambda each: float(np.sum(np.abs(each - result))))
            first_form, second_form = min(
                itertools.product(first_forms, second_forms), key=_distance
            )
            confirmed = search.divergence_at(a, b, array)
            evidence = f"{in_each((first_form, second_form), labels)}, of equal values"
            return Finding(_name(first_form, second_form), evidence, confirmed)
    return None


def _distance(pair: tuple[Form, Form]) -> int:
    """Count in what two forms differ."""
    first_fields, second_fields = (astuple(form) for form in pair)
    return sum(first != second for first, second in zip(first_fields, second_fields, strict=True))


def _name(first_form: Form, second_form: Form) -> str:
    if first_form.pools or second_form.pools:
        is_adaptive = {first_form.kind, second_form.kind} & {*ADAPTIVE}
        return "adaptive_pooling" if is_adaptive else "pooling"
    if first_form.kind != second_form.kind:
        return "upsampling"
    if first_form.coefficient != second_form.coefficient:
        return "cubic_coefficient"
    return "antialiasing" if first_form.antialias != second_form.antialias else "bilinear_resize"


def _resampled_values(region: Region, x: np.ndarray, core: Core) -> dict[int, list[Form]]:
    """Return the values that are computed from an array alone, each with the forms that give it."""
    by_value: dict[int, list[Form]] = {}
    sources = {region.tape.roots[value] for value in region.view.find_all(core)}
    for value in region.values[:MAX_VALUES]:
        result = region.view.array(value)
        if result.dtype.kind != "f" or result.size > MAX_SIZE or result.ndim > MAX_AXES:
            continue
        if not _comes_from(region, value, sources):
            continue
        if forms := list(_forms_between(x, result, region.view.tolerance)):
            by_value[value] = forms
    return by_value


def _comes_from(region: Region, value: int, sources: Set[int]) -> bool:
    """Return whether a value is computed from some values and from constants alone."""
    pending, visited = [value], {value}
    while pending:
        current = pending.pop()
        if current not in region.tape.producers:  # another parameter or input
            return False
        unvisited = {*region.sources(current)} - sources - visited
        visited |= unvisited
        pending.extend(unvisited)
    return True


def _forms_between(x: np.ndarray, result: np.ndarray, tolerance: float) -> Iterator[Form]:
    """Yield the forms in which an array gives another one, in any order of its axes."""
    target = np.squeeze(result)
    x = np.squeeze(x)
    if target.ndim != x.ndim or not x.ndim:
        return
    for axes in itertools.permutations(range(x.ndim)):
        transposed = x.transpose(axes)
        changed = [i for i in range(x.ndim) if transposed.shape[i] != target.shape[i]]
        if not changed or len(changed) > 3:
            continue
        first = tuple(slice(None) if axis in changed else 0 for axis in range(x.ndim))
        sizes = [(transposed.shape[axis], target.shape[axis]) for axis in changed]
        for form, functions in _common_forms(sizes):
            # One slice of the axes that stay rules most forms out.
            part = _along(transposed[first], range(len(changed)), functions)
            if not close(part, target[first], tolerance):
                continue
            if close(_along(transposed, changed, functions), target, tolerance):
                yield form


def _along(array: np.ndarray, axes: Iterable[int], functions: "list[Resample]") -> np.ndarray:
    """Resample an array along several axes."""
    for axis, function in zip(axes, functions, strict=True):
        array = np.moveaxis(function(np.moveaxis(array, axis, 0)), 0, axis)
    return array


Resample = Callable[[np.ndarray], np.ndarray]


def _common_forms(sizes: list[tuple[int, int]]) -> Iterator[tuple[Form, list[Resample]]]:
    """Yield the forms that all changed axes have, and a function of each along its first axis."""
    forms_by_axis = [_forms(*size) for size in sizes]
    for form in forms_by_axis[0]:
        if all(form in each for each in forms_by_axis):
            yield form, [each[form] for each in forms_by_axis]


@functools.lru_cache(maxsize=256)  # a search asks for the same sizes thousands of times
def _forms(length: int, size: int) -> Mapping[Form, Resample]:
    """Return the forms that give an axis of a length another size, each with its function."""
    forms: dict[Form, Resample] = {}
    if size < length:
        starts = [math.floor(i * length / size) for i in range(size)]
        ends = [math.ceil((i + 1) * length / size) for i in range(size)]
        large = length % size
        widths = [length // size + (i < large) for i in range(size)]
        edges = np.cumsum([0, *widths])
        windows = {
            ADAPTIVE[0]: list(zip(starts, ends, strict=True)),
            ADAPTIVE[1]: list(itertools.pairwise(edges.tolist())),
        }
        if not large:  # all are the same windows
            windows = {f"windows of {length // size}": windows[ADAPTIVE[1]]}
        for width in range(1, length + 1):
            for stride in range(1, length):
                if (length - width) // stride + 1 == size and stride * size <= length + stride:
                    kind = f"windows of {width}, {stride} apart"
                    windows.setdefault(
                        kind, [(i * stride, i * stride + width) for i in range(size)]
                    )
                    break
        for kind, bounds in windows.items():
            for pools, reduce in (("mean", np.mean), ("max", np.max)):
                forms[Form(kind, pools=pools)] = _pool(bounds, reduce)
    for kind, coefficient in (("nearest", 0.0), ("linear", 0.0), *(("cubic", a) for a in CUBIC)):
        for antialias, corners in ((False, False), (True, False), (False, True)):
            if (antialias and size >= length) or (kind == "nearest" and (antialias or corners)):
                continue
            for clamps in (True, False):  # PyTorch repeats the edges, JAX leaves them out
                form = Form(kind, coefficient, antialias, corners, clamps)
                forms[form] = _apply_kernel(length, size, form)
    return forms


def _pool(bounds: list[tuple[int, int]], reduce: Callable[..., np.ndarray]) -> Resample:
    return lambda x: np.stack([reduce(x[start:end], axis=0) for start, end in bounds])


def _apply_kernel(length: int, size: int, form: Form) -> Resample:
    return lambda x: np.tensordot(_matrix(length, size, form), x, 1)


@functools.lru_cache(maxsize=256)
def _matrix(length: int, size: int, form: Form) -> np.ndarray:
    """Return the weights `[size, length]` of a kernel.

    Args:
      length, size: the number of pixels before and after.
      form: the kernel.
    """
    scale = (length - 1) / max(size - 1, 1) if form.corners else length / size
    places = np.arange(size) * scale if form.corners else (np.arange(size) + 0.5) * scale - 0.5
    width = max(scale, 1.0) if form.antialias else 1.0
    matrix = np.zeros((size, length))
    if form.kind == "nearest":
        matrix[np.arange(size), np.floor(np.arange(size) * scale).astype(int)] = 1.0
        return matrix
    reach = math.ceil(2 * width) + 1
    for row, place in enumerate(places):
        if form.kind == "linear" and form.clamps:
            place = min(max(place, 0.0), length - 1.0)
        for column in range(math.floor(place) - reach, math.floor(place) + reach + 1):
            weight = _kernel(abs(place - column) / width, form)
            if form.clamps or 0 <= column < length:
                matrix[row, min(max(column, 0), length - 1)] += weight
    return matrix / matrix.sum(1, keepdims=True)


def _kernel(distance: float, form: Form) -> float:
    if form.kind == "linear":
        return max(0.0, 1.0 - distance)
    a = form.coefficient
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    if distance < 2:
        return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
    return 0.0
