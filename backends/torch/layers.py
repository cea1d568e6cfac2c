"""PyTorch's layers: how their arrays are stored, and what they compute."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ...core.network import Leaf
from .. import cells
from ..layers import kinds
from ..layers.rules import (
    BIAS,
    PROJECTIONS,
    SCALE,
    Layer,
    Module,
    Rule,
    Shapes,
    UnknownLayout,
    compute,
    define,
    gates,
    heads,
    keep,
    norm,
    num_spatial_axes,
    refuse,
    require_rank,
    stored,
    swap,
    swapped,
    window,
)
from ..layers.storage import Storage
from ..layers.weight_norm import SPECTRAL, kernel_rule, scale_rule, spectral_rule, with_norm
from . import formulas

NO_CELL = "it is what PyTorch's own cells derive from"
MAX_STACKED = 8  # layers of PyTorch's LSTM, GRU or RNN
LAZY = "its shape is known after its first call only, which makes it the plain layer"
OWN_ARRAYS = "only their author knows the layout of its arrays"
# The scale and the kernel of weight normalization, as a parametrization and as a hook.
WEIGHT_NORMS = (
    ("parametrizations/weight/original0", "parametrizations/weight/original1"),
    ("weight_g", "weight_v"),
)

# The kernel of spectral normalization, as a parametrization and as a hook.
SPECTRAL_NORMS = ("parametrizations/weight/original", "weight_orig")


def _layers() -> dict[str, Layer]:
    attention = {
        "in_proj_weight": projections("kernel"),
        "in_proj_bias": projections("bias"),
        "out_proj/weight": heads("out/kernel", axis=-2, outputs_first=True),
        "out_proj/bias": stored("out/bias", 1),
    }
    for part, letter in zip(PROJECTIONS, "qkv", strict=True):
        attention[f"{letter}_proj_weight"] = heads(f"{part}/kernel", outputs_first=True)

    def cell(names: Sequence[str], note: str = "") -> dict[str, Rule]:
        return {
            "weight_ih": gates("input", names, note, outputs_first=True),
            "weight_hh": gates("recurrent", names, note, outputs_first=True),
            "bias_ih": gates("bias", names, note),
            "bias_hh": gates("recurrent biases", names, note),
        }

    lstm, gru = cell(cells.LSTM_GATES), cell(cells.GRU_GATES, cells.RESET_AFTER)
    # Of the built-in network's subclass, whose cells have one bias; PyTorch's own have two.
    own_gru = gru | {"bias_n": stored(cells.INNER_BIAS, 1, note=cells.RESET_AFTER)}
    simple = {
        "weight_ih": swapped("input/kernel"),
        "weight_hh": swapped("recurrent/kernel"),
        "bias_ih": stored("bias", 1),
        "bias_hh": stored("recurrent/bias", 1),
    }

    def over_time(of_cell: dict[str, Rule]) -> dict[str, Rule]:
        """List the parameters of a stack of cells, in one or both directions."""
        places = [f"l{k}{way}" for k in range(MAX_STACKED) for way in ("", "_reverse")]
        return {
            f"{name}_{place}": inside(place, rule)
            for place in places
            for name, rule in of_cell.items()
        }

    affine = {"weight": SCALE, "bias": BIAS}
    normed = {"weight": norm("scale"), "bias": norm("bias")}
    dense = {"bias": stored("bias", 1), **kernel(kinds.DENSE, swapped("kernel"))}
    convolution = {"bias": BIAS, **kernel(kinds.CONVOLUTION, window(outputs_first=True))}
    transposed = {"bias": BIAS, **kernel(kinds.TRANSPOSED, transposed_window)}
    dimensions = ("1d", "2d", "3d")
    lazy = ["LazyLinear"] + [
        f"Lazy{name}{size}"
        for name in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm")
        for size in dimensions
    ]
    return {
        **compute(formulas.FUNCTIONS),
        **define(kinds.DENSE, "Linear", dense, formula=formulas.linear),
        **define(
            kinds.EMBEDDING,
            "Embedding",
            {"weight": stored("embedding", 2)},
            formula=formulas.embedding,
        ),
        **define(
            kinds.CONVOLUTION, "Conv1d Conv2d Conv3d", convolution, formula=formulas.convolution
        ),
        **define(
            kinds.TRANSPOSED,
            "ConvTranspose1d ConvTranspose2d ConvTranspose3d",
            transposed,
            formula=formulas.transposed_convolution,
            variants=possible_groups,
        ),
        **define(
            kinds.BATCH_NORM,
            "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm",
            affine,
            formula=formulas.batch_norm,
        ),
        **define(kinds.GROUP_NORM, "GroupNorm", affine, formula=formulas.group_norm),
        **define(kinds.GROUP_NORM, "InstanceNorm1d InstanceNorm2d InstanceNorm3d", affine),
        **define(kinds.LAYER_NORM, "LayerNorm", normed, formula=formulas.layer_norm),
        **define(kinds.RMS_NORM, "RMSNorm", normed, formula=formulas.rms_norm),
        **define(kinds.ATTENTION, "MultiheadAttention", attention, formula=formulas.attention),
        **define(kinds.PRELU, "PReLU", {"weight": slope}),
        **define(cells.LSTM, "LSTMCell", lstm),
        **define(cells.RESET_AFTER, "GRUCell", own_gru),
        **define(cells.SIMPLE_CELL, "RNNCell", simple),
        **define(cells.LSTM, "LSTM", over_time(lstm)),
        **define(cells.RESET_AFTER, "GRU", over_time(gru)),
        **define(cells.SIMPLE_CELL, "RNN", over_time(simple)),
        **refuse("RNNBase RNNCellBase", NO_CELL),
        **refuse("Bilinear EmbeddingBag", kinds.ONLY_HERE),
        **refuse("ParameterList ParameterDict", OWN_ARRAYS),
        **refuse(" ".join(lazy), LAZY),
    }


def slope(layer: Module, shape: tuple[int, ...]) -> Leaf:
    """Store the slope of PyTorch's PReLU, `[1]`, which is canonically a number."""
    del layer
    if shape != (1,):
        raise UnknownLayout("it has a slope for each channel")
    return Leaf.one(
        "negative_slope",
        lambda slope: slope.reshape(slope.shape[:-1]),
        lambda slope: slope.reshape(*slope.shape, 1),
    )


