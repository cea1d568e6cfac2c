"""Pair the parameters of two networks, as far as possible, and find those that are transposed."""

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ...backends.pairing.biases import without_extra_biases
from ...backends.pairing.guessing import guess
from ...backends.pairing.mapping import follow_mapping
from ...core.errors import TriglotError
from ...core.network import Network
from ..types import Cause, join_names
from .parameters import Pair, Pairing, Parameter, is_inner_bias, read_parameters
from .use_order import Uses, align_uses

MAX_MATRICES = 8  # that are tried transposed
MAX_SHOWN = 6  # layers in the evidence of a cause
INDEX = re.compile(r"\d+")


def pair_parameters(
    networks: tuple[Network, Network],
    uses: Callable[[], tuple[Uses, Uses]],
    mapping: Mapping[str, str] | None = None,
) -> Pairing:
    """Pair the parameters of two networks; unlike `translate`, some may be left unpaired.

    A stated mapping is followed first. Without one, parameters are paired by equal names if these
    cover the smaller side; else by shapes, as `translate` does; else by the order in which the
    traced programs use them.

    Args:
      networks: both networks, in native arithmetic.
      uses: a function that reads the uses of parameters; called if names and shapes do not decide.
      mapping: names of parameters or modules of the first network to those of the second:
        canonical, as their authors know them, or the ends of either.

    Raises:
      TriglotError: if the mapping has an unknown name, or no parameter can be paired although both
        networks have some.
    """
    first, second = (read_parameters(network) for network in networks)
    network_names = f"{networks[0].name!r} and {networks[1].name!r}"
    if mapping:
        names = tuple({n: p.display_name for n, p in side.items()} for side in (first, second))
        targets = follow_mapping(
            mapping, first, second, network_names, (names[0], names[1]), partial=True
        )
        stated = [Pair(name, target.name) for name, target in targets.items()]
        pairs, source = _compatible_pairs(first, second, stated), "stated"
        paired_names = {pair.one for pair in pairs}
        mismatched = [p for p in stated if targets[p.one].is_named and p.one not in paired_names]
        if mismatched:
            raise TriglotError(
                f"the mapping pairs {first[mismatched[0].one]} with "
                f"{second[mismatched[0].other]}: their shapes differ."
            )
    else:
        pairs, source = _pair_unstated(first, second, uses)
    if first and second and not pairs:
        raise TriglotError(
            f"{network_names} have no parameter in common: the first has "
            f"{join_names(first.values(), 4)}, the second {join_names(second.values(), 4)}."
        )
    return Pairing(first, second, tuple(pairs), source)


def _pair_unstated(
    first: dict[str, Parameter],
    second: dict[str, Parameter],
    uses: Callable[[], tuple[Uses, Uses]],
) -> tuple[list[Pair], str]:
    same_name = [Pair(name, name) for name in first if name in second]
    same_name = _compatible_pairs(first, second, same_name)
    if len(same_name) == min(len(first), len(second)):
        return same_name, "by name"
    layers = [
        {name: "" if p.leaf.unknown else p.leaf.layer for name, p in side.items()}
        for side in (first, second)
    ]
    leaves = [{name: p.leaf for name, p in side.items()} for side in (first, second)]
    without_biases = without_extra_biases(first, second, (leaves[0], leaves[1]))
    attempts = [(*without_biases, layers)]
    cells = [{n: p for n, p in side.items() if not is_inner_bias(n)} for side in (first, second)]
    if any(parameter.leaf.note for side in cells for parameter in side.values()):
        # Two variants of a recurrent cell, whose gates have the same names.
        attempts.append((cells[0], cells[1], [dict.fromkeys(side, "") for side in cells]))
    for first_candidates, second_candidates, kinds in attempts:
        try:
            targets = guess(first_candidates, second_candidates, "", (kinds[0], kinds[1]))
            return [
                Pair(name, targets[name]) for name in first_candidates
            ], "guessed by shape and order"
        except TriglotError:
            continue
    aligned = align_uses(without_biases, uses())
    pairs = [Pair(*names) for names in aligned]
    order = {name: index for index, name in enumerate(first)}
    pairs = sorted(_compatible_pairs(first, second, pairs), key=lambda pair: order[pair.one])
    return pairs, "guessed by order of use"


