"""Alignment of two sequences of parameters, by dynamic programming."""

from collections.abc import Sequence

from .parameters import Parameter


def align(one: Sequence[Parameter], other: Sequence[Parameter]) -> list[tuple[str, str]]:
    """Pair the names of two sequences in order, so that most shapes, layers and names agree.

    It is the global alignment of Needleman and Wunsch (1970) without a penalty for gaps; parameters
    whose shapes neither are equal nor transposed are never paired.

    Args:
      one, other: the parameters of each side in order of use.
    """
    rows, columns = len(one), len(other)
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            match = _score(one[i], other[j])
            paired = match + best[i + 1][j + 1] if match else 0.0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    pairs, i, j = [], 0, 0
    while i < rows and j < columns:
        match = _score(one[i], other[j])
        if match and best[i][j] == match + best[i + 1][j + 1]:
            pairs.append((one[i].name, other[j].name))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _score(one: Parameter, other: Parameter) -> float:
    """Score a pair: 0 if it is impossible."""
    if one.shape == other.shape:
        score = 4.0
    elif len(one.shape) == 2 and one.shape == other.shape[::-1]:
        score = 2.0
    else:
        return 0.0
    same_kind = one.leaf.layer == other.leaf.layer and not one.leaf.unknown
    same_end = one.name.rpartition("/")[2] == other.name.rpartition("/")[2]
    return score + same_kind + same_end + 2.0 * (one.name == other.name)
