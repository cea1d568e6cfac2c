"""Which output of one network corresponds to which of the other."""

import itertools
from typing import NamedTuple

import jax

from ..core.errors import TriglotError
from ..core.types import PyTree


class Output(NamedTuple):
    """An output of both networks.

    Attributes:
      name: the path in the first network's outputs.
      indices: the index of the output's leaf in each network.
    """

    name: str
    indices: tuple[int, int]


def match_outputs(
    first_outputs: PyTree, second_outputs: PyTree, names: tuple[str, str]
) -> list[Output]:
    """Match the output leaves of two networks: by path, by last name, or by order.

    Args:
      one, other: the networks' outputs, as pytrees of shapes.
      names: the names of both networks, for the message.

    Raises:
      TriglotError: if the shapes do not agree.
    """
    sides = [_leaves(tree) for tree in (first_outputs, second_outputs)]
    order = _order(*([path for path, _ in side] for side in sides))
    shapes = [[tuple(leaf.shape) for _, leaf in side] for side in sides]
    if order is None or [shapes[1][i] for i in order] != shapes[0]:
        described = [", ".join(_describe(path, leaf) for path, leaf in side) for side in sides]
        raise TriglotError(
            f"{names[0]!r} and {names[1]!r} have nothing in common to compare: the first returns "
            f"{described[0] or 'no array'}, the second {described[1] or 'no array'}."
            f"{_permutation_hint(shapes[0], shapes[1], names)}"
        )
    return [
        Output(path or "output", (index, order[index])) for index, (path, _) in enumerate(sides[0])
    ]


def layout_hint(axes: tuple[int, ...], names: tuple[str, str]) -> str:
    """Write in which order the second network has the axes of the first one's outputs.

    Args:
      axes: the position of each axis of the second output, after the batch, in the first output.
      names: the names of both networks.
    """
    layouts: dict[tuple[int, ...], tuple[str, str]] = {
        (3, 1, 2): ("NHWC", "NCHW"),
        (2, 3, 1): ("NCHW", "NHWC"),
    }
    hint = f"the outputs of {names[1]} are those of {names[0]}, transposed by {(0, *axes)}"
    if axes not in layouts:
        return hint
    first_layout, second_layout = layouts[axes]
    return f"{hint}: {names[0]} is {first_layout}, {names[1]} is {second_layout}"


def _permutation_hint(
    first_shapes: list[tuple[int, ...]],
    second_shapes: list[tuple[int, ...]],
    names: tuple[str, str],
) -> str:
    """Write a hint if the first shapes that differ are permutations of each other."""
    for first, second in zip(first_shapes, second_shapes, strict=False):
        if first == second or len(first) != len(second) or len(first) < 3:
            continue
        for axes in itertools.permutations(range(1, len(first))):
            if (first[0], *(first[axis] for axis in axes)) == second:
                hint = layout_hint(axes, names)
                return f" By their shapes, {hint}; transpose one of them."
    return ""


def _leaves(tree: PyTree) -> list[tuple[str, jax.ShapeDtypeStruct]]:
    return [
        (jax.tree_util.keystr(path, simple=True, separator="/"), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def _order(first_paths: list[str], second_paths: list[str]) -> list[int] | None:
    """Return the index in `second_paths` of each of `first_paths`; None if their numbers differ."""
    if len(first_paths) != len(second_paths):
        return None
    for shorten in (str, lambda path: path.rpartition("/")[2]):
        short = [[shorten(path) for path in side] for side in (first_paths, second_paths)]
        if len(set(short[0])) == len(first_paths) and set(short[0]) == set(short[1]):
            return [short[1].index(path) for path in short[0]]
    return list(range(len(first_paths)))


def _describe(path: str, leaf: jax.ShapeDtypeStruct) -> str:
    sizes = ", ".join(["B", *map(str, leaf.shape[1:])]) if leaf.shape else ""
    return f"{path} [{sizes}]".lstrip()