def _compatible_pairs(
    first: Mapping[str, Parameter], second: Mapping[str, Parameter], pairs: Sequence[Pair]
) -> list[Pair]:
    """Keep the pairs of equal shapes, and of transposed matrices."""
    compatible = []
    for pair in pairs:
        shapes = first[pair.one].shape, second[pair.other].shape
        if shapes[0] == shapes[1]:
            compatible.append(pair)
        elif len(shapes[0]) == 2 and shapes[0] == shapes[1][::-1]:
            compatible.append(replace(pair, transposed=True))
    return compatible


def candidates(pairing: Pairing, suspects: Collection[str]) -> Iterator[tuple[int, ...]]:
    """Yield sets of pairs, by index, that may be stored as transposed matrices of each other.

    Only suspects, by their names on either side, are among them. Matrices whose layout only the
    author knows come first, together and one by one; then all pairs of two matrices.
    """

    def has_unknown_layout(pair: Pair) -> bool:
        return any(
            leaf.unknown for leaf in (pairing.one[pair.one].leaf, pairing.other[pair.other].leaf)
        )

    square = [
        index
        for index, pair in enumerate(pairing.pairs)
        if not pair.transposed
        and _is_square(pairing.one[pair.one].shape)
        and (pair.one in suspects or pair.other in suspects)
    ]
    square.sort(key=lambda index: not has_unknown_layout(pairing.pairs[index]))
    square = square[:MAX_MATRICES]
    doubtful = tuple(index for index in square if has_unknown_layout(pairing.pairs[index]))
    sets = [doubtful, *((index,) for index in square), tuple(square)]
    yield from dict.fromkeys(filter(None, [*sets, *itertools.combinations(square, 2)]))


def find_transposed(
    pairing: Pairing,
    agrees: Callable[[Pairing], bool],
    labels: tuple[str, str],
    suspects: Collection[str],
) -> tuple[Pairing, list[Cause]]:
    """Transpose matrices until the outputs agree.

    Args:
      pairing: a pairing at which the outputs do not agree.
      agrees: whether the outputs agree at a pairing.
      labels: the labels of both networks.
      suspects: names, on either side, of the parameters that differing operations read.

    Returns:
      The pairing at which they agree, with a cause for each matrix; the given one if there is none.
    """
    for indices in candidates(pairing, suspects):
        transposed = replace(
            pairing,
            pairs=tuple(
                replace(pair, transposed=True) if index in indices else pair
                for index, pair in enumerate(pairing.pairs)
            ),
        )
        if agrees(transposed):
            return transposed, [
                layout_cause(pairing, transposed.pairs[index], labels) for index in indices
            ]
    return pairing, []


