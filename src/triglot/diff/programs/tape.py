"""The evaluated equations of a traced program, and their evaluation with other values."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import jax
import numpy as np
from jax.extend import core as jex

from ...core.network import Leaf
from ...core.tracing.jaxprs import context_of
from ..types import Array
from .wide import bind_native, bind_wide

# Bit mask of the dependencies of a value.
PARAMS, STATE, INPUTS, KEY = 1, 2, 4, 8
DATA = PARAMS | STATE | INPUTS

# Equations that keep the values and change at most their arrangement.
LAYOUT = {
    "broadcast_in_dim",
    "convert_element_type",
    "copy",
    "copy_p",
    "device_put",
    "expand_dims",
    "name",
    "optimization_barrier",
    "pvary",
    "reduce_precision",
    "reshape",
    "sharding_constraint",
    "squeeze",
    "stop_gradient",
    "transpose",
}


@dataclass(frozen=True, eq=False)
class Step:
    """One evaluated equation.

    Attributes:
      index: its position in the tape.
      equation: the equation, with its primitive, parameters and context.
      operands, results: indices of values.
      callers: the equations of the calls that hold it, outermost first.
    """

    index: int
    equation: jex.JaxprEqn
    operands: tuple[int, ...]
    results: tuple[int, ...]
    callers: tuple[jex.JaxprEqn, ...] = ()

    @property
    def name(self) -> str:
        return self.equation.primitive.name


Operand: TypeAlias = tuple[Step, int]  # what a step reads at a position


@dataclass(eq=False)
class Tape:
    """The evaluated equations of a program, and all values.

    Attributes:
      steps: the evaluated equations, in order.
      arrays: the values by index: leaves, constants and results.
      depends: bit mask of each value's dependencies.
      roots: for each value, the one that it rearranges; itself if it is computed.
      producers: the step that computes a value; leaves and constants have none.
      leaves: the names of parameters, state and inputs, by value.
      arrays_of: the arrays that hold the parameters, by canonical name; empty if not known.
      origins: the random mask that a constant one replaces.
      outputs, new_state: values of the flattened results.
      is_wide: whether the values are float64, whatever the traced types.
      is_update: whether it is an agent's update, see `Program`.
      of_batches: whether it is a function of batches, such as a loss, see `Program`.
      keeps_draws: whether random bits and masks are those that were drawn.
      branches_on_key: whether a branch was taken that depends on a random draw.
    """

    is_wide: bool
    is_update: bool = False
    of_batches: bool = False
    keeps_draws: bool = False
    branches_on_key: bool = False
    steps: list[Step] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    depends: list[int] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    producers: dict[int, Step] = field(default_factory=dict)
    leaves: dict[int, str] = field(default_factory=dict)
    arrays_of: Mapping[str, Leaf] = field(default_factory=dict)
    origins: dict[int, int] = field(default_factory=dict)
    outputs: list[int] = field(default_factory=list)
    new_state: list[int] = field(default_factory=list)

    def display_name(self, name: str) -> str:
        """Return the name of a parameter, state or input as the author of the network knows it."""
        leaf = self.arrays_of.get(name)
        return name if leaf is None else leaf.display_name(name)

    def is_constant(self, value: int) -> bool:
        """Return whether a value depends neither on parameters nor on state nor on inputs."""
        return not self.depends[value] & DATA

    def is_layout(self, step: Step) -> bool:
        """Return whether a step only rearranges its operands."""
        return any(self.roots[value] != value for value in step.results)

    def scalar(self, value: int) -> float | None:
        """Return the number that a constant holds everywhere; None if it is something else."""
        if not self.is_constant(value):
            return None
        array = self.arrays[value]
        if not isinstance(array, np.ndarray) or not array.size or array.dtype.kind not in "cfiub":
            return None
        first = array.flat[0]
        return float(np.real(first)) if np.all(array == first) and not np.imag(first) else None

    def readers_of(self, value: int) -> list[Step]:
        """Return the steps, other than rearrangements, that read a value or a rearrangement."""
        return self._readers.get(self.roots[value], [])

    @cached_property
    def _readers(self) -> dict[int, list[Step]]:
        """The steps that `readers_of` returns, by root."""
        readers: dict[int, list[Step]] = {}
        for step in self.steps:
            if not self.is_layout(step):
                for root in {self.roots[value] for value in step.operands}:
                    readers.setdefault(root, []).append(step)
        return readers

    def rearrangements_of(self, value: int) -> list[Step]:
        """Return the steps that only rearrange a value, in order."""
        return [
            step
            for step in self.steps
            if any(self.roots[result] == value != result for result in step.results)
        ]

    @cached_property
    def live(self) -> frozenset[int]:
        """The values on which an output or a new state depends."""
        results = [*self.outputs, *self.new_state]
        used = ((*step.operands, *step.results) for step in self.steps_for(results))
        return frozenset(results).union(*used)

    @property
    def draw_sizes(self) -> list[int]:
        """How many numbers each random draw has."""
        draws = (step.results[0] for step in self.steps if step.name == "random_bits")
        return [int(np.size(self.arrays[value])) for value in draws]

    @property
    def drops_paths(self) -> bool:
        """Whether each random draw has one number for each example, or one for the batch.

        This is stochastic depth: Huang et al. 2016, https://arxiv.org/abs/1603.09382.
        """
        shapes = (np.shape(self.arrays[i]) for i in self.leaves if self.depends[i] == INPUTS)
        sizes, draws = {shape[0] for shape in shapes if len(shape) > 1}, self.draw_sizes
        return len(sizes) == 1 and bool(draws) and {*draws} <= {1, *sizes}

    def step_of(self, value: int) -> Step | None:
        """Return the step that computes a value, whatever its arrangement; None for a leaf."""
        return self.producers.get(self.roots[value])

    def ancestors(self, value: int) -> set[int]:
        """Return the values from which a value is computed, itself included."""
        pending, ancestors = [value], set[int]()
        while pending:
            current = pending.pop()
            if current not in ancestors:
                ancestors.add(current)
                if current in self.producers:
                    pending.extend(self.producers[current].operands)
        return ancestors

    def is_unused(self, value: int) -> bool:
        """Return whether a value is computed, and no output or new state depends on it."""
        return value in self.producers and value not in self.live

    def steps_for(self, values: Iterable[int], known_values: Collection[int] = ()) -> list[Step]:
        """Return the steps that compute some values, of known ones if there are any, in order."""
        pending, steps = set(values), []
        for step in reversed(self.steps):
            if pending.intersection(step.results):
                pending.update(value for value in step.operands if value not in known_values)
                steps.append(step)
        return steps[::-1]

    def bind(self, equation: jex.JaxprEqn, arrays: Sequence[Array]) -> list[Array]:
        """Evaluate one equation."""
        return (bind_wide if self.is_wide else bind_native)(equation, arrays)

    def add(self, array: Array, depends: int = 0) -> int:
        """Add a value."""
        self.arrays.append(array)
        self.depends.append(depends)
        self.roots.append(len(self.roots))
        return len(self.arrays) - 1

    def add_step(
        self,
        equation: jex.JaxprEqn,
        operands: Sequence[int],
        arrays: Iterable[Array],
        callers: tuple[jex.JaxprEqn, ...],
    ) -> Step:
        """Add an evaluated equation and its results, which depend on what its operands do."""
        depends = 0
        for value in operands:
            depends |= self.depends[value]
        results = tuple(self.add(array, depends) for array in arrays)
        step = Step(len(self.steps), equation, tuple(operands), results, callers)
        self.steps.append(step)
        self.producers.update(dict.fromkeys(results, step))
        return step

    def replay(
        self,
        values: Mapping[int, Array],
        operands: Mapping[Operand, Array] | None = None,
        *,
        arrays: Sequence[Array] | None = None,
        steps: Sequence[Step] | None = None,
        computed: dict[int, Array] | None = None,
        unchanged: Collection[int] = (),
        steps_with_operands: Collection[Step] | None = None,
        until: Callable[[int, Array], bool] | None = None,
    ) -> list[Array]:
        """Evaluate again with other values.

        Args:
          values: arrays in place of values.
          operands: arrays in place of operands.
          arrays: the values to start from; the recorded ones by default.
          steps: the steps to evaluate, in order; all by default.
          computed: a dictionary that gets the steps' results where a value is replaced.
          unchanged: values that stay what they are in `arrays`, whatever they are computed from.
          steps_with_operands: the steps of `operands` that are evaluated even if nothing that they
            read changes; all by default.
          until: a function of each value that changes and its array; the first true answer ends the
            evaluation.

        Returns:
          All values. What depends on no replaced one is not evaluated.
        """
        operands = operands or {}
        current = list(self.arrays if arrays is None else arrays)
        changed = set(values)
        for value, array in values.items():
            current[value] = array
        if steps_with_operands is None:
            steps_with_operands = {step for step, _ in operands}
        with evaluation_types(self.is_wide):
            for step in self.steps if steps is None else steps:
                if step not in steps_with_operands and changed.isdisjoint(step.operands):
                    continue
                arguments = [
                    operands.get((step, position), current[value])
                    for position, value in enumerate(step.operands)
                ]
                with context_of(step.equation):
                    results = self.bind(step.equation, arguments)
                for value, array in zip(step.results, results, strict=True):
                    if value in unchanged:
                        continue
                    if value not in values:
                        current[value] = array
                        changed.add(value)
                        if until is not None and until(value, array):
                            return current
                    elif computed is not None:
                        computed[value] = array
        return current


def evaluation_types(wide: bool) -> AbstractContextManager[object]:
    """Return the context in which a tape is evaluated."""
    return jax.enable_x64(True) if wide else contextlib.nullcontext()
