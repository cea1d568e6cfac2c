"""Adapter for Keras 3 on JAX, through `keras.StatelessScope`."""

from ...core.network import Network
from ...core.networks.architecture import NetworkSpec
from ..zoo.lifting import inputs_of, lift_zoo
from .importing import import_keras
from .lifting import from_keras

__all__ = ["from_keras", "zoo"]


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network from Keras's own layers."""
    import_keras()
    from ..zoo.keras import make

    module = make(spec), inputs_of(spec)
    return lift_zoo(from_keras, spec, name, *module)
