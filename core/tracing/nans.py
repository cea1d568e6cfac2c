"""Find the operation of a program that returned the first NaN behind one of its results.

The program is evaluated operation by operation. From a result that is NaN, the operands that are
NaN are followed back to the operation that made a NaN of finite or infinite numbers. Calls and
branches are entered; a loop is entered at the step where its carry became NaN.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.extend import source_info_util

from ..types import PyTree
from .jaxprs import Atom, bind, called_program, context_of, ends_of_scan

MAX_SHOWN = 3  # operands in a description


@dataclass(frozen=True)
class NanSource:
    """An operation that returned NaN although none of its operands was.

    Attributes:
      operation: JAX's name, such as `log`.
      operands: their values where the result is NaN, such as `-0.5`.
      where: the line of the user's code, as `file.py:12 (function)`; empty if it is unknown.
    """

    operation: str
    operands: tuple[str, ...]
    where: str

    def __str__(self) -> str:
        values = f"({', '.join(self.operands)})" if self.operands else ""
        return f"{self.operation}{values}" + (f" at {self.where}" if self.where else "")


def find_nan_source(
    function: Callable[..., PyTree], *args: PyTree, of: Callable[[PyTree], PyTree]
) -> NanSource | None:
    """Find the operation behind the first NaN in a result.

    Args:
      function: a pure function.
      args: its arguments, arrays.
      of: selects the results to explain, such as the parameters.

    Returns:
      The operation; None if none of these results is NaN, or an argument was NaN.
    """

    def results(*args: PyTree) -> list[jax.Array]:
        return jax.tree.leaves(of(function(*args)))

    closed = jax.make_jaxpr(results)(*args)
    values = [jnp.asarray(leaf) for leaf in jax.tree.leaves(args)]
    source = _explain(closed.jaxpr, closed.consts, values, None)
    return source if isinstance(source, NanSource) else None


def _explain(
    jaxpr: jex.Jaxpr, consts: Sequence[jax.Array], values: Sequence[jax.Array], output: int | None
) -> NanSource | int | None:
    """Evaluate a program and follow a NaN back.

    Args:
      jaxpr, consts: the program.
      values: its arguments.
      output: the result to explain; None for the first that is NaN.

    Returns:
      The operation, the number of the argument that was NaN, or None.
    """
    known: dict[Atom, jax.Array] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, values, strict=True))
    makers: dict[Atom, tuple[int, jex.JaxprEqn, int]] = {}

    def read(atom: Atom) -> jax.Array:
        return atom.val if isinstance(atom, jex.Literal) else known[atom]

    for number, equation in enumerate(jaxpr.eqns):
        with context_of(equation):
            results = bind(equation, [read(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
        for index, variable in enumerate(equation.outvars):
            makers[variable] = number, equation, index
    wanted = jaxpr.outvars if output is None else [jaxpr.outvars[output]]
    variable = next((atom for atom in wanted if _is_nan(read(atom))), None)
    while variable in makers:
        _, equation, index = makers[variable]
        operands = [read(atom) for atom in equation.invars]
        inside = _inside(equation, operands, index)
        if isinstance(inside, NanSource):
            return inside
        if isinstance(inside, int):
            variable = equation.invars[inside]
            continue
        nan = [
            atom for atom, value in zip(equation.invars, operands, strict=True) if _is_nan(value)
        ]
        if not nan:
            return _source(equation, operands, known[variable])
        # The one that was made first: the others may follow from it.
        variable = min(nan, key=lambda atom: makers[atom][0] if atom in makers else -1)
    return jaxpr.invars.index(variable) if variable in jaxpr.invars else None


def _inside(
    equation: jex.JaxprEqn, operands: Sequence[jax.Array], output: int
) -> NanSource | int | None:
    """Explain a result of an equation that holds programs; the number of an operand, or None."""
    name, params = equation.primitive.name, equation.params
    program = called_program(equation)
    if program is not None and len(program.jaxpr.invars) == len(operands):
        return _explain(program.jaxpr, program.consts, operands, output)
    if name == "cond":
        branch = params["branches"][int(operands[0])]
        origin = _explain(branch.jaxpr, branch.consts, operands[1:], output)
        return origin + 1 if isinstance(origin, int) else origin
    if name == "scan":
        return _in_scan(params, operands, output)
    if name == "while":
        return _in_while(params, operands, output)
    return None


def _in_scan(
    params: Mapping[str, Any], operands: Sequence[jax.Array], output: int
) -> NanSource | int | None:
    program, (num_consts, num_fixed) = params["jaxpr"], ends_of_scan(params)
    order = range(params["length"])[:: -1 if params["reverse"] else 1]

    def steps() -> Iterator[_Step]:
        run = jax.jit(jex.jaxpr_as_fun(program))
        before = [*operands[:num_fixed]]
        for step in order:
            arguments = [*before, *(leaf[step] for leaf in operands[num_fixed:])]
            results = run(*arguments)
            yield _Step(arguments, results)
            before = [*operands[:num_consts], *results[: num_fixed - num_consts]]

    return _in_loop(program, steps, range(num_consts, num_fixed), output)


def _in_while(
    params: Mapping[str, Any], operands: Sequence[jax.Array], output: int
) -> NanSource | int | None:
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    program, of_test = params["body_jaxpr"], [*operands[:num_cond]]

    def steps() -> Iterator[_Step]:
        run, test = (jax.jit(jex.jaxpr_as_fun(jaxpr)) for jaxpr in (program, params["cond_jaxpr"]))
        arguments = [*operands[num_cond:]]
        while bool(test(*of_test, *arguments[num_body:])[0]):
            results = run(*arguments)
            yield _Step(arguments, results)
            arguments = [*arguments[:num_body], *results]

    carry = range(num_body, len(operands) - num_cond)
    origin = _in_loop(program, steps, carry, output)
    return origin + num_cond if isinstance(origin, int) else origin


class _Step(NamedTuple):
    """A step of a loop: the arguments and the results of its body."""

    arguments: list[jax.Array]
    results: list[jax.Array]


def _in_loop(
    program: jex.ClosedJaxpr, steps: Callable[[], Iterator[_Step]], carry: range, output: int
) -> NanSource | int | None:
    """Explain a result of a loop: enter its body where that became NaN.

    Args:
      program: the body.
      steps: evaluates the loop.
      carry: which arguments of the body are results of the step before, in their order.
      output: the result of the body to explain.
    """
    while True:
        numbered = enumerate(steps())
        nan_step = next(
            ((i, step_now) for i, step_now in numbered if _is_nan(step_now.results[output])), None
        )
        if nan_step is None:
            return None
        number, step = nan_step
        inside = _explain(program.jaxpr, program.consts, step.arguments, output)
        if not isinstance(inside, int) or inside not in carry or not number:
            return inside
        output = inside - carry.start  # it was NaN before: in an earlier step


def _is_nan(value: Any) -> bool:
    """Return whether an operand, an array or a number, holds a NaN."""
    if not hasattr(value, "dtype"):
        return isinstance(value, float | complex) and value != value
    return bool(jnp.issubdtype(value.dtype, jnp.inexact)) and bool(jnp.isnan(value).any())


def _source(equation: jex.JaxprEqn, operands: Sequence[jax.Array], result: jax.Array) -> NanSource:
    place = np.unravel_index(int(np.asarray(jnp.isnan(result)).argmax()), np.shape(result))
    shown = []
    for value in operands:
        if not jnp.issubdtype(jnp.result_type(value), np.number):
            continue  # a condition, or a random key
        if np.shape(value) == np.shape(result):
            shown.append(f"{np.asarray(value)[place]:.4g}")
        elif not np.ndim(value):
            shown.append(f"{np.asarray(value)[()]:.4g}")
    where = source_info_util.summarize(equation.source_info)
    return NanSource(equation.primitive.name, tuple(shown[:MAX_SHOWN]), where)