def kernel(kind: str, rule: Rule) -> dict[str, Rule]:
    """List the names of a layer's kernel, which weight normalization stores as two arrays.

    Spectral normalization stores it under another name.

    Args:
      kind: of the layer.
      rule: of the kernel without weight normalization.
    """
    rules = {"weight": rule}
    for name in SPECTRAL_NORMS:

        def checked(layer: Module, shape: tuple[int, ...], name: str = name) -> Leaf:
            _check_spectral(layer, name)
            return spectral_rule(rule)(layer, shape)

        rules[name] = _of_kind(with_norm(kind, SPECTRAL), checked)
    for scale, direction in WEIGHT_NORMS:

        def axis_of(layer: Module, scale: str = scale) -> int | None:
            return _norm_axis(layer, scale)

        rules[scale] = _of_kind(with_norm(kind), scale_rule(rule, axis_of))
        rules[direction] = _of_kind(with_norm(kind), kernel_rule(rule, axis_of))
    return rules


def _check_spectral(layer: Module, name: str) -> None:
    """Check that a kernel is stored for spectral normalization.

    Raises:
      UnknownLayout: if something else computes the weight of it, such as pruning.
    """
    if name == SPECTRAL_NORMS[0] and hasattr(layer, "parametrizations"):
        steps = [type(step).__name__ for step in layer.parametrizations["weight"]]
        if steps != ["_SpectralNorm"]:
            raise UnknownLayout(f"its weight is computed by {', '.join(steps)}")
    elif not has_spectral_hook(layer):
        raise UnknownLayout("what computes its weight is not known")


def has_spectral_hook(layer: Module) -> bool:
    """Return whether `torch.nn.utils.spectral_norm` was applied to a layer's weight."""
    hooks = getattr(layer, "_forward_pre_hooks", {}).values()
    return any(type(hook).__name__ == "SpectralNorm" and hook.name == "weight" for hook in hooks)


def _of_kind(kind: str, rule: Rule) -> Rule:
    return lambda layer, shape: replace(rule(layer, shape), layer=kind)


