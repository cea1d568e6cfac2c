"""Convolutions and pooling: padding, strides and dilation."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import jax
import numpy as np

from ...types import Cause
from .. import places
from ..divergence import NEARLY, Divergence
from ..regions import RegionPart
from ..tape import Step, Tape
from ..values import Core, View, close
from . import features
from .features import CONFIRMED, Finding, in_each

CONVOLUTION = "conv_general_dilated"
POOLED = {
    "reduce_window": "another reduction",
    "reduce_window_max": "the maximum",
    "reduce_window_min": "the minimum",
    "reduce_window_sum": "the average",
}
NAMES = {"padding": "padding", "strides": "stride", "dilation": "dilation"}


class Window(NamedTuple):
    """What a convolution or a pooling cuts out, per spatial axis.

    Attributes:
      step: the step of the tape.
      positions: the positions of the spatial axes in the parameters of the step's equation.
      operand: the value that it reads, before any padding of its own.
      shape: the operand's size along each spatial axis.
      size, strides, dilation: per spatial axis.
      padding: `(low, high)` per spatial axis, with that of a preceding `pad`.
    """

    step: Step
    positions: tuple[int, ...]
    operand: int
    shape: tuple[int, ...]
    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    @property
    def keeps_size(self) -> bool:
        """Whether the padding makes up for what a window of stride 1 cuts off."""
        sides = zip(self.size, self.dilation, self.padding, strict=True)
        return set(self.strides) == {1} and all(
            low + high == (size - 1) * step for size, step, (low, high) in sides
        )

    @property
    def is_same(self) -> bool:
        """Whether the padding is what `SAME` means."""
        reach = [(size - 1) * step + 1 for size, step in zip(self.size, self.dilation, strict=True)]
        pads = jax.lax.padtype_to_pads(self.shape, reach, self.strides, "SAME")
        return tuple(map(tuple, pads)) == self.padding


Windows: TypeAlias = tuple[Window, Window]


def padding(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find windows that differ, confirmed by the first one's in the second program."""
    windows = _of_one_size(map(_window, divergence.parts))
    if windows is None:
        return None
    if (values := _padded_values(divergence, windows)) is not None:
        evidence = f"pads {in_each(values, labels, 'with ')}"
        return Finding("padding", evidence, divergence)
    differing = _differing_fields(windows)
    result = _evaluate_with_first(divergence, windows) if differing else None
    if result is None:
        return None
    (name, evidence), *more = (
        (NAMES[key], f"{_describe(key, windows, labels)}; {CONFIRMED}") for key in differing
    )
    return Finding(name, evidence, _ending_there(divergence, windows, result), tuple(more))


def _of_one_size(windows: Iterable[Window | None]) -> Windows | None:
    """Return the windows of both parts; None if one has none, or they differ in size."""
    first, second = windows
    return None if first is None or second is None or first.size != second.size else (first, second)


def _ending_there(divergence: Divergence, windows: Windows, result: np.ndarray) -> Divergence:
    """End a divergence at two convolutions, not at what follows, such as the norm's subtraction."""
    ends = []
    for part, window in zip(divergence.parts, windows, strict=True):
        result_value = window.step.results[0]
        if window.step.name != CONVOLUTION or result_value not in part.region.ancestors:
            return divergence
        ends.append(result_value)
    search, (a, b) = divergence.search, ends
    arrays = search.substitutes(a, b) if search.fits(a, b) else iter(())
    array = next((each for each in arrays if close(each, result, NEARLY * search.tolerance)), None)
    if array is None:
        return divergence
    return search.divergence_at(a, b, array)


AROUND = ("pad", "div", "mul", "transpose", "reshape", "broadcast_in_dim", "convert_element_type")


