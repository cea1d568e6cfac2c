"""Adapter for plain JAX: functions `init` and `apply`, and built-in networks without a library."""

from .lifting import from_functions

__all__ = ["from_functions"]
