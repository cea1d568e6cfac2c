"""The noise of noisy dense layers, an input of the network: the same numbers in every library.

A noisy layer (Fortunato et al. 2018, https://arxiv.org/abs/1706.10295, equations 9 to 11, with
factorised Gaussian noise) of inputs x is

  y = (mu_w + sigma_w * f(e_in) f(e_out)^T)^T x + mu_b + sigma_b * f(e_out),
  f(e) = sign(e) sqrt(|e|),

which is mu(x) + f(e_out) * sigma(f(e_in) * x) of two plain dense layers `mu` and `sigma`, the
library's own. Without noise only `mu` remains.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from ..types import Key


def draw_noise(sizes: Mapping[str, int], key: Key) -> dict[str, jax.Array]:
    """Draw f(e) of all layers, float32 `[size]` each: of a layer's inputs, then of its outputs."""
    drawn = jax.random.normal(key, (sum(sizes.values()),))
    drawn = jnp.sign(drawn) * jnp.sqrt(jnp.abs(drawn))
    noise, start = {}, 0
    for name, size in sorted(sizes.items()):
        noise[name], start = drawn[start : start + size], start + size
    return noise


def of_layer(noise: Mapping[str, jax.Array], name: str, num_in: int) -> tuple[jax.Array, jax.Array]:
    """Split a layer's noise `[..., size]` into that of its inputs and that of its outputs."""
    return noise[name][..., :num_in], noise[name][..., num_in:]


def sigma_start(noise: float, num_in: int) -> float:
    """Compute sigma at the start, noise / sqrt(number of inputs) (section 3.2)."""
    return noise / num_in**0.5
