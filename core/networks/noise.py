"""What a network draws in each call, and reads as an input: the same numbers in every library.

A noisy layer (Fortunato et al. 2018, https://arxiv.org/abs/1706.10295, equations 9 to 11, with
factorised Gaussian noise) of inputs x is

  y = (mu_w + sigma_w * f(e_in) f(e_out)^T)^T x + mu_b + sigma_b * f(e_out),
  f(e) = sign(e) sqrt(|e|),

which is mu(x) + f(e_out) * sigma(f(e_in) * x) of two plain dense layers `mu` and `sigma`, the
library's own. Without noise only `mu` remains.

Dropout (Srivastava et al. 2014, https://jmlr.org/papers/v15/srivastava14a.html) multiplies the
outputs of a dense layer by a mask for each example, whose entries are 0 with the probability p and
1 / (1 - p) otherwise.
"""

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from ..types import ArrayT, Key

if TYPE_CHECKING:
    from .architecture import NetworkSpec


def draw_noise(sizes: Mapping[str, int], key: Key) -> dict[str, jax.Array]:
    """Draw f(e) of all layers, float32 `[size]` each: of a layer's inputs, then of its outputs."""
    drawn = jax.random.normal(key, (sum(sizes.values()),))
    drawn = jnp.sign(drawn) * jnp.sqrt(jnp.abs(drawn))
    noise, start = {}, 0
    for name, size in sorted(sizes.items()):
        noise[name], start = drawn[start : start + size], start + size
    return noise


def draw_masks(
    sizes: Mapping[str, int], dropout: float, batch: int, key: Key
) -> dict[str, jax.Array]:
    """Draw the masks of all layers with dropout, float32 `[B, size]` each."""
    kept = jax.random.bernoulli(key, 1.0 - dropout, (batch, sum(sizes.values())))
    scaled = jnp.where(kept, jnp.float32(1.0 / (1.0 - dropout)), jnp.float32(0.0))
    ends = list(itertools.accumulate(sizes[name] for name in sorted(sizes)))
    return dict(zip(sorted(sizes), jnp.split(scaled, ends[:-1], axis=1), strict=True))


def dropped(
    features: ArrayT, spec: "NetworkSpec", drawn: Mapping[str, ArrayT], name: str
) -> ArrayT:
    """Apply a layer's dropout to its outputs, arrays of any library."""
    return features * drawn[name] if spec.dropout else features


def of_layer(noise: Mapping[str, jax.Array], name: str, num_in: int) -> tuple[jax.Array, jax.Array]:
    """Split a layer's noise `[..., size]` into that of its inputs and that of its outputs."""
    return noise[name][..., :num_in], noise[name][..., num_in:]


def sigma_start(noise: float, num_in: int) -> float:
    """Compute sigma at the start, noise / sqrt(number of inputs) (section 3.2)."""
    return noise / num_in**0.5
