"""Adapter for Flax NNX, through `nnx.split` and `nnx.merge`."""

from .lifting import from_nnx

__all__ = ["from_nnx"]
