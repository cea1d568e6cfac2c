"""Adapter for Equinox, through `eqx.partition`, `eqx.combine` and `eqx.filter_value_and_grad`."""

from .lifting import from_equinox

__all__ = ["from_equinox"]
