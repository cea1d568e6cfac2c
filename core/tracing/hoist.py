"""Scans over random keys that draw all random numbers before the loop.

In a small loop, drawing a few numbers per step costs more than the rest of the step. The equations
of the traced step that depend on its key and not on the carry (action noise, environment resets)
are evaluated for all steps in one batch. The numbers equal those of a plain scan, and take `T`
times the memory of one step.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.extend import core as jex

from ..types import PyTree
from .jaxprs import bind, needed, variables


def scan_keys(
    step: Callable[[PyTree, Any], tuple[PyTree, PyTree]], carry: PyTree, keys: PyTree
) -> tuple[PyTree, PyTree]:
    """Compute `jax.lax.scan(step, carry, keys)`, with the random numbers drawn before the loop.

    Args:
      step: `step(carry, keys) -> (carry, outputs)`, as for `jax.lax.scan`.
      carry: any pytree of arrays.
      keys: typed keys `[T]`, or a pytree of them.

    Returns:
      The last carry, and the outputs `[T, ...]`.
    """
    drawn, body = draw_ahead(step, carry, keys)
    return jax.lax.scan(body, carry, drawn, length=jax.tree.leaves(keys)[0].shape[0])


def draw_ahead(
    step: Callable[[PyTree, Any], tuple[PyTree, PyTree]], carry: PyTree, keys: PyTree
) -> tuple[list[jax.Array], Callable[[PyTree, list[jax.Array]], tuple[PyTree, PyTree]]]:
    """Split a step into the part that depends on keys only and the rest; evaluate the first.

    Args:
      step, carry, keys: as for `scan_keys`; only the shapes of `carry` are used.

    Returns:
      The random values of `T` steps, `[T, ...]` each, and `step` with one row of them as its
      second argument.
    """
    first = jax.tree.map(lambda key: key[0], keys)
    closed, (_, output_shape) = jax.make_jaxpr(step, return_shape=True)(carry, first)
    jaxpr = closed.jaxpr
    leaves, treedef = jax.tree.flatten(carry)
    constants = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    live = needed(jaxpr.eqns, jaxpr.outvars)

    carry_vars, key_vars = jaxpr.invars[: len(leaves)], jaxpr.invars[len(leaves) :]
    in_loop, ahead = set(carry_vars), set(key_vars)
    before, during = [], []
    for equation in live:
        used = set(variables(equation.invars))
        if used & in_loop or equation.effects:
            in_loop.update(equation.outvars)
            during.append(equation)
        elif used & ahead:
            ahead.update(equation.outvars)
            before.append(equation)
        else:  # Depends on constants only: evaluated in both parts, to avoid stacking it T times.
            before.append(equation)
            during.append(equation)

    computed = {var for equation in during for var in equation.outvars}
    wanted = [*variables(jaxpr.outvars), *(v for e in during for v in variables(e.invars))]
    # In order of appearance: the order of a set changes from run to run, and would miss JAX's
    # compilation cache.
    passed = list(dict.fromkeys(v for v in wanted if v in ahead and v not in computed))
    before = needed(before, passed)

    def draw(keys: list[jax.Array]) -> list[jax.Array]:
        known = _run(before, {**constants, **dict(zip(key_vars, keys, strict=True))})
        return [known[var] for var in passed]

    def body(carry: PyTree, drawn: list[jax.Array]) -> tuple[PyTree, PyTree]:
        known = {**constants, **dict(zip(carry_vars, jax.tree.leaves(carry), strict=True))}
        known = _run(during, {**known, **dict(zip(passed, drawn, strict=True))})
        results = [v.val if isinstance(v, jex.Literal) else known[v] for v in jaxpr.outvars]
        outputs = jax.tree.unflatten(jax.tree.structure(output_shape), results[len(leaves) :])
        return treedef.unflatten(results[: len(leaves)]), outputs

    return jax.vmap(draw)(jax.tree.leaves(keys)), body


def _run(equations: Iterable[Any], known: dict[Any, jax.Array]) -> dict[Any, jax.Array]:
    for equation in equations:
        values = [a.val if isinstance(a, jex.Literal) else known[a] for a in equation.invars]
        known.update(zip(equation.outvars, bind(equation, values), strict=True))
    return known
