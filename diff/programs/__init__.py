"""Align two traced networks by their values and name the causes of a difference."""

from .explain import explain

__all__ = ["explain"]
