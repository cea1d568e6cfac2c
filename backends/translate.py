"""Translation of weights between libraries, through their canonical form."""

import operator
import warnings
from collections.abc import Mapping

import jax

from ..core.errors import Guessed, TriglotError, kind_of
from ..core.network import Codec, Leaf, Network, Variables, check_network
from ..core.types import abstract_key, type_differences
from .pairing.biases import sum_biases, without_extra_biases, zero_biases
from .pairing.guessing import as_mapping, guess
from .pairing.mapping import Arrays, Mapped, Target, follow_mapping, is_split
from .pairing.stacks import align_stacks
from .pairing.statistics import check_state, translate_state


def translate(
    variables: Variables,
    source: Network,
    target: Network,
    mapping: Mapping[str, Mapped] | None = None,
) -> Variables:
    """Convert weights between two networks of the same architecture, without rounding.

    Two exceptions: Haiku's LSTM stores its forget bias minus 1, so the last bit of that bias may
    change; and PyTorch's cells and Keras's GRU add two biases in a gate where others have one, so
    these get the sum. In the other direction the second bias is 0.

    Without a `mapping`, parameters of equal canonical names are paired. If the names differ, they
    are paired by shape and order if only one such pairing exists, with a `Guessed` warning that
    lists the pairs. Arrays only are translated, not constants such as an epsilon or a padding.

    The layouts of the libraries' own layers are listed in `triglot.backends.layers`. An array of
    another layer, such as a matrix of a custom module, is translated only if `mapping` has an
    entry for that array, or if both networks have the same layer.

    Args:
      variables: variables of `source`.
      source: a network of any library and arithmetic.
      target: a network of any library and arithmetic.
      mapping: names of layers or single parameters of `source` to those of `target`
        (`{"mlp/~/linear_0": ".layers[0]"}`): as the networks' libraries spell them, canonical
        (`{"mlp/linear/0": "layers/0"}`), or the end of such a name, if only one ends so. Parameters
        with equal canonical names need no entry. Axes are joined
        or split to fit the shapes (`[in, heads * size]` and `[in, heads, size]`). A value may be
        `(name, function)`; the function is applied to the canonical array.

    Returns:
      Variables of `target` that compute the same function.

    The running statistics of the libraries' own batch normalizations follow their layer's
    parameters; counters say that many updates were seen.

    Raises:
      TriglotError: if a network has no codec or has other state besides its parameters, the
        architectures differ, several pairings exist, layers of equal names compute different
        functions, or an array's layout is unknown and the mapping does not name it.

    >>> from triglot.backends import build
    >>> from triglot.core.networks.architecture import MLP, NetworkSpec, value_head
    >>> from triglot.core.specs import Box
    >>> spec = {"critic": NetworkSpec(Box((4,)), MLP((8,)), (("value", value_head()),))}
    >>> haiku, equinox = build("haiku", spec), build("equinox", spec)
    >>> weights = translate(haiku.init(jax.random.key(0)), haiku, equinox)
    """
    for what, network in (("source", source), ("target", target)):
        check_network(f"translate's {what}", network)
    if not isinstance(variables, Variables):
        raise TriglotError(f"translate takes Variables of source, got {kind_of(variables)}.")
    expected = jax.eval_shape(source.init, abstract_key())
    for name, (given_type, needed) in type_differences(variables, expected).items():
        raise TriglotError(
            f"the variables are not those of the source, {source.backend} {source.name!r}: {name} "
            f"is {given_type}, expected {needed}."
        )
    source, target = align_stacks(source, target)
    pairs, is_guess = pair_parameters(variables, source, target, mapping)
    if is_guess:
        codecs = [net.require_codec("weights cannot be translated") for net in (source, target)]
        leaves = codecs[0].by_name, codecs[1].by_name
        guessed = as_mapping({name: pair.name for name, pair in pairs.items()}, leaves=leaves)
        warnings.warn(
            f"{_shown(source, target)}, parameters are paired by shape and order; if that is "
            f"right, pass {guessed}.",
            Guessed,
            stacklevel=2,
        )
    return move(variables, source, target, pairs, split=mapping is not None)


def pair_parameters(
    variables: Variables,
    source: Network,
    target: Network,
    mapping: Mapping[str, Mapped] | None = None,
) -> tuple[dict[str, Target], bool]:
    """Pair the parameters of two networks as `translate` does.

    Returns:
      The target's parameters by the canonical names of `source`, and whether they are guessed.

    Raises:
      TriglotError: as `translate` does.
    """
    codecs = [net.require_codec("weights cannot be translated") for net in (source, target)]
    expected = jax.eval_shape(target.init, abstract_key())
    check_state(variables.state, source, expected.state, target)
    named, shapes = without_extra_biases(
        jax.eval_shape(codecs[0].encode, variables.params),
        jax.eval_shape(codecs[1].encode, expected.params),
        (codecs[0].by_name, codecs[1].by_name),
    )
    networks = _shown(source, target)
    if mapping is not None:
        names = codecs[0].display_names, codecs[1].display_names
        return follow_mapping(mapping, named, shapes, networks, names), False
    if named.keys() == shapes.keys():
        return {name: Target(name) for name in named}, False
    _check_conventions(codecs, networks)
    _check_guessable(codecs, networks)
    layers = _guessable(codecs[0]), _guessable(codecs[1])
    leaves = codecs[0].by_name, codecs[1].by_name
    guessed = guess(named, shapes, networks, layers, leaves)
    return {name: Target(other) for name, other in guessed.items()}, True


