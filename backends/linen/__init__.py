"""Adapter for Flax Linen, through `init` and `apply` with mutable collections."""

from .lifting import from_linen

__all__ = ["from_linen"]
