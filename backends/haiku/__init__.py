"""Adapter for Haiku, through `hk.transform_with_state`."""

from .lifting import from_haiku

__all__ = ["from_haiku"]
