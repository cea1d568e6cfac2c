"""Keras 3 on JAX: `adapter` has what `backends.libraries` describes."""
