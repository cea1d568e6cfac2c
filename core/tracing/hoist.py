"""Scans over random keys that draw random numbers before the loop.

In a small loop, drawing a few numbers per step costs more than the rest of the step. The equations
of the traced step that depend on its key and not on the carry (action noise, environment resets)
are evaluated for all steps in one batch, as long as their results fit into `MAX_BYTES`.

Keys, random bits and integers are exactly those of a plain scan. Floating-point values computed
from them are equal up to rounding, since XLA compiles a batch differently from one step. These
equations stay in the loop:

- random numbers of generators other than threefry: a batch of `rbg` keys gives other numbers;
- `cond` and `while`: a batch computes both branches, and iterates until its slowest element ends;
- host callbacks and effects;
- the largest, if not all of them fit.

If a primitive has no batching rule, nothing is drawn before the loop.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.extend import core as jex

from ..types import PyTree, PyTreeDef
from .jaxprs import Atom, aval_of, evaluate, needed, variables

# Name of the vmapped axis of independent seeds, whose size counts in the limit below.
SEED_AXIS = "seeds"
# Limit on what one call draws before the loop, for all steps and seeds together.
MAX_BYTES = 2**26

_IN_LOOP = {"cond", "while", "pure_callback", "ffi_call", "rng_bit_generator", "rng_uniform"}


def scan_keys(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    carry: PyTree,
    keys: PyTree,
    *,
    max_bytes: int = MAX_BYTES,
) -> tuple[PyTree, PyTree]:
    """Compute `jax.lax.scan(step, carry, keys)`, with the random numbers drawn before the loop.

    Args:
      step: `step(carry, keys) -> (carry, outputs)`, as for `jax.lax.scan`.
      carry: any pytree of arrays.
      keys: typed keys `[T]`, or a pytree of them.
      max_bytes: see `draw_ahead`.

    Returns:
      The last carry, and the outputs `[T, ...]`. Draws are exactly those of `jax.lax.scan`, floats
      computed from them equal up to rounding.
    """
    drawn, body = draw_ahead(step, carry, keys, max_bytes=max_bytes)
    return jax.lax.scan(body, carry, drawn, length=num_rows(keys))


def draw_ahead(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    carry: PyTree,
    keys: PyTree,
    *,
    max_bytes: int = MAX_BYTES,
) -> tuple[list[jax.Array], Callable[[PyTree, list[jax.Array]], tuple[PyTree, PyTree]]]:
    """Split a step into the part that depends on keys only and the rest; evaluate the first.

    Args:
      step, carry, keys: as for `scan_keys`; only the shapes of `carry` are used. Instead of keys,
        `keys` may be numbers from which the step makes its keys.
      max_bytes: limit on the values drawn, for `T` steps and all seeds vmapped by `vmap_seeds`.
        The smallest draws are batched first; those that exceed the limit are left in the step.

    Returns:
      The random values of `T` steps, `[T, ...]` each, and `step` with one row of them as its
      second argument.
    """
    rows, treedef = jax.tree.flatten(keys)
    length = num_rows(keys)
    in_loop = rows, lambda carry, row: step(carry, treedef.unflatten(row))
    if length == 0 or jax.config.values["jax_disable_jit"]:
        return in_loop
    closed, out_tree = trace_step(step, carry, keys)
    jaxpr, size = closed.jaxpr, len(jax.tree.leaves(carry))
    carry_vars, row_vars = jaxpr.invars[:size], jaxpr.invars[size:]
    constants = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    parts = _choose(jaxpr, carry_vars, row_vars, max_bytes / (length * num_seeds()))

    def draw(rows: list[jax.Array]) -> list[jax.Array]:
        read = evaluate(parts.before, {**constants, **dict(zip(row_vars, rows, strict=True))})
        return [read(var) for var in parts.passed]

    def body(carry: PyTree, drawn: list[jax.Array]) -> tuple[PyTree, PyTree]:
        leaves = map(_as_traced, jax.tree.leaves(carry), carry_vars)
        known = {**constants, **dict(zip(carry_vars, leaves, strict=True))}
        read = evaluate(parts.during, {**known, **dict(zip(parts.passed, drawn, strict=True))})
        return jax.tree.unflatten(out_tree, [read(atom) for atom in jaxpr.outvars])

    try:
        return jax.vmap(draw)(rows), body
    except NotImplementedError:  # a primitive without a batching rule
        return in_loop


def num_rows(tree: PyTree) -> int:
    """Return the length `T` of the leading axis of a pytree's leaves."""
    return jax.tree.leaves(tree)[0].shape[0]


def trace_step(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]], carry: PyTree, keys: PyTree
) -> tuple[jex.ClosedJaxpr, PyTreeDef]:
    """Trace a scan's step: its closed jaxpr, and the structure of what it returns."""
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), keys)
    closed, shapes = jax.make_jaxpr(step, return_shape=True)(carry, row)
    pairs = zip(closed.in_avals[: len(jax.tree.leaves(carry))], closed.out_avals, strict=False)
    if any(before.weak_type and before.dtype != after.dtype for before, after in pairs):
        # A scan converts a weakly typed carry, such as 0, to the dtype that the step returns.
        types, _ = jax.eval_shape(lambda carry, keys: jax.lax.scan(step, carry, keys), carry, keys)
        closed, shapes = jax.make_jaxpr(step, return_shape=True)(types, row)
    return closed, jax.tree.structure(shapes)


