"""Running statistics of batch normalizations, from one library's state to another's."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from ...core.errors import TriglotError
from ...core.network import Network, Statistic, Statistics
from ...core.types import PyTree
from ..naming import words_of
from .author_names import Arrays
from .guessing import guess
from .mapping import Target

# What layers with spectral normalization keep, and how they read it.
SINGULAR_VECTORS = {
    frozenset("uv"): "both singular vectors, from which evaluation computes the divisor",
    frozenset({"u", "sigma"}): "one singular vector, from which evaluation iterates too",
    frozenset("u"): "one singular vector for training, and does not divide in evaluation",
}
SETTLED = 2**20  # updates, after which an average with a decay of 0.9999 has forgotten its start


def check_state(state: PyTree, source: Network, expected: PyTree, target: Network) -> None:
    """Reject states that hold something else than as many running statistics.

    Raises:
      TriglotError: if they do.
    """
    kinds = [_kinds_of(*side) for side in ((state, source), (expected, target))]
    _check_vectors((source, target), kinds)
    averages = [
        {
            name
            for statistic in side
            if statistic and not statistic.counts
            for name in _slices(statistic.name, network)
        }
        for side, network in zip(kinds, (source, target), strict=True)
    ]
    if None in (*kinds[0], *kinds[1]) or len(averages[0]) != len(averages[1]):
        raise _other_state(source, target)


def translate_state(
    state: PyTree, source: Network, expected: PyTree, target: Network, pairs: Mapping[str, Target]
) -> PyTree:
    """Convert running statistics, which follow their layer's parameters.

    Those of stacked layers are split, or joined, along the leading axis. Counters say that many
    updates were seen, so that no average is corrected for its start.

    Raises:
      TriglotError: if there is more than the same running statistics in both.
    """
    arrays, leaves = jax.tree.leaves(state), jax.tree.leaves(expected)
    kinds, wanted = _kinds_of(state, source), _kinds_of(expected, target)
    _check_vectors((source, target), (kinds, wanted))
    averages = {
        name: part
        for whole, array in _averages(list(zip(kinds, arrays, strict=True))).items()
        for names in (_slices(whole, source),)
        for name, part in zip(names, jnp.split(array, len(names)), strict=True)
    }
    needed = {
        name: jax.ShapeDtypeStruct((leaf.size // len(names),), leaf.dtype)
        for statistic, leaf in zip(wanted, leaves, strict=True)
        if statistic is not None and not statistic.counts
        for names in (_slices(statistic.name, target),)
        for name in names
    }
    to = _paired_statistics(averages, needed, pairs)
    moved = {to[name]: array for name, array in averages.items() if name in to}
    sizes = [{n: array.size for n, array in side.items()} for side in (moved, needed)]
    if len(to) != len(averages) or sizes[0] != sizes[1]:
        raise _other_state(source, target)

    def value(kind: Statistic | None, leaf: jax.Array) -> jax.Array:
        if kind is not None and not kind.counts:
            parts = [moved[name] for name in _slices(kind.name, target)]
            return jnp.concatenate(parts).reshape(leaf.shape).astype(leaf.dtype)
        many = SETTLED if leaf.dtype != jnp.bool_ else 0  # Equinox asks whether it is the first
        return jnp.full(leaf.shape, many, leaf.dtype)

    return jax.tree.unflatten(jax.tree.structure(expected), list(map(value, wanted, leaves)))


def _check_vectors(
    networks: tuple[Network, Network], kinds: Sequence[Sequence[Statistic | None]]
) -> None:
    """Reject networks whose spectral normalizations keep other vectors.

    Raises:
      TriglotError: if they do; it says how each network reads them.
    """
    names = [
        frozenset(each.name.rpartition("/")[2] for each in side if each is not None)
        for side in kinds
    ]
    vectors = [side & frozenset().union(*SINGULAR_VECTORS) for side in names]
    if not all(vectors) or vectors[0] == vectors[1]:
        return
    keeps = [
        f"{network.name!r} ({network.backend}) keeps {SINGULAR_VECTORS.get(kept, sorted(kept))}"
        for network, kept in zip(networks, vectors, strict=True)
    ]
    raise TriglotError(
        f"spectral normalization: {keeps[0]}; {keeps[1]}. They divide a kernel by different "
        "numbers, so no weights make the functions equal. For evaluation, translate between "
        "networks without the normalization, and give the first one the kernels that its "
        "evaluation uses: Keras's as they are, others divided by the largest singular value (in "
        "PyTorch, `torch.nn.utils.parametrize.remove_parametrizations` writes them in evaluation "
        "mode). To train on, write the second network's normalization as the first one computes it."
    )


def _other_state(source: Network, target: Network) -> TriglotError:
    for network in (source, target):
        for statistic in network.statistics:
            reason = "" if statistic is None else _unknown_layout(network, statistic)
            if statistic is not None and reason:
                return TriglotError(
                    f"{statistic.name!r} of {network.name!r} cannot be translated: its layer has "
                    f"an array of unknown layout: {reason}. Store it as the library's layer does "
                    "by default, stacks along the first axis, or copy parameters and statistics "
                    "by hand."
                )
    return TriglotError(
        f"{source.name!r} or {target.name!r} has state besides its parameters that the other lacks "
        "or that has no canonical form (statistics of a custom layer, frozen or integer arrays): "
        "freeze after translating, and copy statistics by hand."
    )


def _unknown_layout(network: Network, statistic: Statistic) -> str:
    """Say why an array of a running statistic's layer has no canonical layout; empty if all have.

    The statistic is stored as they are, such as along another axis of a stack.
    """
    place = _place(statistic.name)
    leaves = network.codec.leaves if network.codec is not None else ()
    return next(
        (leaf.unknown for leaf in leaves if leaf.unknown and _place(leaf.name) == place), ""
    )


def _place(name: str) -> str:
    return name.rpartition("/")[0]


def _slices(name: str, network: Network) -> list[str]:
    """Name the running statistics that an array holds: of each layer, if it stacks layers."""
    place, _, last = name.rpartition("/")
    for leaf in network.codec.leaves if network.codec is not None else ():
        if leaf.whole is not None and leaf.whole.name.rpartition("/")[0] == place:
            return [f"{layer.rpartition('/')[0]}/{last}" for layer in leaf.names]
    return [name]


def _kinds_of(state: PyTree, network: Network) -> tuple[Statistic | None, ...]:
    """Describe the arrays of a state, in the order in which it flattens."""
    if network.statistics:
        return network.statistics
    kinds: list[Statistic | None] = []
    for path, node in jax.tree_util.tree_leaves_with_path(
        state, is_leaf=lambda node: isinstance(node, Statistics)
    ):
        if isinstance(node, Statistics):
            prefix = words_of(path)
            kinds += [Statistic("/".join((*prefix, name))) for name in sorted(node.named)]
        else:
            kinds.append(None)
    return tuple(kinds)


def _averages(arrays: Sequence[tuple[Statistic | None, jax.Array]]) -> dict[str, jax.Array]:
    """Compute the averages that evaluation reads, `[size]` each, by name."""
    counts = {
        statistic.name: array for statistic, array in arrays if statistic and statistic.counts
    }
    averages: dict[str, jax.Array] = {}
    for statistic, array in arrays:
        if statistic is None or statistic.counts:
            continue
        if statistic.decay is not None:
            count = counts[f"{statistic.name.rpartition('/')[0]}/count"]
            decayed = jnp.float32(statistic.decay) ** count.astype(jnp.float32)
            array = array / jnp.where(count == 0, 1.0, 1.0 - decayed).astype(array.dtype)
        # Haiku's average comes before its sum.
        averages.setdefault(statistic.name, jnp.ravel(array))
    return averages


def _paired_statistics(
    averages: Arrays, needed: Arrays, pairs: Mapping[str, Target]
) -> dict[str, str]:
    """Pair statistics by equal names, by the parameters of their layers, else by shape."""
    layers = {name.rpartition("/")[0]: pair.name.rpartition("/")[0] for name, pair in pairs.items()}
    to = {}
    for name in averages:
        layer, _, last = name.rpartition("/")
        other = "/".join(filter(None, (layers.get(layer, layer), last)))
        if other in needed:
            to[name] = other
    left = {name: averages[name] for name in averages if name not in to}
    open_names = {name: needed[name] for name in needed if name not in to.values()}
    if left and len(left) == len(open_names):
        to |= guess(left, open_names, "running statistics")
    return to
