"""Record a traced program as a tape, its calls and loops unrolled."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.typing import ArrayLike

from ...core.network import Leaf
from ...core.tracing.jaxprs import aval_of, called_program, ends_of_scan, evaluate
from ...core.types import PyTree
from ..host import on_host
from ..types import Array
from .tape import INPUTS, KEY, LAYOUT, PARAMS, STATE, Tape, evaluation_types
from .wide import widen

# Equations of a loop that are recorded in an update: many steps of an advantage estimator, or the
# first of several gradient steps.
MAX_UNROLLED = 1_000
PER_ROW = 4  # equations that read one row of an array


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A function of named parameters, with its arguments.

    Attributes:
      function: `function(params, state, inputs, key) -> (outputs, new_state)`, pytrees of arrays.
      params: parameters by canonical name.
      arrays_of: the arrays that hold them, by canonical name, from which reports take their names.
      state, inputs, key: the other arguments.
      of_batches: whether its examples are batches, as of a loss.
      is_update: whether it is an agent's update, not a network. Its random draws are kept, since
        they do not depend on the library; of a long loop the first iterations are recorded, and
        lines of triglot's algorithms are shown.
      keeps_draws: whether a network's random draws are kept too.
    """

    function: Callable[..., tuple[PyTree, PyTree]]
    params: Mapping[str, Array]
    arrays_of: Mapping[str, Leaf] = field(default_factory=dict)
    state: PyTree = ()
    inputs: PyTree = ()
    key: jax.Array
    of_batches: bool = False
    is_update: bool = False
    keeps_draws: bool = False


def record(
    program: Program, *, wide: bool = False, shared: Mapping[str, Array] | None = None
) -> Tape:
    """Trace a program and evaluate it operation by operation.

    Random bits are replaced by a constant, and masks that keep a part of an array at random
    (dropout) by one that keeps all: two libraries draw other numbers from equal keys. An update
    keeps its draws, and so does a program that asks for it.

    Args:
      program: the function and its arguments.
      wide: evaluate in float64, whatever the traced types.
      shared: parameters by name whose values in float64 are these, whatever the type of those that
        are traced.
    """
    arguments = (dict(program.params), program.state, program.inputs, program.key)
    closed, shapes = jax.make_jaxpr(program.function, return_shape=True)(*arguments)
    tape = Tape(
        wide,
        is_update=program.is_update,
        of_batches=program.of_batches,
        arrays_of=program.arrays_of,
        keeps_draws=program.is_update or program.keeps_draws,
    )
    recorder = _Recorder(tape)
    values = []
    for mask, part, argument in zip(
        (PARAMS, STATE, INPUTS, KEY), ("", "state", "inputs", "key"), arguments, strict=True
    ):
        for path, leaf in jax.tree_util.tree_leaves_with_path(argument):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            array = shared.get(name, leaf) if shared and not part else leaf
            values.append(tape.add(widen(array) if wide else on_host(leaf), mask))
            tape.leaves[values[-1]] = f"{part}/{name}".strip("/")
    with evaluation_types(wide):
        results = recorder.inline(closed, values)
    num_outputs = len(jax.tree.leaves(shapes[0]))
    tape.outputs, tape.new_state = results[:num_outputs], results[num_outputs:]
    return tape