def _as_traced(leaf: jax.Array, var: jex.Var) -> jax.Array:
    dtype = aval_of(var).dtype
    same = jax.typeof(leaf).dtype == dtype
    return leaf if same else jax.lax.convert_element_type(leaf, dtype)


def vmap_seeds(function: Callable[[PyTree], PyTree], seeds: PyTree) -> PyTree:
    """Vmap over the leading axis `[S]`; call a single seed directly, which is 3 to 14 % faster."""
    if jax.tree.leaves(seeds)[0].shape[0] > 1:
        return jax.vmap(function, axis_name=SEED_AXIS)(seeds)
    result = function(jax.tree.map(lambda leaf: leaf[0], seeds))
    return jax.tree.map(lambda leaf: leaf[None], result)


def num_seeds() -> int:
    """Count the seeds that `vmap_seeds` vmaps, while they are traced; 1 outside of it."""
    try:
        return jax.lax.axis_size(SEED_AXIS)
    except NameError:  # not vmapped by `vmap_seeds`
        return 1


@dataclass(frozen=True)
class _Parts:
    """Equations evaluated in a batch, those of the loop, and the values passed to them."""

    before: list[jex.JaxprEqn]
    during: list[jex.JaxprEqn]
    passed: list[jex.Var]


def _choose(
    jaxpr: jex.Jaxpr, carry_vars: Sequence[jex.Var], row_vars: Sequence[jex.Var], max_bytes: float
) -> _Parts:
    """Batch the equations up to the largest size with which all passed values fit."""
    live = needed(jaxpr.eqns, jaxpr.outvars)
    sizes = [batched_bytes(equation) for equation in live]
    for limit in sorted({size for size in sizes if size <= max_bytes}, reverse=True):
        may_batch = [size <= limit for size in sizes]
        parts = _split(live, may_batch, jaxpr.outvars, carry_vars, row_vars)
        if sum(_bytes(var) for var in parts.passed if var not in row_vars) <= max_bytes:
            return parts
    return _split(live, [False] * len(live), jaxpr.outvars, carry_vars, row_vars)


def _split(
    live: Sequence[jex.JaxprEqn],
    may_batch: Sequence[bool],
    outvars: Sequence[Atom],
    carry_vars: Sequence[jex.Var],
    row_vars: Sequence[jex.Var],
) -> _Parts:
    stages = stages_of(live, may_batch, carry_vars, row_vars)
    # What depends on constants only is evaluated in both parts, to avoid stacking it T times.
    before = [equation for equation, stage in zip(live, stages, strict=True) if stage != LOOP]
    during = [equation for equation, stage in zip(live, stages, strict=True) if stage != AHEAD]
    computed = {var for equation in during for var in equation.outvars}
    ahead = {*row_vars, *(var for equation in before for var in equation.outvars)}
    wanted = [*variables(outvars), *(v for e in during for v in variables(e.invars))]
    # In order of appearance: the order of a set changes from run to run, and would miss JAX's
    # compilation cache.
    passed = list(dict.fromkeys(v for v in wanted if v in ahead and v not in computed))
    return _Parts(needed(before, passed), during, passed)


ONCE, AHEAD, LOOP = "once", "ahead", "loop"


def stages_of(
    equations: Sequence[jex.JaxprEqn],
    may_batch: Sequence[bool],
    carry_vars: Sequence[jex.Var],
    row_vars: Sequence[jex.Var],
) -> list[str]:
    """Say when each equation of a step can be evaluated.

    Args:
      equations: of the step's jaxpr, in order.
      may_batch: whether each may be evaluated for all steps in one batch.
      carry_vars, row_vars: the step's variables.

    Returns:
      `ONCE` for one that depends on constants only, `AHEAD` for one that depends on rows and may be
      batched, `LOOP` for the others.
    """
    in_loop, ahead, stages = set(carry_vars), set(row_vars), []
    for equation, batched in zip(equations, may_batch, strict=True):
        used = set(variables(equation.invars))
        if used & in_loop or equation.effects or (used & ahead and not batched):
            in_loop.update(equation.outvars)
            stages.append(LOOP)
        elif used & ahead:
            ahead.update(equation.outvars)
            stages.append(AHEAD)
        else:
            stages.append(ONCE)
    return stages


def batched_bytes(equation: jex.JaxprEqn) -> float:
    """Size an equation's largest value, per step; inf if the equation must stay in the loop."""
    if equation.primitive.name in _IN_LOOP or equation.effects:
        return math.inf
    atoms = [*equation.invars, *equation.outvars]
    if any(_is_other_key(aval_of(atom).dtype) for atom in atoms):
        return math.inf
    inner = [e for jaxpr in jex.jaxprs_in_params(equation.params) for e in jaxpr.eqns]
    return max([*map(_bytes, equation.outvars), *map(batched_bytes, inner)], default=0)


def _bytes(var: jex.Var) -> int:
    aval = aval_of(var)
    return math.prod(aval.shape) * aval.dtype.itemsize


@functools.cache  # asked for every value of every equation
def _is_other_key(dtype: jnp.dtype) -> bool:
    """Check whether keys are of another generator than threefry, whose batches are exact."""
    if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return False
    return dtype != jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32")).dtype
