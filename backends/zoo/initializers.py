"""Initializers of kernels, compiled."""

import functools

import jax
from jax.nn.initializers import Initializer, lecun_normal, orthogonal

LECUN_NORMAL = lecun_normal()


@functools.cache  # traced once for each shape; Linen asks for its shape at every application
def kernel_initializer(
    scale: float | None, default: Initializer = LECUN_NORMAL, *, column_axis: int = -1
) -> Initializer:
    """Return the orthogonal initializer at `scale`, or the library's own if `scale` is None.

    Args:
      scale: the standard deviation's factor.
      default: the library's own initializer.
      column_axis: the kernel's axis of outputs.
    """
    chosen = default if scale is None else orthogonal(scale, column_axis=column_axis)
    return jax.jit(chosen, static_argnums=(1, 2))
