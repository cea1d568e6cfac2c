"""Jaxpr utilities."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax.extend import core as jex

from ..types import PyTree


def bind(equation: Any, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Evaluate one equation of a jaxpr."""
    params = equation.primitive.get_bind_params(equation.params)
    result = equation.primitive.bind(*arrays, **params)
    return list(result) if equation.primitive.multiple_results else [result]


def variables(atoms: Iterable[Any]) -> list[Any]:
    """Return the atoms that are variables, not literals."""
    return [atom for atom in atoms if not isinstance(atom, jex.Literal)]


def needed(equations: Iterable[Any], outputs: Iterable[Any]) -> list[Any]:
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
