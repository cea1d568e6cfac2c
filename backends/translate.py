"""Weights from one library to another, through their canonical form."""

import jax

from ..core.errors import TriglotError
from ..core.network import Network, Variables


def translate(variables: Variables, source: Network, target: Network) -> Variables:
    """Carry weights between two networks of one architecture; nothing is rounded.

    Args:
      variables: of `source`.
      source, target: of any libraries, arithmetics and kinds of initialisation.

    Returns:
      Variables of `target` that compute the same function.

    Raises:
      TriglotError: if a network has no codec or holds state beside its parameters, or if the
        architectures differ; the parameters that one lacks or that differ in shape are named.
    """
    for network in (source, target):
        if network.codec is None:
            raise TriglotError(
                f"the {network.backend} network {network.name!r} states no canonical names for "
                "its parameters, so its weights cannot be translated."
            )
    assert source.codec is not None and target.codec is not None
    expected = jax.eval_shape(target.init, jax.random.key(0))
    if jax.tree.leaves(variables.state) or jax.tree.leaves(expected.state):
        raise TriglotError(
            f"{source.name!r} or {target.name!r} holds state beside its parameters (such as "
            "BatchNorm statistics), for which no canonical form is stated."
        )
    named = source.codec.encode(variables.params)
    shapes = jax.eval_shape(target.codec.encode, expected.params)
    different = sorted(
        name
        for name in named.keys() | shapes.keys()
        if name not in named or name not in shapes or named[name].shape != shapes[name].shape
    )
    if different:
        name = different[0]
        there = [tuple(d[name].shape) if name in d else "absent" for d in (named, shapes)]
        raise TriglotError(
            f"{source.backend} {source.name!r} and {target.backend} {target.name!r} are of "
            f"different architectures: {name} is {there[0]} in the first and {there[1]} in the "
            f"second ({len(different)} parameters differ)."
        )
    return Variables(params=target.codec.decode(named), state=expected.state)