def move(
    variables: Variables,
    source: Network,
    target: Network,
    pairs: Mapping[str, Target],
    *,
    split: bool = False,
) -> Variables:
    """Convert weights by the pairs of `pair_parameters`; with `split`, axes may be split or joined.

    Raises:
      TriglotError: as `translate` does.
    """
    codecs = [net.require_codec("weights cannot be translated") for net in (source, target)]
    expected = jax.eval_shape(target.init, abstract_key())
    shapes = jax.eval_shape(codecs[1].encode, expected.params)
    networks = _shown(source, target)
    _check_layers(codecs, pairs, networks)
    named = codecs[0].encode(variables.params)
    named = sum_biases(named, codecs[0].by_name, pairs, networks)
    moved = {pair.name: pair.apply(named[name]) for name, pair in pairs.items()}
    moved |= zero_biases(shapes, codecs[1].by_name, pairs)
    _check_shapes(moved, shapes, networks, codecs[1].display_names, split=split)
    moved = {name: array.reshape(shapes[name].shape) for name, array in moved.items()}
    state = translate_state(variables.state, source, expected.state, target, pairs)
    return Variables(params=codecs[1].decode(moved), state=state)


def _shown(source: Network, target: Network) -> str:
    return f"from {source.backend} {source.name!r} to {target.backend} {target.name!r}"


def _check_conventions(codecs: list[Codec], networks: str) -> None:
    """Reject networks whose layers of equal names compute different functions."""
    first, second = ({leaf.note for leaf in codec.leaves if leaf.note} for codec in codecs)
    if first and second and not first & second:
        raise _different_functions(networks, " and ".join(first), " and ".join(second))


def _check_guessable(codecs: list[Codec], networks: str) -> None:
    """Reject arrays of unknown layout that have no counterpart of equal name and layer."""
    for codec, other, is_source in zip(codecs, reversed(codecs), (True, False), strict=True):
        for leaf in codec.leaves:
            match = other.by_name.get(leaf.name)
            if leaf.unknown and (match is None or match.layer != leaf.layer):
                shown = leaf.display_name(leaf.name)
                pair = (repr(shown), "...") if is_source else ("...", repr(shown))
                raise _unknown_layout(networks, shown, leaf, *pair)


def _guessable(codec: Codec) -> dict[str, str]:
    """Give each array's layer; an array of unknown layout is paired by its name only."""
    return {
        name: f"{leaf.layer} ({name})" if leaf.unknown else leaf.layer
        for name, leaf in codec.by_name.items()
    }


def _check_layers(codecs: list[Codec], pairs: Mapping[str, Target], networks: str) -> None:
    """Reject pairs of arrays whose layers differ or whose layouts are unknown."""
    first, second = (codec.by_name for codec in codecs)
    for name, pair in pairs.items():
        one, other = first[name], second[pair.name]
        shown = one.display_name(name), other.display_name(pair.name)
        if one.note != other.note:
            notes = [leaf.note or leaf.layer or "another layer" for leaf in (one, other)]
            raise _different_functions(f"{networks}, {shown[0]} and {shown[1]}", *notes)
        if pair.is_named or one.layer == other.layer:
            continue
        for leaf, shown_name in zip((one, other), shown, strict=True):
            if leaf.unknown:
                raise _unknown_layout(networks, shown_name, leaf, *map(repr, shown))
        if one.layer and other.layer:
            raise TriglotError(
                f"{networks}: {shown[0]!r} belongs to {one.layer}, {shown[1]!r} to {other.layer}. "
                f"If they are stored alike, state mapping={{{shown[0]!r}: {shown[1]!r}}}."
            )


def _unknown_layout(networks: str, shown: str, leaf: Leaf, name: str, other: str) -> TriglotError:
    return TriglotError(
        f"{networks}: the layout of {shown!r} is unknown: {leaf.unknown}. If both networks store "
        f"the array alike, state mapping={{{name}: {other}}}; otherwise mapping={{{name}: "
        f"({other}, FUNCTION)}} with a function that converts it."
    )


def _different_functions(what: str, first: str, second: str) -> TriglotError:
    return TriglotError(
        f"{what}: the first belongs to {first}, the second to {second}. They compute different "
        "functions, so no weights make them equal."
    )


def _check_shapes(
    moved: Arrays,
    shapes: Arrays,
    networks: str,
    names: Mapping[str, str],
    *,
    split: bool,
) -> None:
    fits = is_split if split else operator.eq

    def differs(name: str) -> bool:
        one, other = moved[name], shapes[name]
        return not fits(one.shape, other.shape) or one.dtype != other.dtype

    if different := list(filter(differs, sorted(shapes))):
        name = different[0]
        types = [f"{tuple(a.shape)} {a.dtype}" for a in (moved[name], shapes[name])]
        problem = "the mapping does not fit" if split else "the architectures differ"
        raise TriglotError(
            f"{networks}: {problem}: {names[name]} is {types[0]} in the first and {types[1]} in "
            f"the second ({len(different)} parameters differ)."
        )
