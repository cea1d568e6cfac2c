"""Align two traced programs by their values and name the causes of a difference."""

from .bits import first_bit_difference, first_large_difference
from .explain import explain, first_divergence
from .precision import precision_cause
from .recorder import Program, record
from .recording import record_both

__all__ = [
    "Program",
    "explain",
    "first_bit_difference",
    "first_divergence",
    "first_large_difference",
    "precision_cause",
    "record",
    "record_both",
]
