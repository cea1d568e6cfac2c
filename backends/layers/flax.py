"""What Flax Linen and Flax NNX store alike."""

from collections.abc import Sequence
from dataclasses import replace

from ...core.network import Leaf
from .. import cells
from . import kinds
from .rules import (
    BIAS,
    PROJECTIONS,
    SCALE,
    Layer,
    Module,
    Rule,
    UnknownLayout,
    define,
    gates,
    norm,
    refuse,
    require_rank,
    stored,
    turned_window,
    window,
)

# The ends of running statistics' names, inside of the collection.
STATISTICS = {"mean": "mean", "var": "var"}
PARAMETERS_IN, STATISTICS_IN = "params/", "batch_stats/"


def flax_layers(
    dense: str, general_dense_name: str, attention_names: str, further: dict[str, Layer]
) -> dict[str, Layer]:
    """List what Linen and NNX store alike, and what only one of them has.

    Args:
      dense: the name of the dense layer.
      general_dense_name: of the one over several axes.
      attention_names: of attention.
      further: the layers that only one of them has, or stores otherwise.
    """
    attention = {"out/kernel": stored("out/kernel", 3), "out/bias": stored("out/bias", 1)}
    for part in PROJECTIONS:
        attention |= {
            f"{part}/kernel": stored(f"{part}/kernel", 3),
            f"{part}/bias": stored(f"{part}/bias", 2),
        }
    affine = {"scale": SCALE, "bias": BIAS}
    general = {"kernel": general_dense("kernel"), "bias": general_dense("bias")}
    return {
        **define(kinds.DENSE, dense, {"kernel": stored("kernel", 2), "bias": stored("bias", 1)}),
        **define("a general dense layer", general_dense_name, general),
        **define(kinds.EMBEDDING, "Embed", {"embedding": stored("embedding", 2)}),
        **define(kinds.CONVOLUTION, "Conv", {"kernel": window(), "bias": BIAS}),
        **define(
            kinds.TRANSPOSED,
            "ConvTranspose",
            {"kernel": transposed_window, "bias": BIAS},
            variants=lambda shapes: [{"transpose_kernel": turned} for turned in (False, True)],
        ),
        **define(kinds.BATCH_NORM, "BatchNorm", affine),
        **define(kinds.GROUP_NORM, "GroupNorm InstanceNorm", affine),
        **define(kinds.LAYER_NORM, "LayerNorm", {"scale": norm("scale"), "bias": norm("bias")}),
        **define(kinds.RMS_NORM, "RMSNorm", {"scale": norm("scale")}),
        **define(kinds.ATTENTION, attention_names, attention),
        **define(kinds.PRELU, "PReLU", {"negative_slope": stored("negative_slope", 0)}),
        **refuse("Einsum", kinds.EINSUM),
        **further,
    }


def norm_axis(feature_axes: int | Sequence[int] | None) -> int | None:
    """Return the axis of the kernel whose slices have a norm each, of Flax's `WeightNorm`.

    Raises:
      UnknownLayout: if there are several.
    """
    axes = [feature_axes] if isinstance(feature_axes, int) else list(feature_axes or ())
    if len(axes) > 1:
        raise UnknownLayout("its norms are those of several axes")
    return axes[0] if axes else None


def transposed_window(layer: Module, shape: tuple[int, ...]) -> Leaf:
    """Store the kernel of Flax's transposed convolution.

    With `transpose_kernel` it is stored as that of the convolution whose gradient it computes.
    """
    return turned_window(layer, shape) if layer.transpose_kernel else window()(layer, shape)


def general_dense(name: str) -> Rule:
    """Store the kernel or bias of a Flax layer `[*batch, *in, *out]`, or `[*batch, *out]`.

    Over the last axis alone, with one axis of outputs, it is a dense layer.
    """

    def rule(layer: Module, shape: tuple[int, ...]) -> Leaf:
        outputs = _count(getattr(layer, "features", None) or getattr(layer, "out_features", 0))
        batch = len(getattr(layer, "batch_dims", ()) or getattr(layer, "batch_axis", ()))
        inputs = _count(layer.axis)
        require_rank(shape, batch + outputs + (inputs if name == "kernel" else 0))
        is_dense = batch == 0 and outputs == 1 and layer.axis in (-1, (-1,), [-1])
        return replace(Leaf.one(name), layer=kinds.DENSE if is_dense else "")

    return rule


def _count(axes: int | Sequence[int]) -> int:
    return 1 if isinstance(axes, int) else len(axes)


def each_gate(cell_gates: Sequence[str], note: str = "") -> dict[str, Rule]:
    """List the parameters of a cell with dense layers `i` + gate of the inputs, `h` + gate.

    Args:
      cell_gates: the gates.
      note: the convention of a GRU, whose biases are in the layers of the inputs, and in the
        recurrent layer of its last gate; an LSTM's are in the recurrent layers.
    """
    bias_layer = "i" if note else "h"
    rules: dict[str, Rule] = {}
    for gate in cell_gates:
        rules |= {
            f"i{gate}/kernel": gates("input", [gate], note),
            f"h{gate}/kernel": gates("recurrent", [gate], note),
            f"{bias_layer}{gate}/bias": gates("bias", [gate], note),
        }
    if note:
        rules[f"h{cell_gates[-1]}/bias"] = stored(cells.INNER_BIAS, 1, note=note)
    return rules
