"""Exchanged values: two operands, two axes, or the order of attention heads."""

import itertools
from collections.abc import Iterator

import numpy as np

from ...types import Array
from ..divergence import Divergence
from ..regions import RegionPart
from ..tape import INPUTS, Operand, Step, Tape
from ..values import close
from . import features
from .features import GATES, MAX_STEPS, Finding

MAX_VALUES = 6  # that a part reads, exchanged two by two


def exchanged_operands(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find two values that a part reads in each other's place, confirmed by exchanging them."""
    part = divergence.parts[1]
    view, tape = part.view, part.tape
    inputs = [value for value in part.inputs if value in tape.producers][:MAX_VALUES]
    for a, b in itertools.combinations(inputs, 2):
        arrays = view.arrays[a], view.arrays[b]
        if np.shape(arrays[0]) != np.shape(arrays[1]) or view.core(a).same(view.core(b)):
            continue
        everywhere, here = {a: arrays[1], b: arrays[0]}, _in_part(part, {a: b, b: a})
        if not (divergence.agrees(everywhere) or divergence.agrees({}, here)):
            continue
        gated = any(
            step.name == "mul" and _reads_gate(tape, step, (a, b))
            for step in part.steps[:MAX_STEPS]
        )
        is_cell = gated and features.leads_to(tape, part.end or 0, ("tanh",), 2) is not None
        name = "gru_variant" if is_cell else "operand_order"
        wholes = [features.whole_of(tape, value) for value in (a, b)]
        if wholes[0] is not None and wholes[0] == wholes[1]:
            name = features.gate_order(tape, a) or name
        evidence = (
            f"two values are exchanged in {labels[1]}; exchanged back, the results are "
            "equal" + (": the reset gate is applied to the other product" if is_cell else "")
        )
        return Finding(name, evidence, divergence)
    return None


def _in_part(part: RegionPart, values: dict[int, int]) -> dict[Operand, Array]:
    """Return replacements for what the steps of a part read of some values."""
    tape, view = part.tape, part.view
    operands: dict[Operand, Array] = {}
    for step in part.steps:
        for position, value in enumerate(step.operands):
            if (replacement := values.get(tape.roots[value])) is not None:
                array, shape = view.array(replacement), np.shape(view.arrays[value])
                if array.size == np.prod(shape, dtype=int):
                    operands[step, position] = array.reshape(shape)
    return operands


def _reads_gate(tape: Tape, step: Step, values: tuple[int, int]) -> bool:
    """Return whether a step multiplies one of two values with a gate."""
    return any(tape.roots[value] in values for value in step.operands) and any(
        features.comes_from(tape, value, GATES, 2) is not None for value in step.operands
    )


def swapped_axes(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an operand with two of its axes exchanged, which have equal sizes."""
    first_view, second_view = (part.view for part in divergence.parts)
    tape = second_view.tape
    for left, right in features.pairs(divergence):
        for position, value in enumerate(right.operands):
            array = second_view.array(value)
            if tape.is_constant(value) or tape.roots[value] in tape.leaves:
                continue
            core = second_view.core(value)
            cores = first_view.cores(left.operands)
            if not any(each.same(core, first_view.tolerance) for each in cores):
                continue
            for axes in _exchanges(array.shape):
                if divergence.agrees({}, {(right, position): np.swapaxes(array, *axes)}):
                    evidence = (
                        f"{right.name} of {labels[1]} reads the values of {labels[0]} with axes "
                        f"{axes[0]} and {axes[1]} of {array.shape} exchanged; "
                        "exchanged back, the results are equal"
                    )
                    depends = tape.depends[value] & INPUTS
                    name = "flatten_order" if depends else "position_embedding"
                    return Finding(name, evidence, divergence)
    return None


def _exchanges(shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    for first, second in itertools.combinations(range(len(shape)), 2):
        if shape[first] == shape[second] > 1:
            yield first, second


def head_order(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find features that are cut into heads in another order, confirmed by the first one's order.

    Such as queries, keys and values of all heads one after another, or of each head together.
    """
    part = divergence.parts[1]
    view, tape = part.view, part.tape
    for value in part.inputs:
        features_array = view.array(value)
        if not tape.depends[value] & INPUTS or features_array.ndim < 2:
            continue
        sizes = set(_cuts(tape, value))
        for source in divergence.search.first.view.find_all(view.core(value)):
            sizes |= set(_cuts(divergence.search.first.tape, source))
        for factors in sorted(each for each in sizes if np.prod(each) == features_array.shape[-1]):
            for order in itertools.permutations(range(len(factors))):
                if order == tuple(range(len(factors))):
                    continue
                split = features_array.reshape(*features_array.shape[:-1], *factors)
                lead = tuple(range(features_array.ndim - 1))
                reordered = split.transpose(
                    *lead, *(features_array.ndim - 1 + axis for axis in order)
                )
                array = reordered.reshape(features_array.shape)
                if not close(array, features_array) and divergence.agrees({value: array}):
                    evidence = (
                        f"{features_array.shape[-1]} features are cut into "
                        f"{' x '.join(map(str, factors))} in another order in {labels[1]}; in that "
                        f"of {labels[0]}, the results are equal"
                    )
                    return Finding("attention_heads", evidence, divergence)
    return None


def _cuts(tape: Tape, value: int) -> Iterator[tuple[int, ...]]:
    """Yield the sizes into which the last axis of a value, or of its pieces, is cut."""
    width = np.shape(tape.arrays[value])[-1]
    pieces = {value: 1}
    for step in tape.steps:
        for operand in step.operands:
            source = next((p for p in (operand, tape.roots[operand]) if p in pieces), None)
            if source is None:
                continue
            for result in step.results:
                shape = np.shape(tape.arrays[result])
                if step.name in ("split", "slice") and shape and width % shape[-1] == 0:
                    pieces.setdefault(result, width // shape[-1])
                elif step.name == "reshape":
                    yield from _factors(shape, width, pieces[source])


def _factors(shape: tuple[int, ...], width: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield the last sizes of a shape that make up the width, with the number of its pieces."""
    for num_axes in (2, 3):
        last = shape[-num_axes:]
        factors = tuple(size for size in (count, *last) if size > 1)
        if len(shape) > num_axes and int(np.prod(factors)) == width and len(factors) > 1:
            yield factors
