"""Scans over time in which only what depends on the carry runs step by step.

Of a recurrent network's step, the layers before the cell read the step's inputs only, and the heads
after it do not change the carry. The traced step is split accordingly: those equations are
evaluated for all steps in one batch, before or after the loop, so that their products have `T * N`
rows instead of `N`. What depends on constants only, such as kernels that are joined, is evaluated
once.

The results are those of a plain scan up to rounding.
"""

import functools
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp

from ..types import PyTree
from .hoist import (
    AHEAD,
    LOOP,
    MAX_BYTES,
    ONCE,
    batched_bytes,
    num_rows,
    num_seeds,
    stages_of,
    trace_step,
)
from .jaxprs import Atom, aval_of, bind, evaluate, needed, variables


def scan_batched(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    carry: PyTree,
    rows: PyTree,
    *,
    max_bytes: int = MAX_BYTES,
) -> tuple[PyTree, PyTree]:
    """Compute `jax.lax.scan(step, carry, rows)`, with few equations in the loop.

    Args:
      step: `step(carry, row) -> (carry, outputs)`, as for `jax.lax.scan`.
      carry: any pytree of arrays.
      rows: a pytree of arrays `[T, ...]`.
      max_bytes: limit on each value of a batch, for all steps and all seeds vmapped by
        `vmap_seeds`; an equation that exceeds it stays in the loop.

    Returns:
      The last carry, and the outputs `[T, ...]`.
    """
    if num_rows(rows) == 0 or jax.config.values["jax_disable_jit"]:
        return jax.lax.scan(step, carry, rows)
    try:
        return _scan(step, carry, rows, max_bytes)
    except NotImplementedError:  # a primitive without a batching rule
        return jax.lax.scan(step, carry, rows)


def _scan(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    carry: PyTree,
    rows: PyTree,
    max_bytes: int,
) -> tuple[PyTree, PyTree]:
    length = num_rows(rows)
    closed, out_tree = trace_step(step, carry, rows)
    jaxpr, size = closed.jaxpr, len(jax.tree.leaves(carry))
    carry_vars, row_vars = jaxpr.invars[:size], jaxpr.invars[size:]
    next_carry, outputs = jaxpr.outvars[:size], jaxpr.outvars[size:]
    parts = _split(jaxpr, size, max_bytes / (length * num_seeds()))
    constants = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    evaluate(parts.once, constants)

    # What one part computes and a later part reads, one row of each.
    in_after, in_loop = _read(parts.after, outputs), _read(parts.loop, next_carry)
    ahead, during = {*row_vars, *_results(parts.before)}, [*carry_vars, *_results(parts.loop)]
    read_in_loop = [var for var in in_loop if var in ahead]
    read_after = [var for var in in_after if var in ahead.union(during)]
    results_before = [var for var in _results(parts.before) if var in {*read_in_loop, *in_after}]
    results_in_loop = [var for var in during if var in in_after]

    def stage(
        equations: list[jex.JaxprEqn],
        inputs: list[jex.Var],
        values: list[jax.Array],
        outputs_of_stage: Sequence[Atom],
    ) -> list[jax.Array]:
        read = evaluate(equations, {**constants, **dict(zip(inputs, values, strict=True))})
        return [read(atom) for atom in outputs_of_stage]

    summed = [_Product(equation) for equation in parts.loop if _is_summed(equation, constants)]

    def body(
        carry: PyTree, row: tuple[list[jax.Array], list[PyTree]]
    ) -> tuple[PyTree, list[jax.Array]]:
        loop_inputs, slots = row
        by_product = {id(p.equation): (p, slot) for p, slot in zip(summed, slots, strict=True)}

        def rule(equation: jex.JaxprEqn, operands: list[jax.Array]) -> list[jax.Array]:
            if id(equation) not in by_product:
                return bind(equation, operands)
            (product, slot), (left, right) = by_product[id(equation)], operands
            return [_multiply(product, left, jax.lax.stop_gradient(right), slot)]

        known = {**constants, **dict(zip(carry_vars, jax.tree.leaves(carry), strict=True))}
        known |= dict(zip(read_in_loop, loop_inputs, strict=True))
        read = evaluate(parts.loop, known, rule)
        body_outputs = [read(atom) for atom in [*next_carry, *results_in_loop]]
        return jax.tree.unflatten(out_tree.children()[0], body_outputs[:size]), body_outputs[size:]

    leaves = jax.tree.leaves(rows)
    known = dict(zip(row_vars, leaves, strict=True))
    stage_outputs = jax.vmap(lambda row: stage(parts.before, row_vars, row, results_before))(leaves)
    known |= dict(zip(results_before, stage_outputs, strict=True))
    stage_inputs = [known[var] for var in read_in_loop]
    slots = [_slots(p, constants[p.equation.invars[1]], length) for p in summed]
    carry, stage_outputs = jax.lax.scan(body, carry, (stage_inputs, slots), length=length)
    known |= dict(zip(results_in_loop, stage_outputs, strict=True))
    stage_inputs = [known[var] for var in read_after]
    last = jax.vmap(lambda row: stage(parts.after, read_after, row, outputs), axis_size=length)
    return carry, jax.tree.unflatten(out_tree.children()[1], last(stage_inputs))


