"""Adapter for PyTorch, through torchax: modules as they are, computed by JAX."""

from typing import Any

from ...core.network import Network
from ...core.networks.architecture import NetworkSpec
from ..zoo.lifting import lift_zoo
from .importing import load_torchax
from .lifting import from_torch, lift

__all__ = ["from_torch", "zoo"]


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from PyTorch's own layers."""
    load_torchax()
    from ..zoo.torch import make

    def build(*module: Any, **options: Any) -> Network:
        return lift(*module, **options, trusted=True)[0]

    return lift_zoo(build, spec, name, make(spec))
