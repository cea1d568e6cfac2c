"""Layers that are stacked along leading axes, as by `nn.scan`, `nnx.vmap` or `eqx.filter_vmap`.

Each slice of such an array is one canonical array, which has the name and the layout that it would
have in a separate layer: `[3, in, out]` at `layers/dense/kernel` is `layers/0/dense/kernel` to
`layers/2/dense/kernel`.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core as jex

from ...core.network import Codec, Leaf, Variables
from ...core.types import abstract_key
from ..libraries import Library
from ..naming import normalize_separators
from .describe import Owners, describe, num_extra_axes
from .rules import Words

CALLS = ("jit", "pjit", "closed_call")
OTHER_AXIS = "it is stacked along another axis than the first"
MIN_KERNEL_AXES = 3  # of a stacked kernel, [length, in, out]


class Array(NamedTuple):
    """A parameter array and the modules that own it.

    Attributes:
      words: the library's names on the path to it.
      owners: the modules that own it, or in whose call its own module is called, outermost first.
      shape: its shape.
    """

    words: Words
    owners: Owners
    shape: tuple[int, ...]


class Stack(NamedTuple):
    """Layers that are stacked.

    Attributes:
      place: the path to the module or container whose arrays all have the leading axes.
      lengths: sizes of the leading axes; several if stacks are stacked.
    """

    place: Words
    lengths: tuple[int, ...]


def describe_all(library: Library, arrays: Sequence[Array]) -> list[Leaf]:
    """Describe the parameters of a network by the list of layers, slices of stacks one by one.

    A layer is stacked if its arrays have more axes than the list says. So is what is stored beside
    it, in the outermost module whose arrays all have these leading axes.
    """
    leaves = [describe(library, *array) for array in arrays]
    extra = _extra_axes(library, arrays, leaves)
    stacks: dict[Words, Stack] = {}
    for array in arrays:
        place, count = _layer_of(array, extra)
        if not count or any(_is_in(array.words, stack.place) for stack in stacks.values()):
            continue
        lengths = array.shape[:count]
        modules = [words for words, _ in array.owners if words and _is_in(array.words, words)]
        for candidate in (*modules, place):
            inside = [i for i, array in enumerate(arrays) if _is_in(array.words, candidate)]
            if all(_is_slice(arrays[i], leaves[i], extra, lengths) for i in inside):
                stacks[candidate] = Stack(candidate, lengths)
                break
    return [
        _in_stack(library, array, leaf, tuple(stacks.values()))
        for array, leaf in zip(arrays, leaves, strict=True)
    ]


def without_moved_axes(codec: Codec, init: Callable[[jax.Array], Variables]) -> Codec:
    """Describe stacks along another axis than the first as arrays of unknown layout.

    The shapes of a square layer do not tell them apart, such as those of `nn.vmap` with
    `variable_axes={"params": 1}`; `init` does, since it moves the axis last of all.

    Args:
      codec: of the network's parameters.
      init: initializes the network.
    """
    if all(leaf.whole is None for leaf in codec.leaves):
        return codec
    jaxpr = jax.make_jaxpr(lambda key: init(key).params)(abstract_key()).jaxpr
    # An initial bias of zeros has no axis that is moved, but is stored as the kernel beside it.
    moved = {
        _stack_place(leaf)
        for leaf, variable in zip(codec.leaves, jaxpr.outvars, strict=True)
        if leaf.whole is not None and _moves_first_axis(jaxpr, variable)
    }
    leaves = tuple(
        replace(leaf.whole, unknown=OTHER_AXIS, layer=OTHER_AXIS)
        if leaf.whole is not None and _stack_place(leaf) in moved
        else leaf
        for leaf in codec.leaves
    )
    return replace(codec, leaves=leaves)


def _stack_place(leaf: Leaf) -> Words:
    """Return the canonical place of the stack that an array belongs to; empty if it is none."""
    if leaf.whole is None:
        return ()
    whole, last = (tuple(name.split("/")) for name in (leaf.whole.names[-1], leaf.names[-1]))
    count = len(last) - len(whole)  # of the indices that follow the place
    return next(
        (
            whole[:at]
            for at in range(len(whole))
            if last == (*whole[:at], *last[at : at + count], *whole[at:])
        ),
        (),
    )


def _moves_first_axis(jaxpr: jex.Jaxpr, variable: jex.Var | jex.Literal) -> bool:
    """Return whether the last step that computes a value puts its first axis elsewhere."""
    for equation in jaxpr.eqns:
        if variable in equation.outvars:
            if equation.primitive.name == "transpose":
                return equation.params["permutation"][0] != 0
            inner = equation.params.get("jaxpr")
            if equation.primitive.name in CALLS and inner is not None:
                position = equation.outvars.index(variable)
                return _moves_first_axis(inner.jaxpr, inner.jaxpr.outvars[position])
    return False


def find_scanned(
    words: Sequence[Words], shapes: Sequence[tuple[int, ...]], lengths: Sequence[int]
) -> list[Stack | None]:
    """Find the stack of each array of a program that scans over some of its parameters.

    Arrays that are scanned without a kernel, such as positions that are scanned over time with the
    inputs, are not stacks of layers.

    Args:
      words: path of each array.
      shapes: shape of each array.
      lengths: length of the scan that reads an array's rows, 0 if none does; those of other inputs
        may follow.
    """
    lengths = lengths[: len(words)]
    kernels = {n for n, shape in zip(lengths, shapes, strict=True) if len(shape) >= MIN_KERNEL_AXES}
    stacks: list[Stack | None] = []
    for path, length in zip(words, lengths, strict=True):
        if not length or length not in kernels:
            stacks.append(None)
            continue
        places = [path[:depth] for depth in range(len(path) + 1)]
        place = next(
            place
            for place in places
            if all(n == length for n, w in zip(lengths, words, strict=True) if _is_in(w, place))
        )
        stacks.append(Stack(place, (length,)))
    return stacks


def stacked(leaf: Leaf, shape: tuple[int, ...], stack: Stack) -> Leaf:
    """Describe an array that holds several layers' arrays along its leading axes.

    Args:
      leaf: description of one slice.
      shape: shape of the whole array.
      stack: the stack that holds it.
    """
    rank, depth = len(shape), len(stack.lengths)
    place = normalize_separators("/".join(stack.place))
    indices = ["/".join(map(str, index)) for index in itertools.product(*map(range, stack.lengths))]

    # Axes are addressed from the end: those of an ensemble or of seeds come before them.
    def encode(array: jax.Array) -> tuple[jax.Array, ...]:
        before = array.shape[: array.ndim - rank]
        slices = array.reshape(*before, len(indices), *array.shape[array.ndim - rank + depth :])
        parts = (slices[(slice(None),) * len(before) + (i,)] for i in range(len(indices)))
        return tuple(part for array in parts for part in leaf.encode(array))

    def decode(*parts: jax.Array) -> jax.Array:
        size = len(leaf.names)
        slices = [leaf.decode(*parts[i : i + size]) for i in range(0, len(parts), size)]
        num_before = slices[0].ndim - (rank - depth)
        array = jnp.stack(slices, num_before)
        shape = array.shape
        return array.reshape(*shape[:num_before], *stack.lengths, *shape[num_before + 1 :])

    names = tuple(_indexed(name, place, index) for index in indices for name in leaf.names)
    whole = replace(leaf, layer="", note="")
    return replace(leaf, names=names, encode=encode, decode=decode, whole=whole)


def _indexed(name: str, place: str, index: str) -> str:
    """Insert an index after the place of a stack.

    >>> _indexed("layers/dense/kernel", "layers", "2")
    'layers/2/dense/kernel'
    """
    inside = name.removeprefix(place).strip("/") if place else name
    return "/".join(filter(None, (place, index, inside)))


def _extra_axes(
    library: Library, arrays: Sequence[Array], leaves: Sequence[Leaf]
) -> Mapping[Words, int]:
    """Count the axes that the arrays of each listed layer have more than the list says."""
    extra: dict[Words, int] = {}
    for array, leaf in zip(arrays, leaves, strict=True):
        if array.owners and leaf.unknown:
            place = array.owners[-1][0]
            count = num_extra_axes(library, *array)
            extra[place] = max(count, extra.get(place, 0))
    return extra


def _layer_of(array: Array, extra: Mapping[Words, int]) -> tuple[Words, int]:
    """Return the place of an array's layer, and the number of its additional axes."""
    place = array.owners[-1][0] if array.owners else ()
    return place, extra.get(place, 0)


def _is_slice(
    array: Array, leaf: Leaf, extra: Mapping[Words, int], lengths: tuple[int, ...]
) -> bool:
    """Return whether an array's leading axes may be those of a stack."""
    if array.shape[: len(lengths)] != lengths:
        return False
    is_alone = all(length == 1 for length in lengths) and len(array.shape) > len(lengths)
    _, count = _layer_of(array, extra)
    return count >= len(lengths) or bool(leaf.unknown) or not leaf.layer or is_alone


def _in_stack(library: Library, array: Array, leaf: Leaf, stacks: Sequence[Stack]) -> Leaf:
    stack = next((candidate for candidate in stacks if _is_in(array.words, candidate.place)), None)
    if stack is None:
        return leaf
    inner = describe(library, array.words, array.owners, array.shape[len(stack.lengths) :])
    return stacked(inner, array.shape, stack)


def _is_in(words: Words, place: Words) -> bool:
    return words[: len(place)] == place
