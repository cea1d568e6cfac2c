"""Weights from one library to another, through their canonical form."""

import operator
import warnings
from collections.abc import Mapping
from typing import Any

import jax

from ..core.errors import Guessed, TriglotError
from ..core.network import Codec, Network, Variables
from .guessing import as_mapping, guess
from .pairing import Mapped, Stated, is_split, state


def translate(
    variables: Variables,
    source: Network,
    target: Network,
    mapping: Mapping[str, Mapped] | None = None,
) -> Variables:
    """Carry weights between two networks of one architecture; nothing is rounded.

    (But where one of them is Haiku's LSTM: it keeps a forget bias less 1, so that the bias's last
    bit may change.)

    Without a `mapping`, parameters of equal canonical names are paired. Where the names differ,
    they are paired by shape and order if that can be done in one way only, with a `Guessed` warning
    that lists the pairs. Only arrays travel: an epsilon or an activation is the network's own.

    Args:
      variables: of `source`.
      source, target: of any libraries, arithmetics and kinds of initialisation.
      mapping: canonical names of `source` to those of `target`; parts of networks as well as single
        parameters (`{"mlp/linear_0": "torso/0"}`); what is called alike need not be stated. Axes
        are joined or split where the shapes ask for it (`[in, heads * size]` and
        `[in, heads, size]`). A value may be `(name, function)`, to change the canonical array on
        its way.

    Returns:
      Variables of `target` that compute the same function.

    Raises:
      TriglotError: if a network has no codec or holds state beside its parameters, if the
        architectures differ, if parameters cannot be paired in one way only, or if the two compute
        another function with arrays of one name.

    >>> from triglot.backends import build
    >>> from triglot.core.networks.architecture import MLP, NetworkSpec, value_head
    >>> from triglot.core.specs import Box
    >>> spec = {"critic": NetworkSpec(Box((4,)), MLP((8,)), (("value", value_head()),))}
    >>> haiku, equinox = build("haiku", spec), build("equinox", spec)
    >>> weights = translate(haiku.init(jax.random.key(0)), haiku, equinox)
    """
    codecs = [_codec(network) for network in (source, target)]
    expected = jax.eval_shape(target.init, jax.random.key(0))
    if jax.tree.leaves(variables.state) or jax.tree.leaves(expected.state):
        raise TriglotError(
            f"{source.name!r} or {target.name!r} holds state beside its parameters (BatchNorm's "
            "statistics, frozen or integer arrays), for which no canonical form is stated: freeze "
            "after translating, and carry statistics over by hand."
        )
    named = codecs[0].encode(variables.params)
    shapes = jax.eval_shape(codecs[1].encode, expected.params)
    whose = f"from {source.backend} {source.name!r} to {target.backend} {target.name!r}"
    if mapping is not None:
        pairs = state(mapping, named, shapes, whose)
    elif named.keys() == shapes.keys():
        pairs = {name: Stated(name) for name in named}
    else:
        _check_conventions(codecs, whose)
        guessed = guess(named, shapes, whose)
        pairs = {name: Stated(other) for name, other in guessed.items()}
        warnings.warn(
            f"{whose}, parameters are paired by shape and order; if that is right, say so with "
            f"{as_mapping(guessed)}.",
            Guessed,
            stacklevel=2,
        )
    _check_notes(codecs, {name: pair.name for name, pair in pairs.items()}, whose)
    moved = {pair.name: pair.apply(named[name]) for name, pair in pairs.items()}
    _check_shapes(moved, shapes, whose, split=mapping is not None)
    moved = {name: array.reshape(shapes[name].shape) for name, array in moved.items()}
    return Variables(params=codecs[1].decode(moved), state=expected.state)


def _codec(network: Network) -> Codec:
    if network.codec is None:
        raise TriglotError(
            f"the {network.backend} network {network.name!r} states no canonical names for its "
            "parameters, so its weights cannot be translated."
        )
    return network.codec


def _check_conventions(codecs: list[Codec], whose: str) -> None:
    """Refuse networks whose layers of one name are two functions."""
    there, here = ({leaf.note for leaf in codec.leaves if leaf.note} for codec in codecs)
    if there and here and not there & here:
        raise _two_functions(whose, " and ".join(there), " and ".join(here))


def _check_notes(codecs: list[Codec], pairs: Mapping[str, str], whose: str) -> None:
    """Refuse arrays that are not computed with alike."""
    there, here = (
        {name: leaf.note for leaf in codec.leaves for name in leaf.names} for codec in codecs
    )
    for name, other in pairs.items():
        if there[name] != here[other]:
            notes = [note or "another layer" for note in (there[name], here[other])]
            raise _two_functions(f"{whose}, {name} and {other}", *notes)


def _two_functions(what: str, there: str, here: str) -> TriglotError:
    return TriglotError(
        f"{what}: the first is of {there}, the second of {here}. One name and two functions: no "
        "weights make them equal."
    )


def _check_shapes(
    moved: Mapping[str, Any], shapes: Mapping[str, Any], whose: str, *, split: bool
) -> None:
    fits = is_split if split else operator.eq
    different = [
        name
        for name in sorted(shapes)
        if not fits(moved[name].shape, shapes[name].shape)
        or moved[name].dtype != shapes[name].dtype
    ]
    if different:
        name = different[0]
        told = [f"{tuple(a.shape)} {a.dtype}" for a in (moved[name], shapes[name])]
        problem = "the mapping does not fit" if split else "the architectures differ"
        raise TriglotError(
            f"{whose}: {problem}: {name} is {told[0]} in the first and {told[1]} in the second "
            f"({len(different)} parameters differ)."
        )
