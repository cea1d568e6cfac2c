"""The ladder of causes: what the libraries share, one thing more on each rung."""

from dataclasses import dataclass

from ..backends.canonical import Arithmetic


@dataclass(frozen=True)
class Rung:
    """What the libraries have in common in one group of trainings; the keys are equal on all rungs.

    Attributes:
      name: in files and in `comparison.json`.
      title: what is shared, as the report says it.
      cause: what this rung removes, if the rung before it shows a difference and this one does not.
      arithmetic: of the networks.
      library_initializers: whether each library draws weights with its own default initializers.
      shared_weights: whether all start from the first library's weights.
    """

    name: str
    title: str
    cause: str
    arithmetic: Arithmetic
    library_initializers: bool = False
    shared_weights: bool = True


RUNGS = (
    Rung(
        "defaults",
        "each library's defaults",
        "",
        "native",
        library_initializers=True,
        shared_weights=False,
    ),
    Rung(
        "initializers",
        "same initializers",
        "the default initializers",
        "native",
        shared_weights=False,
    ),
    Rung("weights", "same initial weights", "the draw of the initial weights", "native"),
    Rung(
        "leaf_order",
        "same order of parameters",
        "the order in which gradients are summed for the global norm",
        "leaf_order",
    ),
    Rung(
        "canonical",
        "same order of summation",
        "the layout of kernels and the side of the products",
        "canonical",
    ),
)


def rung_named(name: str) -> Rung:
    """Find a rung by its name."""
    return next(rung for rung in RUNGS if rung.name == name)


def rung_of_arithmetic(arithmetic: str) -> Rung:
    """Find the rung of equal weights and the given arithmetic, on which a comparison is judged."""
    return next(rung for rung in RUNGS if rung.shared_weights and rung.arithmetic == arithmetic)
