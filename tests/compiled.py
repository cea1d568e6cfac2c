"""Networks whose functions are compiled, which takes a test less time than eager operations."""

from dataclasses import replace

import jax

from triglot.core.network import Network


def compiled(network: Network) -> Network:
    """Return a network whose `init` and `apply` are one program each."""
    return replace(
        network,
        init=jax.jit(network.init),
        apply=jax.jit(network.apply, static_argnames="train"),
    )
