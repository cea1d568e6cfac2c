"""Record a traced network as a list of evaluated equations, its calls and loops unrolled."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.network import Network, Variables
from ...core.tracing.jaxprs import context_of, evaluate
from ...core.types import PyTree
from .wide import bind_native, bind_wide, widen

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
CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
CALLED = {
    "checkpoint",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "jit",
    "pjit",
    "remat",
    "remat2",
}


@dataclass(frozen=True, eq=False)
class Step:
    """One evaluated equation.

    Attributes:
      equation: has the primitive, its parameters and its context.
      operands, results: indices of values.
      callers: the equations of the calls that hold it, outermost first.
    """

    equation: Any
    operands: tuple[int, ...]
    results: tuple[int, ...]
    callers: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        return self.equation.primitive.name


@dataclass(eq=False)
class Tape:
    """The evaluated equations of a network's forward pass, and all values.

    Attributes:
      steps: in order.
      arrays: the values by index: leaves, constants and results.
      depends: bit mask of each value's dependencies.
      roots: for each value, the one that it rearranges; itself if it is computed.
      producers: the step that computes a value; leaves and constants have none.
      leaves: shown names of parameters, state and inputs by value.
      origins: the random mask that a constant one replaces.
      outputs, new_state: values of the flattened results.
      is_wide: whether the values are float64, whatever the traced types.
    """

    is_wide: bool
    steps: list[Step] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)
    depends: list[int] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    producers: dict[int, int] = field(default_factory=dict)
    leaves: dict[int, str] = field(default_factory=dict)
    origins: dict[int, int] = field(default_factory=dict)
    outputs: list[int] = field(default_factory=list)
    new_state: list[int] = field(default_factory=list)

    def is_constant(self, value: int) -> bool:
        """Return whether a value depends neither on parameters nor on state nor on inputs."""
        return not self.depends[value] & DATA

    def is_layout(self, step: Step) -> bool:
        """Return whether a step only rearranges its operands."""
        return any(self.roots[value] != value for value in step.results)

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """The steps, other than rearrangements, that read a value or a rearrangement of it."""
        found: dict[int, list[int]] = {}
        for index, step in enumerate(self.steps):
            if not self.is_layout(step):
                for root in {self.roots[value] for value in step.operands}:
                    found.setdefault(root, []).append(index)
        return found

    def bind(self, equation: Any, arrays: Sequence[Any]) -> list[Any]:
        """Evaluate one equation."""
        return (bind_wide if self.is_wide else bind_native)(equation, arrays)

    def add(self, array: Any, depends: int = 0) -> "Value":
        """Add a value."""
        self.arrays.append(array)
        self.depends.append(depends)
        self.roots.append(len(self.roots))
        return Value(len(self.arrays) - 1, array)

    def replay(
        self,
        values: Mapping[int, Any],
        operands: Mapping[tuple[int, int], Any] | None = None,
        *,
        arrays: Sequence[Any] | None = None,
        steps: Sequence[int] | None = None,
    ) -> list[Any]:
        """Evaluate again with other values.

        Args:
          values: arrays in place of values.
          operands: arrays in place of operands, by step and position.
          arrays: the values to start from; the recorded ones by default.
          steps: the steps to evaluate, in order; all by default.

        Returns:
          All values. What depends on no replaced one is not evaluated.
        """
        operands = operands or {}
        now = list(self.arrays if arrays is None else arrays)
        changed = set(values)
        for value, array in values.items():
            now[value] = array
        replaced = {step for step, _ in operands}
        with _types(self.is_wide):
            for index in range(len(self.steps)) if steps is None else steps:
                step = self.steps[index]
                if index not in replaced and changed.isdisjoint(step.operands):
                    continue
                given = [
                    operands.get((index, position), now[value])
                    for position, value in enumerate(step.operands)
                ]
                with context_of(step.equation):
                    results = self.bind(step.equation, given)
                for value, array in zip(step.results, results, strict=True):
                    if value not in values:
                        now[value] = array
                        changed.add(value)
        return now


@dataclass(frozen=True, eq=False)
class Value:
    """A value of a tape, while it is recorded."""

    index: int
    array: Any


def record(
    network: Network,
    params: Mapping[str, Any],
    state: PyTree,
    inputs: PyTree,
    key: jax.Array,
    *,
    train: bool,
    shared: Mapping[str, Any] | None = None,
) -> Tape:
    """Trace and evaluate a network as a function of its canonical parameters.

    Random bits are replaced by a constant, and masks that keep a part of an array at random
    (dropout) by one that keeps all: two libraries draw other numbers from equal keys.

    Args:
      network: with a codec.
      params: its parameters by canonical name.
      state, inputs, key, train: passed to `network.apply`.
      shared: parameters by name whose values are these, whatever the type of those that are
        traced; if given, all is evaluated in float64.
    """
    codec = network.codec
    assert codec is not None  # `explain` refuses networks without one

    def program(named: Any, state: Any, inputs: Any, key: Any) -> Any:
        variables = Variables(params=codec.decode(named), state=state)
        return network.apply(variables, inputs, key=key, train=train)

    arguments = (dict(params), state, inputs, key)
    closed, shapes = jax.make_jaxpr(program, return_shape=True)(*arguments)
    wide = shared is not None
    recorder = _Recorder(Tape(wide))
    tape, values = recorder.tape, []
    for mask, part, argument in zip(
        (PARAMS, STATE, INPUTS, KEY), ("", "state", "inputs", "key"), arguments, strict=True
    ):
        for path, leaf in jax.tree_util.tree_leaves_with_path(argument):
            shown = jax.tree_util.keystr(path, simple=True, separator="/")
            known = shared.get(shown, leaf) if shared and not part else leaf
            values.append(tape.add(widen(known) if wide else _on_host(leaf), mask))
            tape.leaves[values[-1].index] = f"{part}/{shown}".strip("/")
    with _types(wide):
        results = [value.index for value in recorder.inline(closed, values)]
    num_outputs = len(jax.tree.leaves(shapes[0]))
    tape.outputs, tape.new_state = results[:num_outputs], results[num_outputs:]
    return tape


@dataclass
class _Recorder:
    tape: Tape
    callers: tuple[Any, ...] = ()

    def inline(self, closed: Any, operands: Sequence[Value], caller: Any = None) -> list[Value]:
        """Record the equations of a jaxpr."""
        jaxpr = getattr(closed, "jaxpr", closed)
        constants = [self.constant(array) for array in getattr(closed, "consts", ())]
        known = dict(zip(jaxpr.constvars, constants, strict=True))
        known.update(zip(jaxpr.invars, operands, strict=True))
        outer = self.callers
        self.callers = outer if caller is None else (*outer, caller)
        read = evaluate(jaxpr.eqns, known, self.rule, self.constant)
        self.callers = outer
        return [read(atom) for atom in jaxpr.outvars]

    def constant(self, array: Any) -> Value:
        return self.tape.add(widen(array) if self.tape.is_wide else _on_host(array))

    def rule(self, equation: Any, operands: list[Value]) -> list[Value]:
        name, params = equation.primitive.name, equation.params
        if name in CALLED:
            called = next(params[key] for key in CALLS if key in params)
            return self.inline(called, operands, equation)
        if name == "cond":
            branch = params["branches"][int(operands[0].array)]
            return self.inline(branch, operands[1:], equation)
        if name == "scan":
            return self.unroll(equation, operands)
        if name == "select_n" and self.is_random(operands[0]):
            operands = [self.keeping(operands), *operands[1:]]
        return self.step(equation, operands)

    def step(self, equation: Any, operands: Sequence[Value]) -> list[Value]:
        """Evaluate and record one equation."""
        tape, name = self.tape, equation.primitive.name
        arrays = tape.bind(equation, [value.array for value in operands])
        if name == "random_bits":
            # As uniform numbers these are 0.1, which keeps an element at most rates of dropout.
            arrays = [np.full_like(array, int(0.1 * 2.0 ** (8 * array.itemsize))) for array in arrays]
        depends = 0
        for value in operands:
            depends |= tape.depends[value.index]
        results = [tape.add(array, depends) for array in arrays]
        indices = tuple(value.index for value in operands)
        step = Step(equation, indices, tuple(value.index for value in results), self.callers)
        for value in results:
            tape.producers[value.index] = len(tape.steps)
        if name in LAYOUT and _keeps_values(equation):
            for value, source in zip(results, operands, strict=False):
                tape.roots[value.index] = tape.roots[source.index]
        tape.steps.append(step)
        return results

    def is_random(self, value: Value) -> bool:
        return self.tape.depends[value.index] == KEY

    def keeping(self, operands: Sequence[Value]) -> Value:
        """Return a mask that selects the operand that is not 0 everywhere."""
        kept = next((i for i, case in enumerate(operands[1:]) if np.any(case.array)), 0)
        mask = self.tape.add(np.full_like(operands[0].array, kept), KEY)
        self.tape.origins[mask.index] = operands[0].index
        return mask

    def unroll(self, equation: Any, operands: Sequence[Value]) -> list[Value]:
        """Record a scan, one iteration after the other."""
        params = equation.params
        first = params["num_consts"]
        last = first + params["num_carry"]
        constants, carry, scanned = operands[:first], list(operands[first:last]), operands[last:]
        length = params["length"]
        order = range(length)[::-1] if params["reverse"] else range(length)
        rows: dict[int, list[Value]] = {}
        for i in order:
            row = [self.call(lambda xs, i=i: xs[i], value) for value in scanned]
            results = self.inline(params["jaxpr"], [*constants, *carry, *row], equation)
            carry, rows[i] = results[: len(carry)], results[len(carry) :]
        if not length:
            return self.step(equation, operands)
        columns = zip(*(rows[i] for i in range(length)), strict=True)
        return [*carry, *(self.call(lambda *ys: jnp.stack(ys), *column) for column in columns)]

    def call(self, function: Callable[..., Any], *operands: Value) -> Value:
        """Record the equations of a function."""
        closed = jax.make_jaxpr(function)(*(value.array for value in operands))
        return self.inline(closed, operands)[0]


def _types(wide: bool) -> Any:
    return jax.enable_x64(True) if wide else contextlib.nullcontext()


def _on_host(array: Any) -> Any:
    is_key = jnp.issubdtype(jnp.result_type(array), jax.dtypes.prng_key)
    return array if is_key else np.asarray(array)


def _keeps_values(equation: Any) -> bool:
    if equation.primitive.name != "convert_element_type":
        return True
    to_integer = jnp.issubdtype(equation.params["new_dtype"], jnp.integer)
    return not to_integer or jnp.issubdtype(equation.invars[0].aval.dtype, jnp.integer)
