"""The modules of two networks side by side, and whether they compute equal values."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..backends.pairing.author_names import display_place
from .programs import places
from .programs.tape import Step, Tape
from .programs.values import View, largest_difference

MAX_NUMBERS = 4  # that are shown of a value
MAX_OPERATIONS = 8  # that are shown of a module
EQUAL, DIFFERENT, FOLLOWS, INNER = "equal", "different", "follows", "inner"


@dataclass(frozen=True)
class Section:
    """A module of a network, or code between modules, with the value that it computes.

    Attributes:
      name: path of the module; `file:line` of code that belongs to none.
      source: `file:line`.
      operations: names of its operations.
      parameters: names of those that it reads, as the author of the network knows them.
      shape, dtype, low, high, mean, numbers: the module's value in float64, for up to 3 examples.
      state: `equal`: the other network computes this value too; `different`: it does not, although
        it has all inputs of the module; `follows`: an input of the module differs already; `inner`:
        it does not, but everything that reads this value is equal.
      counterpart: index of the other network's module; None if there is none.
      max_rel: the largest difference from the counterpart's value, relative to the largest number;
        None if it was not computed.
    """

    name: str
    source: str
    operations: tuple[str, ...]
    parameters: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float
    mean: float
    numbers: tuple[float, ...]
    state: str
    counterpart: int | None = None
    max_rel: float | None = None


@dataclass
class _Node:
    """A run of steps of one module."""

    name: str
    steps: list[Step]

    @property
    def results(self) -> list[int]:
        """The values that it computes, in order."""
        return [value for step in self.steps for value in step.results]


def compare_modules(views: tuple[View, View]) -> tuple[tuple[Section, ...], tuple[Section, ...]]:
    """Cut two recorded programs into modules, and compare the values that they compute.

    Args:
      views: the views of an `Explanation`; of the second program the recorded values are compared,
        not the substituted ones.

    Returns:
      The modules of each program, in its order.
    """
    first_view, tape = views[0], views[1].tape
    second_view = View(tape, tape.arrays, previous=views[1])
    nodes = _nodes(first_view.tape), _nodes(second_view.tape)
    sections = [
        [_section(first_view, node, second_view) for node in nodes[0]],
        [_section(second_view, node, first_view) for node in nodes[1]],
    ]
    for view, nodes_of_view, sections_of_view in zip(
        (first_view, second_view), nodes, sections, strict=True
    ):
        _mark_inner(view.tape, nodes_of_view, sections_of_view)
    pairs = _pairs(first_view, second_view, nodes, sections)
    for first, second in pairs:
        distance = _distance(first_view, nodes[0][first], second_view, nodes[1][second])
        sections[0][first] = replace(sections[0][first], counterpart=second, max_rel=distance)
        sections[1][second] = replace(sections[1][second], counterpart=first, max_rel=distance)
    return tuple(sections[0]), tuple(sections[1])


def _nodes(tape: Tape) -> list[_Node]:
    """Cut a program where the module changes."""
    nodes: list[_Node] = []
    for step in tape.steps:
        result = step.results[0]
        if tape.is_layout(step) or tape.is_constant(result) or tape.is_unused(result):
            continue
        name = _module(tape, step)
        if nodes and nodes[-1].name == name:
            nodes[-1].steps.append(step)
        else:
            nodes.append(_Node(name, [step]))
    return nodes


def _module(tape: Tape, step: Step) -> str:
    """Name the module of a step: its scope, else the layer of its parameter, else its line."""
    if words := places.scopes(step, functions=False):
        return "/".join(words)
    parameter = places.parameter_of(tape, step)
    owner = parameter.rpartition("/")[0]
    if parameter in tape.arrays_of:
        owner = display_place(tape.arrays_of[parameter], parameter, owner)
    return owner or places.operation(tape, step.results[0]).source


def _section(view: View, node: _Node, other_view: View) -> Section:
    tape, value = view.tape, _result(view.tape, node)
    array = view.array(value)
    real = np.real(array).astype(np.float64)
    if other_view.has(view.core(value)):
        state = EQUAL
    else:
        inputs = _inputs(view, node)
        state = DIFFERENT if all(other_view.has(view.core(each)) for each in inputs) else FOLLOWS
    parameters = (places.parameter_of(tape, step) for step in node.steps)
    return Section(
        name=node.name,
        source=places.operation(tape, value).source,
        operations=tuple(step.name for step in node.steps[:MAX_OPERATIONS]),
        parameters=tuple(dict.fromkeys(map(tape.display_name, filter(None, parameters)))),
        shape=array.shape,
        dtype=str(array.dtype),
        low=float(real.min(initial=np.inf)),
        high=float(real.max(initial=-np.inf)),
        mean=float(real.mean()) if real.size else 0.0,
        numbers=tuple(map(float, real.flat[:MAX_NUMBERS])),
        state=state,
    )


def _mark_inner(tape: Tape, nodes: Sequence[_Node], sections: list[Section]) -> None:
    """Mark values that the other network lacks, and that lead to equal ones only."""
    place = {step: number for number, node in enumerate(nodes) for step in node.steps}
    outputs = {tape.roots[value] for value in tape.outputs}
    for number in range(len(nodes))[::-1]:
        results = nodes[number].results
        readers = {place.get(step, number) for v in results for step in tape.readers_of(v)}
        states = {sections[reader].state for reader in readers - {number}}
        if (
            sections[number].state != EQUAL
            and states <= {EQUAL, INNER}
            and not outputs & {*results}
        ):
            sections[number] = replace(sections[number], state=INNER)


def _result(tape: Tape, node: _Node) -> int:
    """Return the last value of a module that something outside of it reads."""
    inside, outputs = set(node.steps), {tape.roots[value] for value in tape.outputs}
    read_outside = [
        value
        for value in node.results
        if value in outputs or any(step not in inside for step in tape.readers_of(value))
    ]
    return (read_outside or node.results)[-1]


def _inputs(view: View, node: _Node) -> list[int]:
    """Return what a module reads: values computed elsewhere, parameters and inputs."""
    tape = view.tape
    inside = set(node.results)
    operands = dict.fromkeys(tape.roots[v] for step in node.steps for v in step.operands)
    return [v for v in operands if v not in inside and not tape.is_constant(v)]


def _pairs(
    first_view: View,
    second_view: View,
    nodes: tuple[list[_Node], list[_Node]],
    sections: Sequence[Sequence[Section]],
) -> list[tuple[int, int]]:
    """Pair parts with equal values in order, and those between them one by one."""
    place = {value: index for index, node in enumerate(nodes[1]) for value in node.results}
    pairs: list[tuple[int, int]] = []
    for index, (node, section) in enumerate(zip(nodes[0], sections[0], strict=True)):
        if section.state != EQUAL:
            continue
        last = pairs[-1][1] if pairs else -1
        values = second_view.find_all(first_view.core(_result(first_view.tape, node)))
        positions = [place[value] for value in values if place.get(value, -1) > last]
        if positions:
            pairs.append((index, min(positions)))
    ends = [(-1, -1), *pairs, (len(nodes[0]), len(nodes[1]))]
    for (a, b), (c, d) in itertools.pairwise(ends):
        unmatched = [i for i in range(a + 1, c) if sections[0][i].state not in (EQUAL, INNER)]
        other_unmatched = [i for i in range(b + 1, d) if sections[1][i].state not in (EQUAL, INNER)]
        pairs += zip(unmatched, other_unmatched, strict=False)
    return sorted(pairs)


def _distance(
    first_view: View, first_node: _Node, second_view: View, second_node: _Node
) -> float | None:
    """Return the relative difference of two values; None if it is not defined."""
    a = first_view.core(_result(first_view.tape, first_node))
    b = second_view.core(_result(second_view.tape, second_node))
    if a.same(b):
        return 0.0
    arrays = (a.array, b.array) if a.array.shape == b.array.shape else (a.numbers, b.numbers)
    relative = largest_difference(*arrays)[1]
    return relative if np.isfinite(relative) else None
