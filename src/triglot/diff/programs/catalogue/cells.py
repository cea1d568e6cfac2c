"""Recurrent cells: the place of a GRU's reset gate, an LSTM's forget bias, the order of gates."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...types import Array
from ..divergence import Divergence
from ..regions import Region, RegionPart, region
from ..tape import INPUTS, Step, Tape
from ..values import Core, View, layouts
from . import features
from .features import GATES, Finding


def gru_variant(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a reset gate that is applied before the recurrent product in one program only."""
    for early, late in ((0, 1), (1, 0)):
        product = _gate_then_product(divergence.parts[early].region)
        gated = _product_then_gate(divergence.parts[late].region)
        if product is None or gated is None:
            continue
        for longer in _ending_at(divergence, early, product, gated[0]):
            if _moved_gate_agrees(longer, late, *gated):
                evidence = (
                    f"the reset gate comes before the recurrent product in {labels[early]}, after "
                    f"it in {labels[late]}; moved before it, the results are equal"
                )
                return Finding("gru_variant", evidence, longer)
    return None


def update_gate(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find an update gate that keeps the old state in one program, the new one in the other."""
    part = divergence.parts[1]
    for value in part.inputs:
        if features.comes_from(part.tape, value, GATES, 3) is None or not _in_cell(part):
            continue
        if divergence.agrees({value: 1 - part.view.arrays[value]}):
            evidence = (
                f"the update gate z of {labels[0]} is 1 - z in {labels[1]}; with 1 - z there, the "
                "results are equal"
            )
            return Finding("gru_variant", evidence, divergence)
    return None


def _in_cell(part: RegionPart) -> bool:
    """Return whether a part is computed step by step, or behind another gate."""
    tape = part.tape
    for step in part.steps:
        if any(caller.primitive.name == "scan" for caller in step.callers):
            return True
        for value in step.operands:
            candidate = features.comes_from(tape, value, ("tanh",), 2)
            if candidate is None:
                continue
            if features.comes_from(tape, candidate.operands[0], GATES, 4) is not None:
                return True
    return False


def forget_bias(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a constant added to a gate whose result is multiplied with the cell's state."""
    number = features.offset(divergence)
    if number is None or not all(map(_is_gate, divergence.parts)):
        return None
    evidence = (
        f"the forget gate of {labels[0]} adds {number:.4g} to that of {labels[1]}; adding it "
        "in both makes everything downstream match"
    )
    return Finding("lstm_forget_bias", evidence, divergence)


def gate_order(divergence: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find the permutation of a cell's gates after which the programs agree."""
    second_region = divergence.search.second
    view, tape = second_region.view, second_region.tape
    for gates in _splits(tape, divergence.parts[1].values):
        identity, *permutations = itertools.permutations(range(len(gates)))
        candidates: list[tuple[int, tuple[int, ...], dict[int, Array]]] = []
        for order in permutations:
            values = {gate: view.arrays[gates[i]] for gate, i in zip(gates, order, strict=True)}
            if divergence.substitute is not None and not divergence.agrees(values):
                continue
            view_after = View(tape, tape.replay(values, arrays=view.arrays), view.tolerance)
            outputs = [
                divergence.search.first.tape.outputs[slot] for slot in divergence.search.slots
            ]
            num_left = len(region(divergence.search.first.view, view_after, outputs).values)
            if num_left < len(divergence.search.first.values) // 2:
                candidates.append((num_left, order, values))
        if candidates:
            _, order, values = min(candidates, key=lambda each: each[0])
            name = "lstm_forget_bias" if len(gates) == 4 else "gru_variant"
            evidence = (
                f"another order of the gates: {labels[1]} has at positions {order} what "
                f"{labels[0]} has at {identity}; in one order, the results agree"
            )
            return Finding(name, evidence, replace(divergence, values=values, operands={}))
    return None


def _ending_at(
    divergence: Divergence, early: int, product: Step, gated: Step
) -> Iterator[Divergence]:
    """Yield divergences that end soon after the early gate's product and the late gate."""
    soon = []
    for side, step in ((early, product), (1 - early, gated)):
        region, start = divergence.parts[side].region, step.results[0]
        soon.append([v for v in region.values if start in region.ancestors[v]][:4])
    for a, b in itertools.product(*(soon if early == 0 else soon[::-1])):
        if divergence.search.fits(a, b) and (longer := divergence.search.next_agree(a, b)):
            yield longer


def _gate_then_product(region: Region) -> Step | None:
    """Find a product with parameters of what a gate was multiplied with."""
    tape = region.tape
    for step in region.steps(region.values):
        if step.name != "dot_general":
            continue
        for value in step.operands:
            multiplied = features.comes_from(tape, value, ("mul",), 2)
            if multiplied is not None and _gate_operand(tape, multiplied) is not None:
                return step
    return None


def _product_then_gate(region: Region) -> tuple[Step, int, Step] | None:
    """Find a gate that multiplies a product with parameters: its step, position and the product."""
    tape = region.tape
    for step in region.steps(region.values):
        position = _gate_operand(tape, step) if step.name == "mul" else None
        if position is None:
            continue
        product = features.comes_from(tape, step.operands[1 - position], ("dot_general",), 4)
        if product is not None:
            return step, position, product
    return None


def _gate_operand(tape: Tape, step: Step) -> int | None:
    for position, value in enumerate(step.operands):
        if features.comes_from(tape, value, GATES, 2) is not None:
            return position
    return None


def _moved_gate_agrees(
    divergence: Divergence, side: int, step: Step, position: int, dot: Step
) -> bool:
    """Multiply the product's operand with the gate, and not its result; compare both ends."""
    part, early = divergence.parts[side], divergence.parts[1 - side]
    view, tape = part.view, part.tape
    if part.end is None or early.end is None:
        return False
    # A bias inside the late gate's product has no counterpart.
    zero_leaves = {v: np.zeros_like(view.arrays[v]) for v in part.region.leaves}
    gate = view.array(step.operands[position])
    expected = early.view.core(early.end)
    for operand_position, value in enumerate(dot.operands):
        if not tape.depends[value] & INPUTS:
            continue
        state = view.array(value)
        for arranged in layouts(gate, state.shape):
            operands = {
                (dot, operand_position): state * arranged,
                (step, position): np.ones_like(gate),
            }
            arrays = tape.replay(zero_leaves, operands, arrays=view.arrays)
            core = Core.of(arrays[part.end])
            if core.same(expected, view.tolerance):
                return True
    return False


def _is_gate(part: RegionPart) -> bool:
    """Return whether a value becomes a gate whose product is added to another."""
    tape = part.tape
    near = None if part.end is None else features.leads_to(tape, part.end, GATES, 2)
    product = near and features.leads_to(tape, near.results[0], ("mul",), 1)
    added = product and features.leads_to(tape, product.results[0], ("add",), 1)
    return added is not None


def _splits(tape: Tape, part: list[int]) -> list[list[int]]:
    """Return the groups of 3 or 4 equal pieces of one value from which a part is computed."""
    groups: dict[int, list[int]] = {}
    for step in tape.steps:
        if step.name == "split":
            groups[step.index] = list(step.results)
        elif step.name in ("slice", "dynamic_slice"):
            groups.setdefault(-1 - tape.roots[step.operands[0]], []).extend(step.results)
    splits = []
    for pieces in groups.values():
        sizes = {np.shape(tape.arrays[piece]) for piece in pieces}
        if len(pieces) in (3, 4) and len(sizes) == 1:
            near = features.onward(tape, pieces, 4)
            values = {*pieces, *(result for step in near for result in step.results)}
            if not values.isdisjoint(part):
                splits.append(pieces)
    return splits
