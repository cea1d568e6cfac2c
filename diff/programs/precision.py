"""The precision of products, as two traced programs state it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax

from ...core.tracing.jaxprs import walk
from ..types import Cause, Operation
from . import places

PRODUCTS = ("dot_general", "conv_general_dilated")
DEFAULT = "default"
ROUNDING = "rounding"


class Stated(NamedTuple):
    """The precision of a product or a rounding, its equation, and the calls that hold it."""

    precision: str
    equation: Any
    callers: tuple[Any, ...]


class OtherPrecision(NamedTuple):
    """Two programs that state other precisions.

    Attributes:
      counts: how often each states it, in words.
      where: the first such operation.
      operations: of both programs; None for one that has no such operation.
    """

    counts: str
    where: str
    operations: tuple[Operation | None, Operation | None]


def precision_cause(programs: Sequence[Any], labels: tuple[str, str]) -> Cause | None:
    """Compare the precisions that two programs state for their products.

    A CPU computes all of them alike, so that only the programs show the difference there.

    Args:
      programs: the jaxprs of both networks.
      labels: of both networks.

    Returns:
      The cause `precision`, for two networks whose values are equal on this machine; None if the
      precisions are the same.
    """
    found = compare_precisions(list(map(walk, programs)), labels)
    if found is None:
        return None
    evidence = (
        f"{found.counts}: no effect on this {jax.default_backend()}, but a GPU or TPU rounds "
        "products of lower precision more; this does not change the verdict"
    )
    return Cause("precision", found.where, evidence)


def compare_precisions(
    programs: Sequence[Iterable[tuple[Any, tuple[Any, ...]]]], labels: tuple[str, str]
) -> OtherPrecision | None:
    """Compare the precisions of products, and the bits to which arrays are rounded.

    Args:
      programs: the equations of both networks, each with the calls that hold it.
      labels: of both networks.
    """
    stated = [list(_stated(program)) for program in programs]
    counts = [Counter(each.precision for each in side) for side in stated]
    same_number = len(stated[0]) == len(stated[1])
    if counts[0] == counts[1] or (counts[0].keys() == counts[1].keys() and not same_number):
        return None
    name = max(
        sorted({*counts[0], *counts[1]} - {DEFAULT}),
        key=lambda each: abs(counts[0][each] - counts[1][each]),
    )
    rounds = any(name.startswith(ROUNDING) for count in counts for name in count)
    what = "products and roundings" if rounds else "products"
    shown = "; ".join(
        f"{name} in {count[name]} of {len(side)} {what} of {label}"
        for side, count, label in zip(stated, counts, labels, strict=True)
    )
    firsts = [next((each for each in side if each.precision == name), None) for side in stated]
    one, other = (
        first and places.called(first.equation, first.callers, name=first.equation.primitive.name)
        for first in firsts
    )
    side = int(counts[1][name] > counts[0][name])
    where = f"{labels[side]}: {places.shown((one, other)[side])}"
    return OtherPrecision(shown, where, (one, other))


def _stated(program: Iterable[tuple[Any, tuple[Any, ...]]]) -> Iterable[Stated]:
    for equation, callers in program:
        if equation.primitive.name in PRODUCTS:
            yield Stated(_precision_of(equation), equation, callers)
        elif equation.primitive.name == "reduce_precision":
            bits = equation.params["mantissa_bits"]
            yield Stated(f"{ROUNDING} to {bits} bits of mantissa", equation, callers)


def _precision_of(equation: Any) -> str:
    """Write the precision of a product, such as `HIGHEST`."""
    stated = equation.params["precision"]
    sides = stated if type(stated) is tuple else (stated,)  # a `DotAlgorithm` is a tuple too
    names = (DEFAULT if each is None else getattr(each, "name", str(each)) for each in sides)
    return ", ".join(dict.fromkeys(DEFAULT if name == "DEFAULT" else name for name in names))