def pooling(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find windows of one size of which another number is taken, or an average of fewer values."""
    windows = _of_one_size(_window(part) or _averaging_window(part) for part in divergence.parts)
    if windows is None or divergence.substitute is None:
        return None
    names = [window.step.name for window in windows]
    if not all(name in POOLED for name in names):
        return None
    if not all(part.names <= {*POOLED, *AROUND} for part in divergence.parts):
        return None
    kinds = [POOLED[name] for name in names]
    if kinds[0] != kinds[1]:
        evidence = f"{kinds[0]} of each window in {labels[0]}, {kinds[1]} in {labels[1]}"
        return Finding("pooling", evidence, divergence)
    if kinds[0] != POOLED["reduce_window_sum"]:
        return None
    evidence = "averages at the edges count the padding in one network, and not in the other"
    return Finding("pooling", evidence, divergence)


def _differing_fields(windows: Windows) -> list[str]:
    differing = [key for key in NAMES if len({getattr(window, key) for window in windows}) > 1]
    follows = all(each.is_same for each in windows) or all(each.keeps_size for each in windows)
    if differing[1:] and follows:  # the padding follows from the others
        return [key for key in differing if key != "padding"]
    return differing


def other_sizes(
    views: Sequence[View], names: Mapping[str, str], labels: tuple[str, str]
) -> Cause | None:
    """Find the first convolution or pooling of equal values whose results have other sizes.

    What follows has other sizes too, so that no value of one program fits into the other.

    Args:
      views: both programs.
      names: the names of the second program's parameters, by those of the first.
      labels: the labels of both networks.
    """
    first_view, second_view = views
    second_windows = list(_windows(second_view.tape, second_view.tape.steps))
    for first_window in _windows(first_view.tape, first_view.tape.steps):
        for second_window in second_windows:
            steps = first_window.step, second_window.step
            kernels = [places.parameter_of(v.tape, s) for v, s in zip(views, steps, strict=True)]
            if steps[0].name != steps[1].name or names.get(kernels[0], "") != kernels[1]:
                continue
            if not first_view.core(first_window.operand).same(
                second_view.core(second_window.operand), first_view.tolerance
            ):
                continue
            results = [np.size(v.arrays[s.results[0]]) for v, s in zip(views, steps, strict=True)]
            windows = first_window, second_window
            differing = _differing_fields(windows)
            if results[0] == results[1] or not differing:
                continue
            key = differing[0]
            evidence = f"{_describe(key, windows, labels)}: all that follows differs in size"
            operations = [
                places.operation(v.tape, s.results[0]) for v, s in zip(views, steps, strict=True)
            ]
            return Cause(NAMES[key], places.describe_both(operations, labels), evidence)
    return None


def _window(part: RegionPart) -> Window | None:
    """Describe the first convolution or pooling of a part."""
    return next(_windows(part.tape, part.steps), None)


def _averaging_window(part: RegionPart) -> Window | None:
    """Describe the pooling whose sums a part divides."""
    for step in part.steps:
        if step.name == "div":
            source = features.comes_from(part.tape, step.operands[0], ("reduce_window_sum",), 1)
            return None if source is None else next(_windows(part.tape, [source]), None)
    return None


def _windows(tape: Tape, steps: Iterable[Step]) -> Iterator[Window]:
    for step in steps:
        params = step.equation.params
        if step.name == CONVOLUTION:
            numbers, kernel = params["dimension_numbers"], np.shape(tape.arrays[step.operands[1]])
            axes = numbers.lhs_spec[2:]
            positions, size = range(len(axes)), tuple(kernel[i] for i in numbers.rhs_spec[2:])
        elif step.name in POOLED:
            window_dimensions = params["window_dimensions"]
            positions = axes = [axis for axis, number in enumerate(window_dimensions) if number > 1]
            size = tuple(window_dimensions[axis] for axis in axes)
        else:
            continue
        strides, dilation, kernel_dilation = (
            [params[key][i] for i in positions] for key in _keys(step)
        )
        operand, before = _strip_padding(tape, step.operands[0])
        pads = zip((before[axis] for axis in axes), kernel_dilation, strict=True)
        yield Window(
            step=step,
            positions=tuple(positions),
            operand=operand,
            shape=tuple(np.shape(tape.arrays[operand])[axis] for axis in axes),
            size=size,
            strides=tuple(strides),
            dilation=tuple(dilation),
            padding=tuple((int(outer[0] + own[0]), int(outer[1] + own[1])) for outer, own in pads),
        )


def _keys(step: Step) -> tuple[str, str, str]:
    """Name the parameters of an equation that hold strides, dilation and padding."""
    dilation = "rhs_dilation" if step.name == CONVOLUTION else "window_dilation"
    return "window_strides", dilation, "padding"


def _padded_values(divergence: Divergence, windows: Windows) -> tuple[str, str] | None:
    """Name what two windows of equal strides and dilation read beyond the edges, if it differs."""
    if not {"strides", "dilation"}.isdisjoint(_differing_fields(windows)):
        return None
    descriptions = []
    for part, window in zip(divergence.parts, windows, strict=True):
        tape, root = part.tape, part.tape.roots[window.operand]
        step = tape.step_of(root)
        if root not in part.region.ancestors or step is None:
            descriptions.append("zeros")
        elif step.name == "pad":
            descriptions.append("a constant")
        elif step.name in ("concatenate", "gather"):
            descriptions.append("values from inside")
        else:
            return None
    return None if descriptions[0] == descriptions[1] else (descriptions[0], descriptions[1])


def _strip_padding(tape: Tape, value: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the value that a `pad` with zeros enlarges to this one, and by how much."""
    none = [(0, 0)] * np.ndim(tape.arrays[value])
    step = tape.producers.get(value)
    if step is None or step.name != "pad" or tape.scalar(step.operands[1]) is None:
        return value, none
    return step.operands[0], [
        (low, high) for low, high, _ in step.equation.params["padding_config"]
    ]


def _evaluate_with_first(divergence: Divergence, windows: Windows) -> np.ndarray | None:
    """Evaluate the second window with the first one's numbers; None if the results differ."""
    view, tape = divergence.parts[1].view, divergence.parts[1].tape
    first_window, second_window = windows
    step = second_window.step
    params = dict(step.equation.params)
    new_values = first_window.strides, first_window.dilation, first_window.padding
    for key, numbers in zip(_keys(step), new_values, strict=True):
        values = list(params[key])
        for position, number in zip(second_window.positions, numbers, strict=True):
            values[position] = number
        params[key] = tuple(values)
    arrays = [view.arrays[value] for value in (second_window.operand, *step.operands[1:])]
    with jax.enable_x64(True):
        result = tape.bind(step.equation.replace(params=params), arrays)[0]
    first = divergence.parts[0].view
    expected = first.core(first_window.step.results[0])
    return np.asarray(result) if Core.of(result).same(expected, first.tolerance) else None


def _describe(key: str, windows: Windows, labels: tuple[str, str]) -> str:
    """Write a field of two windows, such as `strides (1, 1) in one, (2, 2) in other`."""
    return f"{key} {in_each([getattr(window, key) for window in windows], labels)}"