def _norm_axis(layer: Module, scale: str) -> int | None:
    """Read the axis whose slices have a norm each off the shape of the scale.

    It has the axes of the kernel, all others of size 1, and none if there is one norm. Where all
    are of size 1, a norm of the first axis is that of any.

    Raises:
      UnknownLayout: if a module computes its weight in another way.
    """
    if hasattr(layer, "parametrizations"):
        steps = [type(step).__name__ for step in layer.parametrizations["weight"]]
        if steps != ["_WeightNorm"]:
            raise UnknownLayout(f"its weight is computed by {', '.join(steps)}")
    # A file's or a recording's layer has `shapes` in place of arrays.
    shape = layer.shapes[scale] if hasattr(layer, "shapes") else _held(layer, scale).shape
    if not shape:
        return None
    return next((axis for axis, size in enumerate(shape) if size != 1), 0)


def _held(layer: Module, name: str) -> Any:
    for word in name.split("/"):
        layer = getattr(layer, word)
    return layer


def transposed_window(layer: Module, shape: tuple[int, ...]) -> Leaf:
    """Store the kernel of PyTorch's transposed convolution: `[in, out / groups, *window]`.

    The window is reversed. The inputs of a group are beside each other, and so are its outputs.
    """
    spatial = num_spatial_axes(layer)
    require_rank(shape, spatial + 2)
    groups, window_axes = layer.groups, tuple(range(-spatial, 0))
    first, last = (-spatial - 2, -spatial - 1), (-2, -1)

    def encode(kernel: jax.Array) -> jax.Array:
        kernel = jnp.moveaxis(jnp.flip(kernel, window_axes), first, last)
        rows = kernel.reshape(*kernel.shape[:-2], groups, -1, kernel.shape[-1])
        return jnp.moveaxis(rows, -3, -2).reshape(*kernel.shape[:-2], rows.shape[-2], -1)

    def decode(kernel: jax.Array) -> jax.Array:
        columns = kernel.reshape(*kernel.shape[:-1], groups, -1)
        rows = jnp.moveaxis(columns, -2, -3).reshape(*kernel.shape[:-2], -1, columns.shape[-1])
        return jnp.flip(jnp.moveaxis(rows, last, first), window_axes)

    return Leaf.one("kernel", encode, decode)


def possible_groups(shapes: Shapes) -> list[dict[str, int]]:
    """List the numbers of groups of a transposed convolution that the shapes allow."""
    kernels = ("weight", *(direction for _, direction in WEIGHT_NORMS))
    shape = next((shapes[name] for name in kernels if name in shapes), ())
    if len(shape) < 3:
        return []
    inputs, outputs = shape[:2]
    counts = [groups for groups in range(1, inputs + 1) if inputs % groups == 0]
    if "bias" in shapes:
        counts = [groups for groups in counts if (groups * outputs,) == shapes["bias"]]
    return [{"groups": groups} for groups in counts]


def projections(part: str) -> Rule:
    """Store the projections of PyTorch's attention, `[3 * heads * size, in]`, in one array.

    Args:
      part: `kernel` or `bias`.
    """
    turn, rank = (swap, 2) if part == "kernel" else (keep, 1)

    def rule(layer: Module, shape: tuple[int, ...]) -> Leaf:
        require_rank(shape, rank)

        def encode(array: jax.Array) -> tuple[jax.Array, ...]:
            thirds = jnp.split(turn(array), 3, axis=-1)
            return tuple(third.reshape(*third.shape[:-1], layer.num_heads, -1) for third in thirds)

        def decode(*parts: jax.Array) -> jax.Array:
            flat_parts = [projection.reshape(*projection.shape[:-2], -1) for projection in parts]
            return turn(jnp.concatenate(flat_parts, axis=-1))

        return Leaf(tuple(f"{name}/{part}" for name in ("query", "key", "value")), encode, decode)

    return rule


def inside(place: str, rule: Rule) -> Rule:
    """Store the array of a layer that a layer holds under a place of its own."""

    def placed(layer: Module, shape: tuple[int, ...]) -> Leaf:
        leaf = rule(layer, shape)
        return replace(leaf, names=tuple(f"{place}/{name}" for name in leaf.names))

    return placed


STORAGE = Storage(
    layers=_layers(),
    channels_first=True,
    leaf_names={"weight": "kernel"},
    statistics={"running_mean": "mean", "running_var": "var", "num_batches_tracked": "count"},
)