def find_reordered(
    pairing: Pairing,
    uses: Callable[[], tuple[Uses, Uses]],
    agrees: Callable[[Pairing], bool],
    labels: tuple[str, str],
) -> tuple[Pairing, list[Cause]]:
    """Pair equal layers by the order in which both networks apply them.

    Args:
      pairing: a pairing at which the outputs do not agree.
      uses: a function that reads the uses of parameters.
      agrees: whether the outputs agree at a pairing.
      labels: the labels of both networks.

    Returns:
      The pairing at which they agree, with a cause; the given one if there is none.
    """
    groups: dict[tuple[str, str, tuple[int, ...]], list[Pair]] = {}
    for pair in pairing.pairs:
        kind = INDEX.sub("*", pair.one), INDEX.sub("*", pair.other), pairing.one[pair.one].shape
        groups.setdefault(kind, []).append(pair)
    if all(len(group) == 1 for group in groups.values()):
        return pairing, []
    ranks = [{name: rank for rank, name in reversed([*enumerate(use.order)])} for use in uses()]
    counterparts: dict[str, str] = {}
    for group in groups.values():
        used = [pair for pair in group if pair.one in ranks[0] and pair.other in ranks[1]]
        first_names = sorted((pair.one for pair in used), key=ranks[0].__getitem__)
        second_names = sorted((pair.other for pair in used), key=ranks[1].__getitem__)
        counterparts |= dict(zip(first_names, second_names, strict=True))
    pairs = tuple(
        replace(pair, other=counterparts.get(pair.one, pair.other)) for pair in pairing.pairs
    )
    changed = [old for old, new in zip(pairing.pairs, pairs, strict=True) if old != new]
    reordered = replace(pairing, pairs=pairs)
    if not changed or not agrees(reordered):
        return pairing, []
    names = tuple(pair.one for pair in changed), tuple(pair.other for pair in changed)
    applied = [
        join_names(
            dict.fromkeys(
                side[name].display_place(_layer(name))
                for name in sorted(changed_names, key=rank.__getitem__)
            ),
            MAX_SHOWN,
        )
        for side, changed_names, rank in zip(
            (pairing.one, pairing.other), names, ranks, strict=True
        )
    ]
    evidence = (
        f"{labels[0]} applies {applied[0]} in this order, {labels[1]} {applied[1]}; paired in the "
        "order of their use, the outputs agree"
    )
    where = pairing.place_of(Pair(names[0][0], names[1][0]), labels)
    return reordered, [Cause("layer_order", where, evidence, (names[0][:1], names[1][:1]))]


def layer_order_note(pairing: Pairing, labels: tuple[str, str]) -> str | None:
    """Describe a stack whose layers are paired with layers of other indices.

    Parameters are paired by their use, so such networks are equivalent; but copying the stack in
    its stored order would give another network.
    """
    groups: dict[tuple[str, str], dict[str, str]] = {}
    display_names: tuple[dict[str, str], dict[str, str]] = ({}, {})  # names that the authors know
    for pair in pairing.pairs:
        layers = _layer(pair.one), _layer(pair.other)
        if layers[0] != pair.one and layers[1] != pair.other:  # both have numbers
            kind = pair.one.replace(layers[0], "", 1), pair.other.replace(layers[1], "", 1)
            groups.setdefault(kind, {})[layers[0]] = layers[1]
            display_names[0][layers[0]] = pairing.one[pair.one].display_place(layers[0])
            display_names[1][layers[1]] = pairing.other[pair.other].display_place(layers[1])
    for layers in groups.values():
        first_indices, second_indices = (
            [INDEX.findall(name)[-1] for name in side] for side in (layers, layers.values())
        )
        if first_indices != second_indices and sorted(first_indices) == sorted(second_indices):
            layer = next(
                name
                for name, index in zip(layers, second_indices, strict=True)
                if not name.endswith(index)
            )
            return (
                f"the layers are numbered differently: {display_names[0][layer]} ({labels[0]}) is "
                f"paired with {display_names[1][layers[layer]]} ({labels[1]}), in the order in "
                "which both apply them"
            )
    return None


def _layer(name: str) -> str:
    """Return a parameter's name up to its first index."""
    index = re.search(r"/\d+(?=/)", name)
    return name[: index.end()] if index else name


def layout_cause(pairing: Pairing, pair: Pair, labels: tuple[str, str]) -> Cause:
    """Describe a pair of matrices that are stored as transposed matrices of each other."""
    first, second = pairing.one[pair.one], pairing.other[pair.other]
    square = _is_square(first.shape)
    evidence = (
        "the outputs agree if one of the two is transposed, and differ if both hold the same values"
        if square
        else f"one is {list(first.shape)}, the other {list(second.shape)}"
    )
    where = pairing.place_of(pair, labels)
    return Cause("kernel_layout", where, evidence, ((pair.one,), (pair.other,)))


def _is_square(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[0] == shape[1] > 1
