"""Find the differences that a loss forms of what was stored and what it computes again.

A ratio of probabilities, a clipped value loss or a divergence from the policy that acted subtracts,
or divides, a number of the batch and the same number computed from the parameters. While the
parameters are those that acted, both are equal.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from ...core.learner import Loss
from ...core.network import Variables
from ...core.tracing.jaxprs import bind, called_program, evaluate
from ...core.types import PyTree, by_path

# Names by which the batch of a loss calls what the acting policy computed.
STORED = re.compile(r"(^|[._])(old_?|behaviou?r_?)?log_?p(rob|robs|robability|i)?s?$")
OBS = re.compile(r"(^|\.)obs($|\.)")
DIFFERENCES = {"sub", "div"}
MAX_ARRAYS = 4  # of the batch, of which a stored number is made; a target is made of more


@dataclass(frozen=True)
class Difference:
    """A number of the batch beside the one that a loss computed.

    Attributes:
      names: paths of the batch's arrays of which `stored` was made.
      named: whether its name says that the acting policy computed it.
      stored, computed: of the same shape.
      batch: these arrays, and the observations of the batch, by path.
    """

    names: tuple[str, ...]
    named: bool
    stored: np.ndarray
    computed: np.ndarray
    batch: dict[str, np.ndarray]

    @property
    def name(self) -> str:
        return " and ".join(self.names)


Emit: TypeAlias = Callable[..., None]


@dataclass(frozen=True)
class _Value:
    """An array with what it was computed from."""

    array: jax.Array
    leaves: frozenset[str] = frozenset()
    learned: bool = False


def with_differences(loss: Loss, emit: Emit) -> Loss:
    """Evaluate a loss equation by equation; give each difference to `emit(make, *arrays)`."""

    def observed(variables: Variables, batch: PyTree, key: jax.Array) -> PyTree:
        closed, shape = jax.make_jaxpr(loss, return_shape=True)(variables, batch, key)
        leaves = by_path(batch)
        kept = {
            path: leaf
            for path, leaf in leaves.items()
            if hasattr(leaf, "dtype")
            and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            and getattr(leaf, "ndim", 0)
        }
        send = partial(_send, emit, kept)
        values = [_Value(leaf, learned=True) for leaf in jax.tree.leaves(variables)]
        values += [_Value(leaf, frozenset([path])) for path, leaf in leaves.items()]
        values += [_Value(leaf) for leaf in jax.tree.leaves(key)]
        out = _run(closed, values, send)
        return jax.tree.unflatten(jax.tree.structure(shape), [value.array for value in out])

    return observed


def _run(closed: jex.ClosedJaxpr, values: list[_Value], send: Callable[..., None]) -> list[_Value]:
    def rule(equation: jex.JaxprEqn, operands: list[_Value]) -> list[_Value]:
        inner = called_program(equation)
        if inner is not None and "custom" not in equation.primitive.name:
            return _run(inner, operands, send)
        if equation.primitive.name in DIFFERENCES:
            send(*operands)
        leaves = (
            frozenset().union(*(operand.leaves for operand in operands))
            if operands
            else frozenset()
        )
        learned = any(operand.learned for operand in operands)
        results = bind(equation, [operand.array for operand in operands])
        return [_Value(array, leaves, learned) for array in results]

    known = {
        var: _Value(const) for var, const in zip(closed.jaxpr.constvars, closed.consts, strict=True)
    }
    known |= dict(zip(closed.jaxpr.invars, values, strict=True))
    read = evaluate(closed.jaxpr.eqns, known, rule, _Value)
    return [
        _Value(atom.val) if isinstance(atom, jex.Literal) else read(atom)
        for atom in closed.jaxpr.outvars
    ]


def _send(emit: Emit, batch: PyTree, left: _Value, right: _Value) -> None:
    stored, computed = (right, left) if left.learned else (left, right)
    if stored.learned or not computed.learned or not 0 < len(stored.leaves) <= MAX_ARRAYS:
        return
    one, other = stored.array, computed.array
    floats = jnp.issubdtype(one.dtype, jnp.floating)
    if jnp.shape(one) != jnp.shape(other) or not jnp.ndim(one) or not floats:
        return
    names = tuple(sorted(stored.leaves))
    named = len(names) == 1 and STORED.search(names[0]) is not None
    sent = {path: leaf for path, leaf in batch.items() if path in names or OBS.search(path)}
    paths = list(sent)

    def make(one: np.ndarray, other: np.ndarray, *leaves: np.ndarray) -> Difference:
        return Difference(names, named, one, other, dict(zip(paths, leaves, strict=True)))

    emit(make, one, other, *sent.values())
