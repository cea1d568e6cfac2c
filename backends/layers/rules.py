"""Layouts of single parameters: how a library stores what the canonical form names.

A `Rule` takes the layer that owns an array and the array's shape, and returns a `Leaf` whose names
are relative to the layer. Conversions address axes from the end, so that leading axes, of an
ensemble or of seeds, are kept.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from ...core.network import Leaf
from .. import cells
from .formulas import Formula, Settings

Module: TypeAlias = Any  # a layer or a network of a library, whose attributes rules read by name
Rule: TypeAlias = Callable[[Module, tuple[int, ...]], Leaf]
Words: TypeAlias = tuple[str, ...]  # a library's own names on the path to a module or a parameter
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]  # by the names of `Layer.parameters`


class UnknownLayout(Exception):
    """The layer is listed, but not with this shape or configuration; its message says why."""


class TooManyAxes(UnknownLayout):
    """The array has more axes than the layer gives it, as if layers were stacked."""


class Normalized(NamedTuple):
    """A layer whose kernel a wrapper normalizes.

    Attributes:
      layer: the wrapped one.
      kernel: the library's name of its kernel.
      axis: of the kernel in the library's layout, whose slices have a norm each; None for one norm.
      place: of the layer in canonical names.
      scale: the path from the network to the scale of the norms; empty if there is none.
      spectral: whether the kernel is divided by its largest singular value instead.
    """

    layer: Module
    kernel: str
    axis: int | None
    place: Words
    scale: Words = ()
    spectral: bool = False


def _no_variants(shapes: Shapes) -> Iterable[Settings]:
    del shapes
    return ({},)


@dataclass(frozen=True)
class Layer:
    """One type of layer in one library.

    Attributes:
      kind: what it computes, as messages call it; arrays of different kinds are not paired.
      parameters: rules by the library's name of the parameter, relative to the layer.
      refused: why it is not translated; empty for a layer that is.
      formula: computes it from its settings, canonical arrays and inputs; None if none is known.
      variants: `variants(shapes)` lists the attributes that rules read and that files do not hold,
        as far as the shapes of a layer's arrays allow them.
      wraps: `wraps(place, module)` describes the layer that a wrapper normalizes; it raises
        `UnknownLayout` for other layers. None for a layer that wraps none.
    """

    kind: str = ""
    parameters: dict[str, Rule] = field(default_factory=dict)
    refused: str = ""
    formula: Formula | None = None
    variants: Callable[[Shapes], Iterable[Settings]] = _no_variants
    wraps: Callable[[Words, Module], Normalized] | None = None


def define(kind: str, names: str, parameters: dict[str, Rule], **more: Any) -> dict[str, Layer]:
    """List the classes of these names as layers of one kind with the same parameters.

    Args:
      kind, parameters: see `Layer`.
      names: of the classes, separated by spaces.
      more: other attributes of `Layer`.
    """
    return {name: Layer(kind, parameters, **more) for name in names.split()}


def compute(formulas: Mapping[str, Formula]) -> dict[str, Layer]:
    """List layers without arrays, by the names of their classes, with their formulas."""
    return {name: Layer(formula=formula) for name, formula in formulas.items()}


def refuse(names: str, reason: str) -> dict[str, Layer]:
    """List the classes of these names as layers that are not translated."""
    return {name: Layer(refused=reason) for name in names.split()}


def several_axes(shape: tuple[int, ...]) -> bool:
    """Check whether a shape has more than one axis longer than 1.

    >>> several_axes((1, 3, 1)), several_axes((2, 3))
    (False, True)
    """
    return sum(size != 1 for size in shape) > 1


def require_rank(shape: tuple[int, ...], rank: int) -> None:
    """Check the number of axes of an array.

    Raises:
      UnknownLayout: if it is another one.
    """
    if len(shape) != rank:
        # A scalar with axes is a scalar for each channel.
        kind = TooManyAxes if len(shape) > rank > 0 else UnknownLayout
        raise kind(
            f"it is stored with {len(shape)} axes instead of {rank}, as layers are that a "
            "transformation stacks"
        )


def stored(name: str, rank: int, *conversions: Callable[..., jax.Array], note: str = "") -> Rule:
    """Store an array of `rank` axes, in the canonical layout unless `conversions` are given.

    Args:
      name: its canonical name.
      rank: the number of axes.
      conversions: to the canonical layout, and back.
      note: see `Leaf`.
    """

    def rule(layer: Module, shape: tuple[int, ...]) -> Leaf:
        del layer
        require_rank(shape, rank)
        return Leaf.one(name, *conversions, note=note)

    return rule


def swapped(name: str) -> Rule:
    """Store a matrix as `[out, in]`, which is canonically `[in, out]`."""
    return stored(name, 2, swap, swap)


def vector(name: str) -> Rule:
    """Store a vector, with or without axes of size 1 around its own: `[n]`, `[n, 1, 1]`."""

    def rule(layer: Module, shape: tuple[int, ...]) -> Leaf:
        del layer
        if several_axes(shape):
            raise UnknownLayout("it has several axes, whose order libraries do not agree on")
        if len(shape) == 1:
            return Leaf.one(name)
        return Leaf.one(
            name,
            lambda array: array.reshape(*array.shape[: array.ndim - len(shape)], prod(shape)),
            lambda array: array.reshape(*array.shape[:-1], *shape),
        )

    return rule


BIAS = vector("bias")
SCALE = vector("scale")
PROJECTIONS = ("query", "key", "value")  # of attention


def norm(name: str) -> Rule:
    """Store the scale or bias of a normalization over the last axis, or over one axis alone."""

    def rule(layer: Module, shape: tuple[int, ...]) -> Leaf:
        for attribute in ("axis", "reduction_axes", "feature_axes", "param_axis"):
            if getattr(layer, attribute, -1) not in (-1, (-1,), [-1]):
                raise UnknownLayout("the layer normalizes or scales other axes than the last")
        return vector(name)(layer, shape)

    return rule


def window(
    name: str = "kernel", *, outputs_first: bool = False, channels_swapped: bool = False
) -> Rule:
    """Store the kernel of a convolution, canonically `[*window, in, out]`.

    Args:
      name: its canonical name.
      outputs_first: stored as `[out, in, *window]`.
      channels_swapped: stored as `[*window, out, in]`.
    """

    def rule(layer: Module, shape: tuple[int, ...]) -> Leaf:
        rank = num_spatial_axes(layer) + 2
        require_rank(shape, rank)
        if outputs_first:
            first, last = (-rank, 1 - rank), (-1, -2)
            return Leaf.one(
                name,
                lambda kernel: jnp.moveaxis(kernel, first, last),
                lambda kernel: jnp.moveaxis(kernel, last, first),
            )
        return Leaf.one(name, swap, swap) if channels_swapped else Leaf.one(name)

    return rule


def turned_window(layer: Module, shape: tuple[int, ...]) -> Leaf:
    """Store the kernel of a transposed convolution as that whose gradient it computes.

    It is `[*window, out, in]`, with the window reversed.
    """
    spatial = num_spatial_axes(layer)
    require_rank(shape, spatial + 2)
    reversed_axes = tuple(range(-spatial - 2, -2))

    def turn(kernel: jax.Array) -> jax.Array:
        return swap(jnp.flip(kernel, reversed_axes))

    return Leaf.one("kernel", turn, turn)


def num_spatial_axes(layer: Module) -> int:
    """Count the axes of the window of a convolution."""
    if hasattr(layer, "num_spatial_dims"):
        return layer.num_spatial_dims
    return 1 if isinstance(layer.kernel_size, int) else len(layer.kernel_size)


def heads(name: str, rank: int = 2, *, axis: int = -1, outputs_first: bool = False) -> Rule:
    """Store the axis `heads * size` of an attention's array, canonically `heads, size`.

    Args:
      name: its canonical name.
      rank: the number of axes.
      axis: -1 for `[in, heads * size]` and `[heads * size]`, -2 for `[heads * size, out]`.
      outputs_first: the matrix is stored transposed.
    """
    turn = swap if outputs_first else keep

    def rule(layer: Module, shape: tuple[int, ...]) -> Leaf:
        require_rank(shape, rank)

        def encode(array: jax.Array) -> jax.Array:
            array = turn(array)
            at = array.ndim + axis
            return array.reshape(*array.shape[:at], layer.num_heads, -1, *array.shape[at + 1 :])

        def decode(array: jax.Array) -> jax.Array:
            at = array.ndim + axis - 1
            return turn(array.reshape(*array.shape[:at], -1, *array.shape[at + 2 :]))

        return Leaf.one(name, encode, decode)

    return rule


def gates(part: str, names: Sequence[str], note: str = "", *, outputs_first: bool = False) -> Rule:
    """Store the arrays of a recurrent cell's gates in one array, along its last axis.

    Args:
      part: the kernels of `input` or `recurrent`, the `bias`es, or the `recurrent biases`.
      names: the gates in the order of the library.
      note: see `Leaf`.
      outputs_first: the kernels are stored as `[gates * size, in]`.
    """
    turn, axis = (swap, -2) if outputs_first else (keep, -1)

    def encode(array: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(map(turn, jnp.split(array, len(names), axis=axis)))

    def decode(*parts: jax.Array) -> jax.Array:
        return jnp.concatenate(list(map(turn, parts)), axis=axis)

    def rule(layer: Module, shape: tuple[int, ...]) -> Leaf:
        del layer
        require_rank(shape, 1 if part in ("bias", "recurrent biases") else 2)
        return Leaf(cells.names_of(part, names), encode, decode, note)

    return rule


def keep(array: jax.Array) -> jax.Array:
    """Return an array as it is."""
    return array


def swap(array: jax.Array) -> jax.Array:
    """Exchange the last two axes."""
    return jnp.swapaxes(array, -1, -2)
