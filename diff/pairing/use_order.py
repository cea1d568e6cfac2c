"""The order in which a traced network uses its parameters, and the outputs they reach."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core as jex

from ...core.network import Network, Variables
from ...core.tracing.jaxprs import needed
from ...core.tracing.jaxprs import variables as tracing_variables
from ...core.types import PyTree
from ..programs.tape import LAYOUT
from ..types import codec_of

# Operations that only arrange the elements of an array, or of several.
ARRANGING = {*LAYOUT, "concatenate", "rev", "slice", "split"}


class Uses(NamedTuple):
    """How a network's program uses its parameters.

    Attributes:
      order: canonical names in the order in which operations read them; a parameter that is read
        twice is there twice. Reading by an operation that only arranges elements, such as a
        transposition, does not count; the operation that reads its result does.
      reaches: the indices of the outputs that depend on each parameter, by canonical name.
    """

    order: tuple[str, ...]
    reaches: dict[str, frozenset[int]]


def read_uses(
    network: Network, variables: Variables, inputs: PyTree, outputs: Sequence[int]
) -> Uses:
    """Trace a call in evaluation and read how it uses the parameters.

    Args:
      network: with a codec.
      variables, inputs: of the call.
      outputs: indices of output leaves; the i-th of them is output `i` of the result.
    """
    codec = codec_of(network)
    named = jax.eval_shape(codec.encode, variables.params)

    def forward(named: dict[str, jax.Array]) -> Any:
        own = Variables(params=codec.decode(named), state=variables.state)
        return jax.tree.leaves(network.apply(own, inputs)[0])

    jaxpr = jax.make_jaxpr(forward)(named).jaxpr
    names = sorted(named)
    reaches: dict[str, set[int]] = {name: set() for name in names}
    for number, index in enumerate(outputs):
        read = set(tracing_variables([jaxpr.outvars[index]]))
        for equation in needed(jaxpr.eqns, [jaxpr.outvars[index]]):
            read.update(tracing_variables(equation.invars))
        for name, var in zip(names, jaxpr.invars, strict=True):
            if var in read:
                reaches[name].add(number)
    known = {var: (name,) for var, name in zip(jaxpr.invars, names, strict=True)}
    fixed = {name: frozenset(numbers) for name, numbers in reaches.items()}
    return Uses(tuple(_uses(jaxpr, known)), fixed)


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
