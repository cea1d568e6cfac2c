"""Jaxpr utilities."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.extend import source_info_util

from ..types import PyTree, PyTreeDef

Atom: TypeAlias = jex.Var | jex.Literal

# Where an equation that calls another program has it.
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


def bind(equation: jex.JaxprEqn, arrays: Sequence[jax.Array | np.ndarray]) -> list[jax.Array]:
    """Evaluate one equation of a jaxpr."""
    params = equation.primitive.get_bind_params(equation.params)
    result = equation.primitive.bind(*arrays, **params)
    return list(result) if equation.primitive.multiple_results else [result]


@contextlib.contextmanager
def context_of(equation: jex.JaxprEqn) -> Iterator[None]:
    """Restore the context in which an equation was traced, as `jax.core.eval_jaxpr` does.

    It holds the layout of threefry counters, the compute type, XLA metadata, the mesh, the names of
    scopes and the source line.
    """
    source = equation.source_info
    names = source_info_util.current_name_stack() + source.name_stack
    with source_info_util.user_context(source.traceback, name_stack=names), equation.ctx.manager:
        yield


def evaluate(
    equations: Iterable[jex.JaxprEqn],
    known: dict[jex.Var, Any],
    rule: Callable[[jex.JaxprEqn, list[Any]], Sequence[Any]] = bind,
    literal: Callable[[Any], Any] = lambda value: value,
) -> Callable[[Atom], Any]:
    """Evaluate equations in order, each in its own context.

    Args:
      equations: of one jaxpr.
      known: values by variable, of any type that the rule takes; the results are added.
      rule: `rule(equation, operands) -> results`.
      literal: converts the value of a literal to an operand.

    Returns:
      A function that reads the value of a variable or literal.
    """

    def read(atom: Atom) -> Any:
        return literal(atom.val) if isinstance(atom, jex.Literal) else known[atom]

    for equation in equations:
        operands = [read(atom) for atom in equation.invars]
        with context_of(equation):
            results = rule(equation, operands)
        known.update(zip(equation.outvars, results, strict=True))
    return read


def walk(
    jaxpr: jex.Jaxpr,
    callers: tuple[jex.JaxprEqn, ...] = (),
    enter: Callable[[jex.JaxprEqn], bool] = lambda equation: True,
) -> Iterator[tuple[jex.JaxprEqn, tuple[jex.JaxprEqn, ...]]]:
    """Yield the equations of a jaxpr and of those inside them, each with the calls that hold it.

    Args:
      jaxpr: an open one.
      callers: equations that hold it, outermost first.
      enter: whether to yield the equations inside an equation.
    """
    for equation in jaxpr.eqns:
        yield equation, callers
        for inner in jex.jaxprs_in_params(equation.params) if enter(equation) else ():
            yield from walk(inner, (*callers, equation), enter)


def called_program(equation: jex.JaxprEqn) -> jex.ClosedJaxpr | None:
    """Return the program that a call evaluates; None of other equations, such as loops."""
    if equation.primitive.name not in CALLED:
        return None
    program = next(equation.params[key] for key in CALLS if key in equation.params)
    return program if hasattr(program, "consts") else jex.ClosedJaxpr(program, ())


def aval_of(atom: Atom) -> jax.ShapeDtypeStruct:
    """Return the shape and the dtype of an operand or a result, which JAX's types leave open."""
    array: Any = atom.aval
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def variables(atoms: Iterable[Atom]) -> list[jex.Var]:
    """Return the atoms that are variables, not literals."""
    return [atom for atom in atoms if not isinstance(atom, jex.Literal)]


def needed(equations: Iterable[jex.JaxprEqn], outputs: Iterable[Atom]) -> list[jex.JaxprEqn]:
    """Return the equations on which the outputs depend, and those with effects."""
    wanted, kept = set(variables(outputs)), []
    for equation in reversed(list(equations)):
        if equation.effects or wanted & set(equation.outvars):
            wanted.update(variables(equation.invars))
            kept.append(equation)
    return kept[::-1]


def leaves_read(function: Callable[..., PyTree], tree: PyTree, *args: PyTree) -> tuple[int, ...]:
    """Find the leaves of `tree` on which `function(tree, *args)` may depend.

    Args:
      function: traced, not executed.
      tree, args: pytrees of arrays or `jax.ShapeDtypeStruct`s.

    Returns:
      Their indices in `jax.tree.leaves(tree)`.
    """
    leaves, treedef = jax.tree.flatten(tree)
    jaxpr = jax.make_jaxpr(lambda leaves, *args: function(treedef.unflatten(leaves), *args))(
        leaves, *args
    ).jaxpr
    read = set(variables(jaxpr.outvars))
    for equation in needed(jaxpr.eqns, jaxpr.outvars):
        read.update(variables(equation.invars))
    return tuple(i for i, var in enumerate(jaxpr.invars[: len(leaves)]) if var in read)


def with_leaves(
    treedef: PyTreeDef,
    shapes: Sequence[jax.ShapeDtypeStruct],
    read: Sequence[int],
    arrays: Iterable[jax.Array],
) -> PyTree:
    """Rebuild a tree from the leaves that `leaves_read` found; the others are zeros.

    Args:
      treedef: the tree's structure.
      shapes: all its leaves, described.
      read: the indices of `arrays` among them.
      arrays: the leaves that are read.
    """
    leaves = [jnp.zeros(shape.shape, shape.dtype) for shape in shapes]
    for index, array in zip(read, arrays, strict=True):
        leaves[index] = array
    return treedef.unflatten(leaves)


def ends_of_scan(params: Mapping[str, Any]) -> tuple[int, int]:
    """Count a scan's constant operands, and those with its carry."""
    if "num_consts" in params:
        return params["num_consts"], params["num_consts"] + params["num_carry"]
    parts = params["ft_in"].unpack()  # from JAX 0.11 on
    constants, carry, _ = (len(list(part)) for part in parts)
    return constants, constants + carry


def scan_lengths(jaxpr: jex.Jaxpr) -> list[int]:
    """Return for each input of a program the length of the scan that reads its rows, else 0.

    Rows in reverse order count, and so do single rows that are read outside of a scan.
    """
    lengths: dict[Atom, int] = {}
    for equation in reversed(jaxpr.eqns):
        read: Iterable[tuple[Atom, int]] = ()
        if equation.primitive.name == "scan":
            _, first = ends_of_scan(equation.params)
            read = ((atom, equation.params["length"]) for atom in equation.invars[first:])
        elif (called := called_program(equation)) is not None:
            read = zip(equation.invars, scan_lengths(called.jaxpr), strict=True)
        elif equation.primitive.name in ("rev", "convert_element_type"):
            read = [(equation.invars[0], lengths.get(equation.outvars[0], 0))]
        elif _is_row(equation):
            read = [(equation.invars[0], aval_of(equation.invars[0]).shape[0])]
        lengths.update((atom, n) for atom, n in read if n and not isinstance(atom, jex.Literal))
    return [lengths.get(var, 0) for var in jaxpr.invars]


def _is_row(equation: jex.JaxprEqn) -> bool:
    """Return whether an equation reads one row of an array with several axes."""
    if equation.primitive.name != "slice":
        return False
    shape, row = aval_of(equation.invars[0]).shape, aval_of(equation.outvars[0]).shape
    return len(shape) > 1 and shape[0] > 1 and row == (1, *shape[1:])
