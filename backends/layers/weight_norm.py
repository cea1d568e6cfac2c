"""Weight normalization: a kernel is divided by its norms and multiplied by a scale.

Canonically a layer with it has the arrays that it has without it, its kernel before the division,
and a `scale`: `[out]` with a norm for each output, `[in]` with one for each input, `[]` with one
for the whole kernel. Salimans and Kingma 2016, https://arxiv.org/abs/1602.07868.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod

import jax
import jax.numpy as jnp

from ...core.network import Leaf
from .rules import Module, Rule, UnknownLayout

SPECTRAL = "spectral normalization"
MAX_RANK = 5  # of a kernel, that of a convolution in space
NORMS = {
    -1: "weight normalization of each output",
    -2: "weight normalization of each input",
    None: "weight normalization of the whole kernel",
}


def kernel_rule(rule: Rule, axis_of: Callable[[Module], int | None]) -> Rule:
    """Store the kernel of a layer with weight normalization, as it is stored without it.

    Args:
      rule: of the kernel without it.
      axis_of: returns the axis of the kernel in the library's layout, whose slices have a norm
        each, of the layer; None if there is one norm.
    """

    def normalized(layer: Module, shape: tuple[int, ...]) -> Leaf:
        leaf = rule(layer, shape)
        return replace(leaf, note=_note(rule, layer, axis_of(layer)))

    return normalized


def scale_rule(rule: Rule, axis_of: Callable[[Module], int | None]) -> Rule:
    """Store the scale of a layer with weight normalization, with axes of size 1 or without them.

    Args:
      rule, axis_of: as those of `kernel_rule`.
    """

    def normalized(layer: Module, shape: tuple[int, ...]) -> Leaf:
        note = _note(rule, layer, axis_of(layer))
        canonical = () if note == NORMS[None] else (prod(shape),)

        def encode(scale: jax.Array) -> jax.Array:
            return scale.reshape(*scale.shape[: scale.ndim - len(shape)], *canonical)

        def decode(scale: jax.Array) -> jax.Array:
            return scale.reshape(*scale.shape[: scale.ndim - len(canonical)], *shape)

        return Leaf.one("scale", encode, decode, note)

    return normalized


def with_norm(kind: str, norm: str = "weight normalization") -> str:
    """Name the kind of a layer whose kernel is normalized."""
    return f"{kind} with {norm}"


def spectral_rule(rule: Rule) -> Rule:
    """Store the kernel of a layer with spectral normalization, as it is stored without it.

    Args:
      rule: of the kernel without it.
    """
    return lambda layer, shape: replace(rule(layer, shape), note=SPECTRAL)


def _note(rule: Rule, layer: Module, axis: int | None) -> str:
    """Say what of the canonical kernel has a norm each."""
    return NORMS[None if axis is None else _canonical_axis(rule, layer, axis)]


def _canonical_axis(rule: Rule, layer: Module, axis: int) -> int:
    """Find the canonical place of an axis of a kernel.

    Raises:
      UnknownLayout: if it is none of a single output or input.
    """
    for rank in range(1, MAX_RANK + 1):
        shape = [1] * rank
        if not -rank <= axis < rank:
            continue
        shape[axis] = 2
        try:
            leaf = rule(layer, tuple(shape))
            (marked,) = jax.eval_shape(leaf.encode, jax.ShapeDtypeStruct(shape, jnp.float32))
        except (UnknownLayout, TypeError, ValueError):
            continue
        axes = [at - marked.ndim for at, size in enumerate(marked.shape) if size == 2]
        if len(axes) == 1 and axes[0] in NORMS:
            return axes[0]
    raise UnknownLayout("its norms are neither those of outputs nor those of inputs")
