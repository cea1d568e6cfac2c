"""Pairs of a checkpoint's parameters and a network's: stated, by name, guessed, or by order."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax

from ...backends.pairing.biases import without_extra_biases
from ...backends.pairing.mapping import Target
from ...backends.translate import pair_parameters
from ...core.errors import TriglotError
from ...core.network import Network, Variables
from ...core.types import PyTree
from ..pairing.parameters import Parameter, place_of, read_parameters
from ..pairing.use_order import Uses, align_uses, read_uses

LayerKind: TypeAlias = tuple[tuple[str, str, tuple[int, ...]], ...]  # name, layer, shape
Order: TypeAlias = list[str]  # canonical names
Sides: TypeAlias = tuple[Mapping[str, Parameter], Mapping[str, Parameter]]


@dataclass(frozen=True)
class Paired:
    """The target of each parameter, and how it was found.

    Attributes:
      targets: the network's parameters by the checkpoint's canonical names.
      method: how they were found, such as `by name` or `guessed by order of use`.
      assumed: parameters whose layout only their author knows, taken to be stored alike.
    """

    targets: dict[str, Target]
    method: str
    assumed: tuple[str, ...]

    @property
    def is_guess(self) -> bool:
        """Whether the user should look at it."""
        return self.method.startswith("guessed")


def pair(
    source: Network,
    variables: Variables,
    target: Network,
    mapping: Mapping[str, str] | None,
    inputs: PyTree,
    order: Order | None,
    *,
    by_use: bool = False,
) -> Paired:
    """Pair all parameters of both sides.

    Args:
      source: a network, or what is known of a file.
      variables: the variables of `source`.
      target: the network that gets the parameters.
      mapping: canonical names or prefixes of the source to those of the target; None to find them.
      inputs: a batch for the target, and for a source with a function.
      order: the source's parameters in the order in which its file or class has them, for a source
        without a function; None to read its program.
      by_use: whether `order` is the order of use, and not that of the names.

    Raises:
      TriglotError: if some cannot be paired.
    """
    method = "as stated" if mapping else "by name"
    try:
        targets, is_guess = pair_parameters(variables, source, target, mapping)
        method = "guessed by shape and order" if is_guess else method
    except TriglotError as error:
        if mapping:
            raise
        initial = target.init(jax.random.key(0))
        sides = _sides(source, variables, target, initial)
        if order is None:
            paired_names = _by_use(sides, (source, variables), (target, initial), inputs)
            method = "guessed by order of use"
        else:
            paired_names = _by_rank(sides, (target, initial), inputs, order, by_use)
            method = "guessed by shape and order"
        if paired_names is None:
            raise error
        targets = {name: Target(target_name) for name, target_name in paired_names.items()}
    sides = [network.require_codec("").by_name for network in (source, target)]
    assumed = tuple(
        name
        for name, destination in targets.items()
        if not destination.is_named
        and (sides[0][name].unknown or sides[1][destination.name].unknown)
    )
    targets |= {name: targets[name]._replace(is_named=True) for name in assumed}
    return Paired(targets, method, assumed)


def _uses(network: Network, variables: Variables, inputs: PyTree) -> Uses:
    outputs = jax.tree.leaves(jax.eval_shape(network.apply, variables, inputs)[0])
    return read_uses(network, variables, inputs, range(len(outputs)))


def _by_use(
    sides: Sides,
    source: tuple[Network, Variables],
    target: tuple[Network, Variables],
    inputs: PyTree,
) -> dict[str, str] | None:
    """Pair by the order of use; None unless each parameter has a counterpart of its shape."""
    pairs = align_uses(sides, (_uses(*source, inputs), _uses(*target, inputs)))
    if len(pairs) != len(sides[0]) or len(pairs) != len(sides[1]):
        return None
    same_shapes = all(sides[0][one].shape == sides[1][other].shape for one, other in pairs)
    return dict(pairs) if same_shapes else None


def _sides(source: Network, variables: Variables, target: Network, initial: Variables) -> Sides:
    """List the parameters of both networks, without biases that the other's cells lack."""
    source_parameters = read_parameters(source, variables.params)
    target_parameters = read_parameters(target, initial.params)
    leaves = [
        {name: each.leaf for name, each in side.items()}
        for side in (source_parameters, target_parameters)
    ]
    return without_extra_biases(source_parameters, target_parameters, (leaves[0], leaves[1]))


def _by_rank(
    sides: Sides, target: tuple[Network, Variables], inputs: PyTree, order: Order, by_use: bool
) -> dict[str, str] | None:
    """Pair layers of equal kinds and shapes by their rank; None unless there are as many on both.

    The order of the names is used on both sides, or, where the file has the order of its module,
    that order and the order of use.
    """
    order = [name for name in order if name in sides[0]]
    ranks = order, sorted(sides[1], key=naturally)
    if by_use or order != sorted(order, key=naturally):
        used = dict.fromkeys([*_uses(*target, inputs).order, *ranks[1]])
        ranks = order, [name for name in used if name in sides[1]]
    layers = [_layers(side, rank) for side, rank in zip(sides, ranks, strict=True)]
    counts = [{kind: len(members) for kind, members in side.items()} for side in layers]
    if counts[0] != counts[1]:
        return None
    source_layers, target_layers = layers
    pairs: dict[str, str] = {}
    for kind, members in source_layers.items():
        for source_names, target_names in zip(members, target_layers[kind], strict=True):
            pairs |= {source_names[last]: target_names[last] for last in source_names}
    return pairs


def _layers(
    side: Mapping[str, Parameter], order: Sequence[str]
) -> dict[LayerKind, list[dict[str, str]]]:
    """List the layers of each kind and shapes in order: their names by the names inside."""
    layers: dict[str, dict[str, str]] = {}
    for name in order:
        place, inside = place_of(side[name])
        layers.setdefault(place, {})[inside] = name
    by_kind: dict[LayerKind, list[dict[str, str]]] = {}
    for members in layers.values():
        kind = tuple(
            (inside, "" if side[n].leaf.unknown else side[n].leaf.layer, side[n].shape)
            for inside, n in sorted(members.items())
        )
        by_kind.setdefault(kind, []).append(members)
    return by_kind


def naturally(name: str) -> list[tuple[int, int, str]]:
    """Give the key by which `layer2` comes before `layer10`."""
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]