@dataclass
class _Recorder:
    tape: Tape
    callers: tuple[jex.JaxprEqn, ...] = ()

    def inline(
        self, closed: jex.ClosedJaxpr, operands: Sequence[int], caller: jex.JaxprEqn | None = None
    ) -> list[int]:
        """Record the equations of a jaxpr."""
        jaxpr, constants = closed.jaxpr, map(self.constant, closed.consts)
        values = dict(zip(jaxpr.constvars, constants, strict=True))
        values.update(zip(jaxpr.invars, operands, strict=True))
        outer = self.callers
        self.callers = outer if caller is None else (*outer, caller)
        read_atom = evaluate(jaxpr.eqns, values, self.rule, self.constant)
        self.callers = outer
        return [read_atom(atom) for atom in jaxpr.outvars]

    def constant(self, array: ArrayLike) -> int:
        return self.tape.add(widen(array) if self.tape.is_wide else on_host(array))

    def rule(self, equation: jex.JaxprEqn, operands: list[int]) -> Sequence[int]:
        tape, name = self.tape, equation.primitive.name
        if (program := called_program(equation)) is not None:
            return self.inline(program, operands, equation)
        if name == "cond":
            tape.branches_on_key |= bool(tape.depends[operands[0]] & KEY)
            branch = equation.params["branches"][int(tape.arrays[operands[0]])]
            return self.inline(branch, operands[1:], equation)
        if name == "scan":
            return self.unroll(equation, operands)
        if name == "while" and tape.is_update:
            return self.iterate(equation, operands)
        is_random = name == "select_n" and tape.depends[operands[0]] == KEY
        if is_random and not tape.keeps_draws:
            operands = [self.keep_mask(operands), *operands[1:]]
        return self.step(equation, operands)

    def step(self, equation: jex.JaxprEqn, operands: Sequence[int]) -> tuple[int, ...]:
        """Evaluate and record one equation."""
        tape, name = self.tape, equation.primitive.name
        arrays = tape.bind(equation, [tape.arrays[value] for value in operands])
        if name == "random_bits" and not tape.keeps_draws:
            # As uniform numbers these are 0.1, which keeps an element at most rates of dropout.
            arrays = [
                np.full_like(array, int(0.1 * 2.0 ** (8 * array.itemsize))) for array in arrays
            ]
        results = tape.add_step(equation, operands, arrays, self.callers).results
        if name in LAYOUT and _keeps_values(equation):
            for value, source in zip(results, operands, strict=False):
                tape.roots[value] = tape.roots[source]
        return results

    def keep_mask(self, operands: Sequence[int]) -> int:
        """Return a mask that selects the operand that is not 0 everywhere."""
        original, *cases = (self.tape.arrays[value] for value in operands)
        selected = next((i for i, case in enumerate(cases) if np.any(case)), 0)
        mask = self.tape.add(np.full_like(original, selected), KEY)
        self.tape.origins[mask] = operands[0]
        return mask

    def unroll(self, equation: jex.JaxprEqn, operands: Sequence[int]) -> Sequence[int]:
        """Record a scan, one iteration after the other.

        Of a long loop in an update the first iterations are recorded; the others repeat the last.
        """
        params = equation.params
        first, last = ends_of_scan(params)
        constants, carry, scanned = operands[:first], list(operands[first:last]), operands[last:]
        length = params["length"]
        count = length
        if self.tape.is_update:
            size = num_equations(params["jaxpr"]) + PER_ROW * len(scanned)
            count = min(length, max(1, MAX_UNROLLED // max(1, size)))
        order = range(length)[::-1] if params["reverse"] else range(length)
        rows: dict[int, list[int]] = {}
        for i in order[:count]:
            row = [self.row(value, i) for value in scanned]
            results = self.inline(params["jaxpr"], [*constants, *carry, *row], equation)
            carry, rows[i] = results[: len(carry)], results[len(carry) :]
        if not length:
            return self.step(equation, operands)
        recorded = sorted(rows)
        nearest = np.clip(np.arange(length), recorded[0], recorded[-1]) - recorded[0]

        def stack_rows(*ys: jax.Array) -> jax.Array:
            return jnp.stack(ys) if count == length else jnp.stack(ys)[nearest]

        columns = zip(*(rows[i] for i in recorded), strict=True)
        return [*carry, *(self.call(stack_rows, *column) for column in columns)]

    def row(self, value: int, index: int) -> int:
        """Return a row of an array; of stacked parameters it is the parameter itself."""
        step = self.tape.producers.get(value)
        is_stack = step is not None and step.name == "stack" and step.equation.params["axis"] == 0
        if step is not None and is_stack and self.tape.depends[value] == PARAMS:
            return step.operands[index]
        return self.call(lambda xs: xs[index], value)

    def iterate(self, equation: jex.JaxprEqn, operands: Sequence[int]) -> Sequence[int]:
        """Record the iterations of a while loop; the rest of a long loop is one equation."""
        params = equation.params
        first = params["cond_nconsts"]
        last = first + params["body_nconsts"]
        tested, constants, carry = operands[:first], operands[first:last], list(operands[last:])
        size = num_equations(params["cond_jaxpr"]) + num_equations(params["body_jaxpr"])
        for _ in range(max(1, MAX_UNROLLED // max(1, size))):
            (goes_on,) = self.inline(params["cond_jaxpr"], [*tested, *carry], equation)
            if not self.tape.arrays[goes_on]:
                return carry
            carry = self.inline(params["body_jaxpr"], [*constants, *carry], equation)
        return self.step(equation, [*tested, *constants, *carry])

    def call(self, function: Callable[..., jax.Array], *operands: int) -> int:
        """Record the equations of a function."""
        closed = jax.make_jaxpr(function)(*(self.tape.arrays[value] for value in operands))
        return self.inline(closed, operands)[0]


def num_equations(jaxpr: jex.Jaxpr | jex.ClosedJaxpr) -> int:
    """Count the equations that recording a jaxpr adds, about."""
    count = 0
    for equation in jaxpr.eqns if isinstance(jaxpr, jex.Jaxpr) else jaxpr.jaxpr.eqns:
        inner = [num_equations(called) for called in jex.jaxprs_in_params(equation.params)]
        repeated = equation.params["length"] if equation.primitive.name == "scan" else 1
        count += 1 + repeated * max(inner, default=0)
    return count


def _keeps_values(equation: jex.JaxprEqn) -> bool:
    if equation.primitive.name != "convert_element_type":
        return True
    to_integer = jnp.issubdtype(equation.params["new_dtype"], jnp.integer)
    return not to_integer or jnp.issubdtype(aval_of(equation.invars[0]).dtype, jnp.integer)
