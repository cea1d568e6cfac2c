"""Initializers of kernels, compiled."""

import functools
from collections.abc import Callable
from dataclasses import replace

import jax
from jax.nn.initializers import Initializer, lecun_normal, orthogonal

from ...core.network import Network, Variables

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


def redrawn(
    network: Network,
    is_drawn: Callable[[str], bool],
    draw: Callable[[str, jax.Array, jax.Array], jax.Array],
) -> Network:
    """Draw some parameters of a network alike in every library, by canonical name and layout.

    Args:
      network: one with a codec.
      is_drawn: whether the parameter of a name is drawn anew.
      draw: `draw(name, array, key)`, where `array` has the shape and the type.
    """
    codec = network.require_codec("network cannot be initialized")

    def init(key: jax.Array) -> Variables:
        own_key, new_key = jax.random.split(key)
        variables = network.init(own_key)
        named = codec.encode(variables.params)
        names = [name for name in sorted(named) if is_drawn(name)]
        keys = jax.random.split(new_key, len(names))
        drawn = {n: draw(n, named[n], k) for n, k in zip(names, keys, strict=True)}
        return Variables(params=codec.decode({**named, **drawn}), state=variables.state)

    return replace(network, init=init)


def with_lecun_normal(network: Network) -> Network:
    """Draw the kernels of a zoo's network as `NetworkSpec.lecun_normal` says."""

    def draw(name: str, like: jax.Array, key: jax.Array) -> jax.Array:
        del name
        return LECUN_NORMAL(key, like.shape, like.dtype)

    return redrawn(network, _is_kernel, draw)


def _is_kernel(name: str) -> bool:
    is_layer = name.startswith(("torso/", "head/")) and name.endswith("/kernel")
    return is_layer and "/sigma/" not in name  # the noise of noisy layers starts as its paper says
