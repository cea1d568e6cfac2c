"""The order in which a network's traced program uses its parameters."""

from collections.abc import Iterator
from typing import Any

import jax
from jax.extend import core as jex

from ..core.network import Network, Variables
from ..core.types import PyTree

# Operations that only arrange the elements of an array.
ARRANGING = {
    "broadcast_in_dim",
    "concatenate",
    "convert_element_type",
    "copy",
    "expand_dims",
    "reshape",
    "rev",
    "slice",
    "split",
    "squeeze",
    "stop_gradient",
    "transpose",
}


def use_order(network: Network, variables: Variables, inputs: PyTree) -> tuple[str, ...]:
    """List the canonical names of the parameters in the order in which operations read them.

    Reading by an operation that only arranges elements, such as a transposition, does not count;
    the operation that reads its result does. A parameter that is read twice is listed twice.
    """
    codec = network.codec
    assert codec is not None  # for the type checker: `read_parameters` has checked it
    named = codec.encode(variables.params)

    def forward(named: dict[str, jax.Array]) -> Any:
        own = Variables(params=codec.decode(named), state=variables.state)
        return network.apply(own, inputs)

    closed = jax.make_jaxpr(forward)(named)
    known = {var: (name,) for var, name in zip(closed.jaxpr.invars, sorted(named), strict=True)}
    return tuple(_uses(closed.jaxpr, known))


def _uses(jaxpr: Any, known: dict[Any, tuple[str, ...]]) -> Iterator[str]:
    for equation in jaxpr.eqns:
        atoms = [None if isinstance(atom, jex.Literal) else atom for atom in equation.invars]
        read = [known.get(atom, ()) for atom in atoms]
        if not any(read):
            continue
        together = tuple(name for names in read for name in names)
        if equation.primitive.name in ARRANGING and all(
            names or atom is None for names, atom in zip(read, atoms, strict=True)
        ):
            known.update(dict.fromkeys(equation.outvars, together))
        elif inner := _inner(equation):
            inside = dict(zip(inner.invars, read[len(read) - len(inner.invars) :], strict=True))
            yield from _uses(inner, inside)
            for var, result in zip(equation.outvars, inner.outvars, strict=False):
                if not isinstance(result, jex.Literal) and result in inside:
                    known[var] = inside[result]
        else:
            yield from together


def _inner(equation: Any) -> Any:
    """Return the program that an equation calls with its own last operands; None if there is none.

    Of several, such as the branches of a condition, the last one is read.
    """
    found = None
    for value in equation.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            jaxpr = getattr(each, "jaxpr", each)
            if hasattr(jaxpr, "eqns") and len(jaxpr.invars) <= len(equation.invars):
                found = jaxpr
    return found
