"""Square matrices that one network uses transposed: their shapes do not show it."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from ..types import Cause
from .parameters import Pair, Pairing

MAX_MATRICES = 8


def candidates(pairing: Pairing) -> Iterator[tuple[int, ...]]:
    """Yield sets of pairs, by index, that may be stored as transposed matrices of each other.

    Matrices whose layout only the author knows come first, together and one by one; then all pairs
    of two matrices.
    """

    def unknown(pair: Pair) -> bool:
        return any(
            leaf.unknown for leaf in (pairing.one[pair.one].leaf, pairing.other[pair.other].leaf)
        )

    square = [
        index
        for index, pair in enumerate(pairing.pairs)
        if not pair.transposed and _is_square(pairing.one[pair.one].shape)
    ]
    square.sort(key=lambda index: not unknown(pairing.pairs[index]))
    square = square[:MAX_MATRICES]
    doubtful = tuple(index for index in square if unknown(pairing.pairs[index]))
    sets = [doubtful, *((index,) for index in square), tuple(square)]
    yield from dict.fromkeys(filter(None, [*sets, *itertools.combinations(square, 2)]))


def find_transposed(
    pairing: Pairing, agrees: Callable[[Pairing], bool], labels: tuple[str, str]
) -> tuple[Pairing, list[Cause]]:
    """Transpose matrices until the outputs agree.

    Args:
      pairing: at which they do not.
      agrees: whether the outputs agree at a pairing.
      labels: of both networks.

    Returns:
      The pairing at which they agree, with a cause for each matrix; the given one if there is none.
    """
    for chosen in candidates(pairing):
        turned = replace(
            pairing,
            pairs=tuple(
                replace(pair, transposed=True) if index in chosen else pair
                for index, pair in enumerate(pairing.pairs)
            ),
        )
        if agrees(turned):
            return turned, [layout_cause(pairing, turned.pairs[index], labels) for index in chosen]
    return pairing, []


def layout_cause(pairing: Pairing, pair: Pair, labels: tuple[str, str]) -> Cause:
    """Describe a pair of matrices that are stored as transposed matrices of each other."""
    one, other = pairing.one[pair.one], pairing.other[pair.other]
    square = _is_square(one.shape)
    evidence = (
        "the outputs agree if one of the two is transposed, and differ if both hold the same values"
        if square
        else f"one is {list(one.shape)}, the other {list(other.shape)}"
    )
    where = f"{pair.one} ({labels[0]}); {pair.other} ({labels[1]})"
    return Cause("kernel_layout", where, evidence)


def _is_square(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[0] == shape[1] > 1
