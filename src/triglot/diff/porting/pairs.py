"""Pairs of a checkpoint's parameters and a network's: stated, by name, guessed, or by order."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax

from ...backends.pairing.biases import without_extra_biases
from ...backends.pairing.mapping import Target
from ...backends.translate import pair_parameters
from ...core.errors import TriglotError
from ...core.network import Network, Variables
from ..pairing.parameters import Parameter, place_of, read_parameters
from ..pairing.use_order import align_uses, read_uses

Order: TypeAlias = list[str]  # canonical names


@dataclass(frozen=True)
class Paired:
    """Which parameter goes where, and how that is known.

    Attributes:
      targets: the network's parameters by the checkpoint's canonical names.
      how: such as `by name` or `guessed by order of use`.
      assumed: parameters whose layout only their author knows, taken to be stored alike.
    """

    targets: dict[str, Target]
    how: str
    assumed: tuple[str, ...]

    @property
    def is_guess(self) -> bool:
        """Whether the user should look at it."""
        return self.how.startswith("guessed")


def pair(
    source: Network,
    variables: Variables,
    target: Network,
    mapping: Mapping[str, str] | None,
    inputs: Any,
    order: Order | None,
    *,
    by_use: bool = False,
) -> Paired:
    """Pair all parameters of both sides.

    Args:
      source: a network, or what is known of a file.
      variables: its own.
      target: the network that gets them.
      mapping: canonical names or prefixes of the source to those of the target; None to find them.
      inputs: a batch for the target, and for a source with a function.
      order: the source's parameters in the order in which its file or class has them, for a source
        without a function; None to read its program.
      by_use: whether `order` is the order of use, and not that of the names.

    Raises:
      TriglotError: if some cannot be paired.
    """
    how = "as stated" if mapping else "by name"
    try:
        targets, is_guess = pair_parameters(variables, source, target, mapping)
        how = "guessed by shape and order" if is_guess else how
    except TriglotError as error:
        if mapping:
            raise
        if order is None:
            found, how = _by_use(source, variables, target, inputs), "guessed by order of use"
        else:
            found = _by_rank(source, variables, target, inputs, order, by_use)
            how = "guessed by shape and order"
        if found is None:
            raise error
        targets = found
    sides = [network.require_codec("").by_name for network in (source, target)]
    assumed = tuple(
        name
        for name, to in targets.items()
        if not to.is_named and (sides[0][name].unknown or sides[1][to.name].unknown)
    )
    targets |= {name: targets[name]._replace(is_named=True) for name in assumed}
    return Paired(targets, how, assumed)


def _by_use(
    source: Network, variables: Variables, target: Network, inputs: Any
) -> dict[str, Target] | None:
    """Pair by the order of use; None unless each parameter has a counterpart of its shape."""
    start = target.init(jax.random.key(0))
    sides = _sides(source, variables, target, start)
    outputs = range(len(jax.tree.leaves(jax.eval_shape(target.apply, start, inputs)[0])))
    uses = [
        read_uses(network, own, inputs, outputs)
        for network, own in ((source, variables), (target, start))
    ]
    pairs = align_uses(sides, (uses[0], uses[1]))
    if len(pairs) != len(sides[0]) or len(pairs) != len(sides[1]):
        return None
    if any(sides[0][one].shape != sides[1][other].shape for one, other in pairs):
        return None
    return {one: Target(other) for one, other in pairs}


def _sides(
    source: Network, variables: Variables, target: Network, start: Variables
) -> tuple[Mapping[str, Parameter], Mapping[str, Parameter]]:
    """List the parameters of both networks, without biases that the other's cells lack."""
    one, other = read_parameters(source, variables.params), read_parameters(target, start.params)
    leaves = [{name: each.leaf for name, each in side.items()} for side in (one, other)]
    return without_extra_biases(one, other, (leaves[0], leaves[1]))


def _by_rank(
    source: Network,
    variables: Variables,
    target: Network,
    inputs: Any,
    order: Order,
    by_use: bool,
) -> dict[str, Target] | None:
    """Pair layers of equal kinds and shapes by their rank; None unless there are as many on both.

    The order of the names is used on both sides, or, where the file has the order of its module,
    that order and the order of use.
    """
    start = target.init(jax.random.key(0))
    sides = _sides(source, variables, target, start)
    order = [name for name in order if name in sides[0]]
    ranks = order, sorted(sides[1], key=naturally)
    if by_use or order != sorted(order, key=naturally):
        outputs = range(len(jax.tree.leaves(jax.eval_shape(target.apply, start, inputs)[0])))
        used = read_uses(target, start, inputs, outputs).order
        ranks = order, [name for name in dict.fromkeys([*used, *ranks[1]]) if name in sides[1]]
    one, other = (_layers(side, rank) for side, rank in zip(sides, ranks, strict=True))
    if {kind: len(found) for kind, found in one.items()} != {
        kind: len(found) for kind, found in other.items()
    }:
        return None
    pairs: dict[str, Target] = {}
    for kind, found in one.items():
        for here, there in zip(found, other[kind], strict=True):
            pairs |= {here[last]: Target(there[last]) for last in here}
    return pairs


def _layers(
    side: Mapping[str, Parameter], order: Sequence[str]
) -> dict[tuple[Any, ...], list[dict[str, str]]]:
    """List the layers of each kind and shapes in order: their names by the names inside."""
    layers: dict[str, dict[str, str]] = {}
    for name in order:
        place, inside = place_of(side[name])
        layers.setdefault(place, {})[inside] = name
    found: dict[tuple[Any, ...], list[dict[str, str]]] = {}
    for members in layers.values():
        kind = tuple(
            (inside, "" if side[n].leaf.unknown else side[n].leaf.layer, side[n].shape)
            for inside, n in sorted(members.items())
        )
        found.setdefault(kind, []).append(members)
    return found


def naturally(name: str) -> list[tuple[int, int, str]]:
    """Give the key by which `layer2` comes before `layer10`."""
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]
