"""Adapter for PyTorch, through torchax: modules as they are, computed by JAX."""

from .lifting import from_torch

__all__ = ["from_torch"]
