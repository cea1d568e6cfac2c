"""Align two traced programs by their values and name the causes of a difference."""

from .arithmetic import precision_cause
from .bits import first_bit_difference, first_large_difference, outputs_agree
from .conditioning import conditioning
from .explain import Explanation, explain, explain_tapes
from .recorder import Program, record
from .recording import record_both

__all__ = [
    "Explanation",
    "Program",
    "conditioning",
    "explain",
    "explain_tapes",
    "first_bit_difference",
    "first_large_difference",
    "outputs_agree",
    "precision_cause",
    "record",
    "record_both",
]
