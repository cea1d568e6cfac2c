"""How plain JAX's parameters are described: by name, since functions have no classes."""

from dataclasses import replace

import jax.numpy as jnp

from ...core.errors import TriglotError
from ...core.network import Leaf
from ...core.networks.architecture import NetworkSpec
from ..cells import LSTM, RESET_AFTER
from ..layers.kinds import BATCH_NORM, CONVOLUTION, DENSE, LAYER_NORM
from ..layers.storage import Storage
from ..naming import normalize_separators

STORAGE = Storage(
    leaf_names={"w": "kernel", "W": "kernel", "weight": "kernel", "weights": "kernel", "b": "bias"}
)


def leaf_of(spec: NetworkSpec, words: tuple[str, ...], shape: tuple[int, ...]) -> Leaf:
    """Describe a parameter, stored in the canonical layout, by its name in a dictionary."""
    del shape
    (name,) = words
    place, _, rest = name.partition("/")
    if spec.cell is not None and place == "cell":
        is_gru = spec.cell.kind == "gru"
        kind = RESET_AFTER if is_gru else LSTM
        return replace(Leaf.one(name, note=RESET_AFTER if is_gru else ""), layer=kind)
    if place == "norm":
        is_batch = spec.layers.normalization == "batch"
        kind = BATCH_NORM if is_batch else LAYER_NORM
    elif place == "torso" and int(rest.partition("/")[0]) < spec.num_convolutions:
        kind = CONVOLUTION
    else:
        alone = {n for n, head in spec.heads if head.state_independent is not None}
        kind = "" if name in {normalize_separators(f"head_{n}/bias") for n in alone} else DENSE
    return replace(Leaf.one(name), layer=kind)


def kind_of_kernel(axes: list[str]) -> str:
    """Tell a dense layer from a convolution by the axes of its kernel."""
    return DENSE if len(axes) == 2 else CONVOLUTION


def with_layout(name: str, axes: list[str], shape: tuple[int, ...]) -> Leaf:
    """Describe a kernel with these axes, canonically those of the window, `in` and `out`."""
    if len(set(axes)) != len(shape) or len(axes) != len(shape) or not {"in", "out"} <= set(axes):
        raise TriglotError(
            f"the layout {' '.join(axes)!r} of {name!r} does not fit its shape {shape}: name each "
            "axis once, among them `in` and `out`, such as 'in out' or 'height width in out'."
        )
    canonical = [*(axis for axis in axes if axis not in ("in", "out")), "in", "out"]
    stored = [axes.index(axis) - len(axes) for axis in canonical]
    last = list(range(-len(axes), 0))
    leaf = Leaf.one(
        name,
        lambda array: jnp.moveaxis(array, stored, last),
        lambda array: jnp.moveaxis(array, last, stored),
    )
    return replace(leaf, layer=kind_of_kernel(axes))
