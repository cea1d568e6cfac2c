"""Align two traced networks by their values and name the causes of a difference."""

from .bits import first_bit_difference
from .explain import explain, first_divergence
from .precision import precision_cause

__all__ = ["explain", "first_bit_difference", "first_divergence", "precision_cause"]
