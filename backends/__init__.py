"""One folder per neural-network library, imported on first use, and what they share."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import TriglotError
from .libraries import find

if TYPE_CHECKING:
    from ..core.network import Network
    from ..core.networks.architecture import NetworkSpec


def build(
    backend: str, specs: "Mapping[str, NetworkSpec | Network]", *, arithmetic: str = "native"
) -> "Network":
    """Build an algorithm's networks from a library's own layers.

    Equal networks are built once in a process: agents that have them share compiled programs.

    Args:
      backend: `haiku`, `linen`, `nnx`, `equinox`, `keras`, `torch`, `jax` for none, `table`, or the
        name of an installed library.
      specs: the networks that the algorithm asks for, by name; a `Network` is used as it is.
      arithmetic: see `triglot.backends.canonical.with_arithmetic`.

    Returns:
      The combination of the networks, `{name: {head: array}}`.

    Raises:
      TriglotError: if the backend or the arithmetic is unknown, or the library is not installed.
    """
    from jax import config  # here, since listings of runs need no jax

    zoo, chosen = find(backend).load_zoo(), tuple(specs.items())
    try:
        hash(chosen)
    except TypeError:  # a layer of the user's own
        return _build(zoo, chosen, arithmetic)
    return _built_once(zoo, chosen, arithmetic, config.read("jax_enable_x64"))


def _build(
    zoo: "Callable[[NetworkSpec, str], Network]",
    specs: "tuple[tuple[str, NetworkSpec | Network], ...]",
    arithmetic: str,
    x64: bool = False,
) -> "Network":
    del x64  # of the key of `_built_once` only
    from ..core.network import Network
    from ..core.networks.architecture import Table
    from ..core.networks.combinators import combine, ensemble, transform_inputs, transform_outputs
    from .canonical import with_arithmetic
    from .zoo.initializers import with_lecun_normal

    def build_one(name: str, spec: "NetworkSpec | Network") -> Network:
        if isinstance(spec, Network):
            return spec
        spec.check()
        flat = spec.flat()
        plain = flat.plain
        network = zoo(plain, name)
        if not isinstance(network, Network):
            raise TriglotError(
                f"zoo(spec, name) of {zoo.__module__} must return a Network; got a "
                f"{type(network).__name__}."
            )
        network = with_lecun_normal(network) if plain.lecun_normal else network
        network = with_arithmetic(_with_documented_names(network), arithmetic)
        if isinstance(spec.torso, Table):
            network = replace(network, random_start=False)
        if plain.obs_spec != spec.obs_spec:
            network = transform_inputs(network, spec.to_plain)
        if flat.heads != spec.heads or any(head.offset for _, head in spec.heads):
            network = transform_outputs(network, spec.arranged)
        return network if spec.ensemble_size == 1 else ensemble(network, spec.ensemble_size)

    return combine({name: build_one(name, spec) for name, spec in specs})


def _with_documented_names(network: "Network") -> "Network":
    """Call the parameters of a built-in network by their canonical names, as the documents do."""
    from ..core.network import Codec

    if network.codec is None:
        return network
    leaves = tuple(leaf.spelled("") for leaf in network.codec.leaves)
    return replace(network, codec=Codec(network.codec.treedef, leaves))


# Networks that are built with 64-bit numbers are others, so `x64` is a part of the key.
_built_once = functools.lru_cache(maxsize=64)(_build)
