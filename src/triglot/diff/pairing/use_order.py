"""Pair parameters by the order in which traced networks use them, and the outputs they reach."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
from jax.extend import core as jex

from ...core.network import Network, Variables
from ...core.tracing.jaxprs import ends_of_scan, leaves_read
from ...core.types import PyTree
from ..programs import places
from ..programs.tape import LAYOUT
from ..types import Operation, codec_of
from .parameters import CELLS, Parameter, place_of

# Operations that only arrange the elements of an array, or of several.
REARRANGING = {*LAYOUT, "concatenate", "rev", "slice", "split", "stack"}


class Uses(NamedTuple):
    """How a network's program uses its parameters.

    Attributes:
      order: canonical names in the order in which operations read them; a parameter that is read
        twice is there twice. Reading by an operation that only arranges elements, such as a
        transposition, does not count; the operation that reads its result does.
      reaches: the indices of the outputs that depend on each parameter, by canonical name.
      readers: the operations that read each parameter, by canonical name.
    """

    order: tuple[str, ...]
    reaches: dict[str, frozenset[int]]
    readers: dict[str, list["Reader"]]


class Reader(NamedTuple):
    """An operation that reads a parameter.

    Attributes:
      equation: the equation of the traced program.
      callers: the equations of the calls that hold it, outermost first.
    """

    equation: jex.JaxprEqn
    callers: tuple[jex.JaxprEqn, ...]

    @property
    def name(self) -> str:
        return self.equation.primitive.name

    def operation(self) -> Operation:
        """Say where it is in the network."""
        return places.describe_equation(self.equation, self.callers, name=self.name)


def read_uses(
    network: Network, variables: Variables, inputs: PyTree, outputs: Sequence[int]
) -> Uses:
    """Trace a call in evaluation and read how it uses the parameters.

    Args:
      network: a network with a codec.
      variables, inputs: the arguments of the call.
      outputs: indices of output leaves; the i-th of them is output `i` of the result.
    """
    codec = codec_of(network)
    arrays = jax.eval_shape(codec.encode, variables.params)

    def forward(arrays: dict[str, jax.Array]) -> list[jax.Array]:
        decoded = Variables(params=codec.decode(arrays), state=variables.state)
        return jax.tree.leaves(network.apply(decoded, inputs)[0])

    jaxpr, names = jax.make_jaxpr(forward)(arrays).jaxpr, sorted(arrays)
    leaves_of_outputs = [
        leaves_read(lambda arrays, i=index: forward(arrays)[i], arrays) for index in outputs
    ]
    reaches = {
        name: frozenset(number for number, leaves in enumerate(leaves_of_outputs) if leaf in leaves)
        for leaf, name in enumerate(names)
    }
    names_by_var = {var: (name,) for var, name in zip(jaxpr.invars, names, strict=True)}
    uses = list(_uses(jaxpr, names_by_var))
    readers: dict[str, list[Reader]] = {}
    for name, reader in uses:
        readers.setdefault(name, []).append(reader)
    return Uses(tuple(name for name, _ in uses), reaches, readers)


def _uses(
    jaxpr: jex.Jaxpr,
    names_by_var: dict[jex.Var, tuple[str, ...]],
    callers: tuple[jex.JaxprEqn, ...] = (),
) -> Iterator[tuple[str, Reader]]:
    for equation in jaxpr.eqns:
        atoms = [None if isinstance(atom, jex.Literal) else atom for atom in equation.invars]
        names_of_operands = [() if atom is None else names_by_var.get(atom, ()) for atom in atoms]
        if not any(names_of_operands):
            continue
        names_read = tuple(name for names in names_of_operands for name in names)
        if equation.primitive.name in REARRANGING and all(
            names or atom is None for names, atom in zip(names_of_operands, atoms, strict=True)
        ):
            is_reversed = (
                equation.params.get("dimensions") == (0,) and equation.primitive.name == "rev"
            )
            names_by_var.update(
                dict.fromkeys(equation.outvars, names_read[::-1] if is_reversed else names_read)
            )
        elif inner := _inner(equation):
            inner_names: dict[jex.Var, tuple[str, ...]] = {}
            for operands in _iterations(
                equation, names_of_operands[len(names_of_operands) - len(inner.invars) :]
            ):
                inner_names = dict(zip(inner.invars, operands, strict=True))
                yield from _uses(inner, inner_names, (*callers, equation))
            for var, result in zip(equation.outvars, inner.outvars, strict=False):
                if not isinstance(result, jex.Literal) and result in inner_names:
                    names_by_var[var] = inner_names[result]
        else:
            yield from ((name, Reader(equation, callers)) for name in names_read)


def _iterations(
    equation: jex.JaxprEqn, names_of_operands: Sequence[tuple[str, ...]]
) -> Iterator[Sequence[tuple[str, ...]]]:
    """Yield the parameters in each operand of a called program, once for each layer of a stack.

    A loop that reads no parameter row by row is read once.
    """
    if equation.primitive.name != "scan":
        yield names_of_operands
        return
    _, first = ends_of_scan(equation.params)
    length = equation.params["length"]
    if not any(len(names) >= length > 1 for names in names_of_operands[first:]):
        yield names_of_operands
        return
    for index in reversed(range(length)) if equation.params["reverse"] else range(length):
        rows = [
            names[index * (size := len(names) // length) : (index + 1) * size]
            if len(names) >= length
            else names
            for names in names_of_operands[first:]
        ]
        yield [*names_of_operands[:first], *rows]


def _inner(equation: jex.JaxprEqn) -> jex.Jaxpr | None:
    """Return the program that an equation calls with its own last operands; None if there is none.

    Of several, such as the branches of a condition, the last one is read.
    """
    number = len(equation.invars)
    programs = [
        each for each in jex.jaxprs_in_params(equation.params) if len(each.invars) <= number
    ]
    return programs[-1] if programs else None


def align_uses(
    sides: tuple[Mapping[str, Parameter], Mapping[str, Parameter]],
    uses: tuple[Uses, Uses],
    *,
    repeated: bool = False,
) -> list[tuple[str, str]]:
    """Pair the names of two networks' parameters by the order in which they are used.

    Parameters that reach the same outputs are aligned first, so that two branches may be computed
    in any order; then all that are left.

    Args:
      sides: the parameters of each network that are to be paired.
      uses: the uses of each network.
      repeated: whether each use counts; otherwise each parameter counts once, at its first use.
    """
    orders = []
    for use, side in zip(uses, sides, strict=True):
        used = [name for name in use.order if name in side]
        orders.append(used if repeated else _by_cell([*dict.fromkeys([*used, *side])], side))
    groups = [
        {use.reaches[name] for name in order} for use, order in zip(uses, orders, strict=True)
    ]
    pairs: list[tuple[str, str]] = []
    if groups[0] == groups[1]:
        for group in sorted(groups[0], key=sorted):
            parts = [
                [side[name] for name in order if use.reaches[name] == group]
                for side, use, order in zip(sides, uses, orders, strict=True)
            ]
            pairs += align(*parts)
    paired = [{pair[index] for pair in pairs} for index in (0, 1)]
    remaining = [
        [side[name] for name in order if name not in paired_names]
        for side, order, paired_names in zip(sides, orders, paired, strict=True)
    ]
    return pairs + align(*remaining)


def _by_cell(order: Sequence[str], side: Mapping[str, Parameter]) -> list[str]:
    """Move all parameters of a recurrent cell to its first use, in the order of their names.

    Libraries compute the gates of a cell in different orders.
    """
    places = {n: place_of(side[n])[0] if side[n].leaf.layer in CELLS else n for n in order}
    first = {place: index for index, place in reversed([*enumerate(places.values())])}
    return sorted(order, key=lambda name: (first[places[name]], name))


def align(first: Sequence[Parameter], second: Sequence[Parameter]) -> list[tuple[str, str]]:
    """Pair the names of two sequences in order, so that most shapes, layers and names agree.

    It is the global alignment of Needleman and Wunsch (1970) without a penalty for gaps; parameters
    whose shapes neither are equal nor transposed are never paired.

    Args:
      first, second: the parameters of each side in order of use.
    """
    rows, columns = len(first), len(second)
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            match = _score(first[i], second[j])
            paired = match + best[i + 1][j + 1] if match else 0.0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    pairs, i, j = [], 0, 0
    while i < rows and j < columns:
        match = _score(first[i], second[j])
        if match and best[i][j] == match + best[i + 1][j + 1]:
            pairs.append((first[i].name, second[j].name))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _score(first: Parameter, second: Parameter) -> float:
    """Score a pair: 0 if it is impossible."""
    if first.shape == second.shape:
        score = 4.0
    elif len(first.shape) == 2 and first.shape == second.shape[::-1]:
        score = 2.0
    else:
        return 0.0
    same_kind = first.leaf.layer == second.leaf.layer and not first.leaf.unknown
    same_end = first.name.rpartition("/")[2] == second.name.rpartition("/")[2]
    return score + same_kind + same_end + 2.0 * (first.name == second.name)
