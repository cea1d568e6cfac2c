"""Activations, recognized by their values."""

from collections.abc import Iterator

import jax
import numpy as np

from ....backends.layers.formulas import ACTIVATIONS
from ... import host
from ..divergence import Divergence
from ..regions import Region
from ..tape import LAYOUT, Tape
from ..values import TOLERANCE, View, close, layouts
from . import features
from .features import BOUNDS, SUBSTITUTED, Finding, in_each

ELEMENTWISE = (host.ELEMENTWISE - LAYOUT) | {"atan", "cbrt", "round"}
MAX_STEPS_BACK = 8  # from what a part reads to the argument of its activation
POINTS = 64  # of one size, so that each function is compiled once


def activation(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find two functions of the same values, at least one of them a known activation."""
    first_view, second_view = (part.view for part in divergence.parts)
    for first, second in _common_inputs(divergence):
        for a, b in _result_pairs(divergence, first, second):
            functions = [
                identify(view, x, y)
                for view, x, y in ((first_view, first, a), (second_view, second, b))
            ]
            if "none" in functions and (
                clipped := _differing_bounds(divergence, (first, second), labels)
            ):
                return clipped
            if None in functions or set(functions) == {"none"} or functions[0] == functions[1]:
                continue
            evidence = in_each(functions, labels)
            confirmed = divergence.search.agree(a, b)
            if confirmed is not None:
                evidence += f"; {SUBSTITUTED}"
                return Finding("activation", evidence, confirmed)
            if (
                "none" not in functions
                and b in divergence.search.second.ancestors
                and (confirmed := divergence.search.substitute_aligned(a, b, first, second))
            ):
                # What follows may differ for another cause, which is then found next.
                return Finding("activation", evidence, confirmed)
    return None


def logarithm(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find results of which one is the logarithm of the other, as of a softmax."""
    pair = divergence.results()
    if pair is None or not all(np.all(np.isfinite(array)) for array in pair):
        return None
    if "c" in (array.dtype.kind for array in pair):
        return None
    first_result, second_result = (array.astype(np.float64) for array in pair)
    if is_exponential(first_result, second_result):
        sides = labels
    elif is_exponential(second_result, first_result):
        sides = labels[::-1]
    else:
        return None
    evidence = f"probabilities in {sides[0]}, their logarithms in {sides[1]}"
    return Finding("activation", evidence, divergence)


def is_exponential(y: np.ndarray, x: np.ndarray) -> bool:
    """Return whether `y` are the values of the exponential function at `x`."""
    with np.errstate(over="ignore"):
        values = np.exp(x)
    return bool(np.all(y >= 0) and np.all(np.isfinite(values)) and close(y, values))


def _differing_bounds(
    divergence: Divergence, values: tuple[int, int], labels: tuple[str, str]
) -> Finding | None:
    """Find two bounds of one value, of which one is never reached here."""
    bounds: list[dict[str, float]] = []
    for part, value in zip(divergence.parts, values, strict=True):
        tape = part.tape
        near = [*tape.readers_of(value), *filter(None, [tape.producers.get(value)])]
        near += filter(None, [tape.step_of(v) for step in near for v in step.operands])
        bounds.append(
            {
                step.name: constant.value
                for step in near
                if step.name in BOUNDS
                for constant in features.constants(tape, step)
            }
        )
    for name in bounds[0].keys() & bounds[1].keys():
        if bounds[0][name] != bounds[1][name]:
            numbers = [f"{each[name]:.6g}" for each in bounds]
            evidence = f"{name} {in_each(numbers, labels, 'with ')}"
            return Finding("clip_range", evidence, divergence)
    return None


def identify(view: View, argument: int, result: int) -> str | None:
    """Name the function that maps one value to another; `none` for the identity."""
    pair = [view.array(value) for value in (argument, result)]
    if "c" in (array.dtype.kind for array in pair):
        return None
    x, y = (array.astype(np.float64) for array in pair)
    for arranged in layouts(x, y.shape):
        name = name_function(arranged.ravel(), y.ravel())
        if name is not None:
            return name
    return None


def name_function(x: np.ndarray, y: np.ndarray, tolerance: float = TOLERANCE) -> str | None:
    """Name the function of which `y` are the values at `x`; None if it is unknown."""
    if np.ptp(x) == 0:
        return None
    if close(x, y, tolerance):
        return "none"
    points, values = np.resize(x, POINTS), np.resize(y, POINTS)
    with jax.enable_x64(True):
        for name, function in ACTIVATIONS.items():
            if close(np.asarray(function(points)), values, tolerance):
                return name
    return _of_both_signs(x, y) if np.any(x < 0) else None


def _of_both_signs(x: np.ndarray, y: np.ndarray) -> str | None:
    """Name a squared relu, or fit the number that a leaky relu, an elu or a swish has."""
    below = x < 0
    if close(np.square(np.maximum(x, 0)), y):  # of positive numbers it is a square, as in a norm
        return "squared relu"
    if close(x[~below], y[~below]) or not np.any(~below):
        slope, alpha = y[below] / x[below], y[below] / np.expm1(x[below])
        for name, number in (("leaky relu, slope", slope), ("elu, alpha", alpha)):
            if np.ptp(number) <= 1e-6 * np.max(np.abs(number)):
                return f"{name} {np.mean(number):.4g}"
    with np.errstate(all="ignore"):
        share = y / x
        beta = np.log(share / (1 - share)) / x
    # With beta = 0 it is half of its input, which is a factor.
    if np.all(np.isfinite(beta)) and np.all(beta) and np.ptp(beta) <= 1e-5 * np.max(np.abs(beta)):
        return f"swish, beta {np.mean(beta):.4g}"
    return None


def _common_inputs(divergence: Divergence) -> list[tuple[int, int]]:
    """List the values that both programs have and that either part reads."""
    first_view, second_view = (part.view for part in divergence.parts)
    first_values, second_values = (
        [value for value in (*part.inputs, part.end) if value in part.region.boundary]
        for part in divergence.parts
    )
    first_values, second_values = (
        [argument for value in values for argument in (*_arguments(part.tape, value)[::-1], value)]
        for part, values in zip(divergence.parts, (first_values, second_values), strict=True)
    )
    pairs = [(a, b) for a in first_values for b in second_view.find_all(first_view.core(a))]
    pairs += [(a, b) for b in second_values for a in first_view.find_all(second_view.core(b))]
    return list(dict.fromkeys(pairs))


def _arguments(tape: Tape, value: int) -> list[int]:
    """Return the values of which another is an elementwise function, the nearest first."""
    arguments: list[int] = []
    sources = {value}
    for _ in range(MAX_STEPS_BACK):
        latest = max(sources)  # the others may be computed of what it is computed of
        step = tape.producers.get(latest)
        if step is None or step.name not in ELEMENTWISE:
            break
        sources.remove(latest)
        sources |= {tape.roots[v] for v in step.operands if tape.scalar(v) is None}
        if len(sources) == 1:
            arguments.extend(sources)
        elif not sources:
            break
    return arguments


def _result_pairs(divergence: Divergence, first: int, second: int) -> Iterator[tuple[int, int]]:
    first_region, second_region = divergence.search.first, divergence.search.second
    ends = [part.end for part in divergence.parts]
    for a in _exits(first_region, first, ends[0]):
        for b in _exits(second_region, second, ends[1]):
            if (
                a in first_region.ancestors or b in second_region.ancestors
            ) and divergence.search.fits(a, b):
                yield a, b


def _exits(region: Region, argument: int, end: int | None) -> list[int]:
    """Return the functions of one value that something else reads, the last one first.

    And the end of a part, which what follows may scale, as dropout does.
    """
    tape = region.tape
    computed = {argument}
    producer = tape.producers.get(argument)
    for step in tape.steps[0 if producer is None else producer.index + 1 :]:
        if step.name not in ELEMENTWISE:
            continue
        roots = [tape.roots[value] for value in step.operands]
        inside = [root for root in roots if root in computed]
        others_read = [value for value in step.operands if tape.roots[value] not in computed]
        if inside and all(tape.scalar(value) is not None for value in others_read):
            computed.update(step.results)
    outputs = {tape.roots[value] for value in tape.outputs}
    exits = [
        value
        for value in computed
        if value in outputs
        or value == end
        or any(not computed.issuperset(step.results) for step in tape.readers_of(value))
    ]
    return sorted({_first_equal(region, computed - {argument}, each) for each in exits})[::-1]


def _first_equal(region: Region, values: set[int], value: int) -> int:
    """Return the first of some values that equals another, such as a sum before 0 is added."""
    core = region.view.core(value)
    return min((each for each in values if region.view.core(each).same(core, 0.0)), default=value)