def _is_summed(equation: jex.JaxprEqn, constants: Container[Atom]) -> bool:
    """Whether an equation of the loop is a product of the carry and a constant on its right."""
    if equation.primitive.name != "dot_general":
        return False
    left, right = equation.invars
    floats = jnp.issubdtype(aval_of(right).dtype, jnp.floating)
    return floats and right in constants and left not in constants


@dataclass(frozen=True, eq=False)
class _Product:
    """A product in the loop whose right operand is constant.

    The gradient of that operand is a sum over steps. Automatic differentiation adds to it at every
    step, a pass over a whole kernel for a product of few rows. Here the gradients of a slot, zeros
    that a step takes and does not read, are declared to be the left operand and the gradient of the
    result, which the loop thus stacks; and the gradient of what made the slots is one product of
    all steps.
    """

    equation: jex.JaxprEqn

    def __call__(self, left: jax.Array, right: jax.Array) -> jax.Array:
        return bind(self.equation, [left, right])[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _multiply(product: _Product, left: jax.Array, right: jax.Array, slot: PyTree) -> jax.Array:
    del slot
    return product(left, right)


def _multiply_forward(
    product: _Product, left: jax.Array, right: jax.Array, slot: PyTree
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    del slot
    return product(left, right), (left, right)


def _multiply_backward(
    product: _Product, operands: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array, PyTree]:
    left, right = operands
    (of_left,) = jax.linear_transpose(lambda left: product(left, right), left)(gradient)
    return of_left, jnp.zeros_like(right), (left, gradient)


_multiply.defvjp(_multiply_forward, _multiply_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 2))
def _slots(product: _Product, right: jax.Array, length: int) -> PyTree:
    """Make the slots of all steps, one for the left operand and one for the result."""
    del right
    avals = aval_of(product.equation.invars[0]), aval_of(product.equation.outvars[0])
    return tuple(jnp.zeros((length, *aval.shape), aval.dtype) for aval in avals)


def _slots_forward(product: _Product, right: jax.Array, length: int) -> tuple[PyTree, jax.Array]:
    return _slots(product, right, length), right


def _slots_backward(
    product: _Product, length: int, right: jax.Array, filled: PyTree
) -> tuple[jax.Array]:
    del length
    left, gradient = filled
    of_all = jax.linear_transpose(lambda right: jax.vmap(product, (0, None))(left, right), right)
    return of_all(gradient)


_slots.defvjp(_slots_forward, _slots_backward)


class _Parts(NamedTuple):
    """The equations of a step by when they are evaluated.

    Attributes:
      once: those that depend on constants only.
      before: those that depend on rows.
      loop: those on which the next carry depends, and those that cannot be batched.
      after: the other ones that depend on the carry.
    """

    once: list[jex.JaxprEqn]
    before: list[jex.JaxprEqn]
    loop: list[jex.JaxprEqn]
    after: list[jex.JaxprEqn]


def _split(jaxpr: jex.Jaxpr, carry_size: int, max_bytes: float) -> _Parts:
    live = needed(jaxpr.eqns, jaxpr.outvars)
    may_batch = [batched_bytes(equation) <= max_bytes for equation in live]  # none with effects
    staged: dict[str, list[jex.JaxprEqn]] = {ONCE: [], AHEAD: [], LOOP: []}
    stages = stages_of(live, may_batch, jaxpr.invars[:carry_size], jaxpr.invars[carry_size:])
    for equation, stage in zip(live, stages, strict=True):
        staged[stage].append(equation)
    single = [equation for equation, batched in zip(live, may_batch, strict=True) if not batched]
    loop = needed(staged[LOOP], [*jaxpr.outvars[:carry_size], *_results(single)])
    kept = set(map(id, loop))
    after = [equation for equation in staged[LOOP] if id(equation) not in kept]
    return _Parts(staged[ONCE], staged[AHEAD], loop, after)


def _results(equations: Iterable[jex.JaxprEqn]) -> list[jex.Var]:
    return [var for equation in equations for var in equation.outvars]


def _read(equations: Iterable[jex.JaxprEqn], outputs: Iterable[Atom]) -> list[jex.Var]:
    """List the variables that equations or outputs read, in order, so that programs repeat."""
    atoms = [atom for equation in equations for atom in equation.invars]
    return list(dict.fromkeys(variables([*atoms, *outputs])))
