"""Adapter for Keras 3 on JAX, through `keras.StatelessScope`."""

from .lifting import from_keras

__all__ = ["from_keras"]
