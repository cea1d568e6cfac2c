"""Alignment of two sequences of parameters, by dynamic programming."""

from collections.abc import Mapping, Sequence

from .parameters import Parameter
from .use_order import Uses


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
      sides: all parameters of each network.
      uses: of each network.
      repeated: whether each use counts; otherwise each parameter counts once, at its first use.
    """
    orders = [
        list(use.order) if repeated else list(dict.fromkeys([*use.order, *side]))
        for use, side in zip(uses, sides, strict=True)
    ]
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
    done = [{pair[index] for pair in pairs} for index in (0, 1)]
    rest = [
        [side[name] for name in order if name not in known]
        for side, order, known in zip(sides, orders, done, strict=True)
    ]
    return pairs + align(*rest)


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
