"""Convolutions and pooling: padding, strides and dilation."""

from typing import Any, NamedTuple

import jax
import numpy as np

from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import Step, Tape
from ..values import Core
from . import features
from .features import Finding

CONVOLUTION = "conv_general_dilated"
POOLS = ("reduce_window", "reduce_window_max", "reduce_window_min", "reduce_window_sum")
NAMES = {"padding": "padding", "strides": "stride", "dilation": "dilation"}


class Window(NamedTuple):
    """What a convolution or a pooling cuts out, per spatial axis.

    Attributes:
      step: of the tape.
      positions: of the spatial axes among the parameters of the step's equation.
      operand: the value that it reads, before any padding of its own.
      shape: of the operand, per spatial axis.
      size, strides, dilation: per spatial axis.
      padding: `(low, high)` per spatial axis, with that of a preceding `pad`.
    """

    step: int
    positions: tuple[int, ...]
    operand: int
    shape: tuple[int, ...]
    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    @property
    def is_same(self) -> bool:
        """Whether the padding is what `SAME` means."""
        reach = [(size - 1) * step + 1 for size, step in zip(self.size, self.dilation, strict=True)]
        pads = jax.lax.padtype_to_pads(self.shape, reach, self.strides, "SAME")
        return tuple(map(tuple, pads)) == self.padding


def padding(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find windows that differ, confirmed by the first one's in the second program."""
    one, other = map(_window, found.parts)
    if one is None or other is None or one.size != other.size:
        return None
    if (values := _padded_values(found, one, other)) is not None:
        evidence = f"pads with {values[0]} in {labels[0]}, with {values[1]} in {labels[1]}"
        return Finding("padding", evidence, found)
    differing = [key for key in NAMES if getattr(one, key) != getattr(other, key)]
    if not differing or not _agrees(found, one, other):
        return None
    if differing[1:] and one.is_same and other.is_same:  # the padding follows from the others
        differing = [key for key in differing if key != "padding"]
    (name, evidence), *more = (
        (
            NAMES[key],
            f"{key} {_listed(getattr(one, key))} in {labels[0]}, {_listed(getattr(other, key))} in "
            f"{labels[1]}; with the first one's in both, the results are equal",
        )
        for key in differing
    )
    return Finding(name, evidence, found, tuple(more))


POOLED = {
    "reduce_window": "another reduction",
    "reduce_window_max": "the maximum",
    "reduce_window_min": "the minimum",
    "reduce_window_sum": "the average",
}


def pooling(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find windows of one size of which another number is taken, or an average of fewer values."""
    one, other = map(_window, found.parts)
    if one is None or other is None or one.size != other.size or found.substitute is None:
        return None
    names = [
        part.tape.steps[w.step].name for part, w in zip(found.parts, (one, other), strict=True)
    ]
    if not all(name in POOLED for name in names):
        return None
    kinds = [POOLED[name] for name in names]
    if kinds[0] != kinds[1]:
        evidence = f"{kinds[0]} of each window in {labels[0]}, {kinds[1]} in {labels[1]}"
        return Finding("pooling", evidence, found)
    if kinds[0] != POOLED["reduce_window_sum"]:
        return None
    evidence = "averages of windows at the edges count other values: with or without the padding"
    return Finding("pooling", evidence, found)


def _window(part: RegionPart) -> Window | None:
    """Describe the first convolution or pooling of a part."""
    tape = part.tape
    for index in part.steps:
        step, params = tape.steps[index], tape.steps[index].equation.params
        if step.name == CONVOLUTION:
            numbers, kernel = params["dimension_numbers"], np.shape(tape.arrays[step.operands[1]])
            axes = numbers.lhs_spec[2:]
            positions, size = range(len(axes)), tuple(kernel[i] for i in numbers.rhs_spec[2:])
        elif step.name in POOLS:
            whole = params["window_dimensions"]
            positions = axes = [axis for axis, number in enumerate(whole) if number > 1]
            size = tuple(whole[axis] for axis in axes)
        else:
            continue
        strides, dilation, own = ([params[key][i] for i in positions] for key in _keys(step))
        operand, before = _before_padding(tape, step.operands[0])
        pads = zip((before[axis] for axis in axes), own, strict=True)
        return Window(
            step=index,
            positions=tuple(positions),
            operand=operand,
            shape=tuple(np.shape(tape.arrays[operand])[axis] for axis in axes),
            size=size,
            strides=tuple(strides),
            dilation=tuple(dilation),
            padding=tuple((one[0] + two[0], one[1] + two[1]) for one, two in pads),
        )
    return None


def _keys(step: Step) -> tuple[str, str, str]:
    """Name the parameters of an equation that hold strides, dilation and padding."""
    dilation = "rhs_dilation" if step.name == CONVOLUTION else "window_dilation"
    return "window_strides", dilation, "padding"


def _padded_values(found: Divergence, one: Window, other: Window) -> tuple[str, str] | None:
    """Name what two windows of equal strides and dilation read beyond the edges, if it differs."""
    if one.strides != other.strides or one.dilation != other.dilation:
        return None
    shown = []
    for part, window in zip(found.parts, (one, other), strict=True):
        tape, root = part.tape, part.tape.roots[window.operand]
        step = tape.steps[tape.producers[root]] if root in tape.producers else None
        if root not in part.region.ancestors or step is None:
            shown.append("zeros")
        elif step.name == "pad":
            shown.append("a constant")
        elif step.name in ("concatenate", "gather"):
            shown.append("values from inside")
        else:
            return None
    return None if shown[0] == shown[1] else (shown[0], shown[1])


def _before_padding(tape: Tape, value: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the value that a `pad` with zeros enlarges to this one, and by how much."""
    none = [(0, 0)] * np.ndim(tape.arrays[value])
    step = tape.steps[tape.producers[value]] if value in tape.producers else None
    if step is None or step.name != "pad" or features.scalar(tape, step.operands[1]) is None:
        return value, none
    return step.operands[0], [
        (low, high) for low, high, _ in step.equation.params["padding_config"]
    ]


def _agrees(found: Divergence, one: Window, other: Window) -> bool:
    """Evaluate the second window with the first one's numbers and compare."""
    view, tape = found.parts[1].view, found.parts[1].tape
    step = tape.steps[other.step]
    params = dict(step.equation.params)
    for key, numbers in zip(_keys(step), (one.strides, one.dilation, one.padding), strict=True):
        whole = list(params[key])
        for position, number in zip(other.positions, numbers, strict=True):
            whole[position] = number
        params[key] = tuple(whole)
    arrays = [view.arrays[value] for value in (other.operand, *step.operands[1:])]
    with jax.enable_x64(True):
        result = tape.bind(step.equation.replace(params=params), arrays)[0]
    first = found.parts[0].view
    wanted = first.core(first.tape.steps[one.step].results[0])
    return Core.of(result).same(wanted, first.tolerance)


def _listed(numbers: Any) -> str:
    return str(tuple(tuple(n) if isinstance(n, tuple) else n for n in numbers)).replace("'", "")
