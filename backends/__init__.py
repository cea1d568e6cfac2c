"""One adapter per neural-network library, imported when it is used."""

import importlib
from collections.abc import Mapping
from dataclasses import replace

from ..core.errors import unknown
from ..core.network import Network
from ..core.networks.architecture import NetworkSpec, Table
from ..core.networks.combinators import combine, ensemble
from .canonical import with_arithmetic

BACKENDS = ("haiku", "linen", "nnx", "equinox", "table")


def build(
    backend: str, specs: Mapping[str, NetworkSpec | Network], *, arithmetic: str = "native"
) -> Network:
    """Build an algorithm's networks from a library's zoo.

    Args:
      backend: `haiku`, `linen`, `nnx`, `equinox` or `table`.
      specs: what the algorithm asked for, by name; a network that is the same in every library is
        taken as it is.
      arithmetic: see `triglot.backends.canonical.with_arithmetic`.

    Returns:
      The combination of the networks, `{name: {head: array}}`.

    Raises:
      TriglotError: if the backend or the arithmetic is unknown, or the library is not installed.
    """
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    adapter = importlib.import_module(f".{backend}", __name__)

    def made(name: str, spec: NetworkSpec | Network) -> Network:
        if isinstance(spec, Network):
            return spec
        spec.check()
        network = with_arithmetic(adapter.zoo(spec, name), arithmetic)
        if isinstance(spec.torso, Table):
            network = replace(network, random_start=False)
        return network if spec.ensemble_size == 1 else ensemble(network, spec.ensemble_size)

    return combine({name: made(name, spec) for name, spec in specs.items()})
