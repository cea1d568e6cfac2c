"""Types that all parts of a comparison share, and functions that describe them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import jax
import numpy as np

from ..core.errors import describe
from ..core.network import Codec, Network, Variables

Array: TypeAlias = jax.Array | np.ndarray  # keys are of JAX, most other values of NumPy


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two networks, with the weights at which they are compared.

    Attributes:
      label: the name in the report, such as `my_haiku:net (Haiku)`.
      network: the network, in native arithmetic.
      variables: the weights; those of both networks are equal in canonical form where `names` pairs
        them.
      names: canonical names of this side's parameters by the names that both sides share. A
        parameter that only one side has is missing here.
      of_batches: whether it is a function of batches, such as a loss: each example is a batch.
    """

    label: str
    network: Network
    variables: Variables
    names: dict[str, str]
    of_batches: bool = False


class Progress(Protocol):
    """What shows the progress of a comparison, such as `triglot.shared.terminal.progress.Steps`."""

    def begin(self, stage: str, /) -> None:
        """Show which stage begins."""
        ...

    def tell(self, finding: str, /) -> None:
        """Show what was found, in one line."""
        ...


class Silent:
    """Progress that is not shown."""

    def begin(self, stage: str, /) -> None:
        """Show nothing."""

    def tell(self, finding: str, /) -> None:
        """Show nothing."""


def codec_of(network: Network) -> Codec:
    """Return a network's codec, which names its parameters.

    Raises:
      TriglotError: if it has none.
    """
    return network.require_codec("parameters have no names to compare by")


@contextmanager
def note_failure(notes: list[str], problem: str) -> Iterator[None]:
    """Note an exception and go on, such as one of an operation that cannot be evaluated alone.

    Args:
      notes: the notes of the report.
      problem: what was not measured or located.
    """
    try:
        yield
    except Exception as error:
        notes.append(f"{problem}: {describe(error)}")


def join_names(items: Iterable[object], most: int = 3) -> str:
    """Write the first few of some names, and how many more there are."""
    texts = list(map(str, items))
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


@dataclass(frozen=True)
class Operation:
    """One operation of a traced program.

    Attributes:
      name: the primitive or the layer, such as `dot_general` or `layer norm`.
      source: `file:line` in the module that the user gave, or in the library's layer.
      scope: the names of the enclosing modules and functions, as far as known.
    """

    name: str
    source: str
    scope: str = ""


def places(first_operation: Operation | None, second_operation: Operation | None) -> str:
    """Write an operation of each side in words, such as `add in a.py:7 and mul in b.py:9`."""
    first, second = (
        "nothing" if side is None else f"{side.name} in {side.source}" if side.source else side.name
        for side in (first_operation, second_operation)
    )
    return f"{first} on both sides" if first == second else f"{first} and {second}"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first operation of each side whose inputs agree and whose results do not.

    Attributes:
      one, other: the operation of each side; None if this side has no counterpart.
      max_abs, max_rel: the largest absolute and relative difference of their results.
      compiled_only: whether the results are equal operation by operation and differ when compiled.
    """

    one: Operation | None
    other: Operation | None
    max_abs: float
    max_rel: float
    compiled_only: bool = False


@dataclass(frozen=True)
class Cause:
    """A likely cause of a difference.

    Attributes:
      name: an entry of the catalogue, such as `norm_epsilon`; docs/reference/causes.md lists all.
      where: the place in both modules.
      evidence: the numbers that support it.
      parameters: canonical names of those that it is about, of each network. Texts have the names
        that the networks' authors know.
      effect: how much the outputs change without it, relative to the largest; None if that is not
        known.
    """

    name: str
    where: str
    evidence: str
    parameters: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    effect: float | None = None
