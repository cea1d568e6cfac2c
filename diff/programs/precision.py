"""The precision of products, as two traced programs state it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core as jex

from ..types import Cause
from . import places

PRODUCTS = ("dot_general", "conv_general_dilated")
DEFAULT = "default"


class Product(NamedTuple):
    """A product of a traced program, its precision, and the calls that hold it."""

    precision: str
    equation: Any
    callers: tuple[Any, ...]


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
    products = [list(_products(program, ())) for program in programs]
    counts = [Counter(product.precision for product in side) for side in products]
    same_number = len(products[0]) == len(products[1])
    if counts[0] == counts[1] or (counts[0].keys() == counts[1].keys() and not same_number):
        return None
    stated = sorted({*counts[0], *counts[1]} - {DEFAULT})
    name = max(stated, key=lambda each: abs(counts[0][each] - counts[1][each]))
    shown = "; ".join(
        f"{name} in {count[name]} of {len(side)} products of {label}"
        for side, count, label in zip(products, counts, labels, strict=True)
    )
    side = int(counts[1][name] > counts[0][name])
    first = next(product for product in products[side] if product.precision == name)
    operation = places.called(first.equation, first.callers, name=first.equation.primitive.name)
    evidence = (
        f"{shown}: no effect on this {jax.default_backend()}, but a GPU or TPU rounds products of "
        "lower precision more; this does not change the verdict"
    )
    return Cause("precision", f"{labels[side]}: {places.shown(operation)}", evidence)


def precision_of(equation: Any) -> str:
    """Write the precision of a product, such as `HIGHEST`."""
    stated = equation.params["precision"]
    sides = stated if type(stated) is tuple else (stated,)  # a `DotAlgorithm` is a tuple too
    names = (DEFAULT if each is None else getattr(each, "name", str(each)) for each in sides)
    return ", ".join(dict.fromkeys(DEFAULT if name == "DEFAULT" else name for name in names))


def _products(jaxpr: Any, callers: tuple[Any, ...]) -> Iterator[Product]:
    for equation in jaxpr.eqns:
        if equation.primitive.name in PRODUCTS:
            yield Product(precision_of(equation), equation, callers)
        for inner in jex.jaxprs_in_params(equation.params):
            yield from _products(inner, (*callers, equation))
