"""Equinox's layers, and how their arrays are stored."""

from collections.abc import Sequence
from typing import Literal

from ...core.network import Statistic
from .. import cells
from ..layers import kinds
from ..layers.rules import (
    BIAS,
    PROJECTIONS,
    SCALE,
    Layer,
    Module,
    Normalized,
    UnknownLayout,
    Words,
    define,
    gates,
    heads,
    norm,
    stored,
    swapped,
    window,
)
from ..layers.storage import Storage

# Of running statistics, in files.
NAMES = {"mean": "running_mean", "var": "running_var", "count": "num_batches_tracked"}


def _layers() -> dict[str, Layer]:
    attention = {
        "output_proj/weight": heads("out/kernel", axis=-2, outputs_first=True),
        "output_proj/bias": stored("out/bias", 1),
    }
    for part in PROJECTIONS:
        attention |= {
            f"{part}_proj/weight": heads(f"{part}/kernel", outputs_first=True),
            f"{part}_proj/bias": heads(f"{part}/bias", 1),
        }
    lstm = {
        "weight_ih": gates("input", cells.LSTM_GATES, outputs_first=True),
        "weight_hh": gates("recurrent", cells.LSTM_GATES, outputs_first=True),
        "bias": gates("bias", cells.LSTM_GATES),
    }
    gru = {
        "weight_ih": gates("input", cells.GRU_GATES, cells.RESET_AFTER, outputs_first=True),
        "weight_hh": gates("recurrent", cells.GRU_GATES, cells.RESET_AFTER, outputs_first=True),
        "bias": gates("bias", cells.GRU_GATES, cells.RESET_AFTER),
        "bias_n": stored(cells.INNER_BIAS, 1, note=cells.RESET_AFTER),
    }
    affine = {"weight": SCALE, "bias": BIAS}
    transposed = "ConvTranspose ConvTranspose1d ConvTranspose2d ConvTranspose3d"
    convolution = {"weight": window(outputs_first=True), "bias": BIAS}
    normed = {"weight": norm("scale"), "bias": norm("bias")}
    return {
        **define(kinds.DENSE, "Linear", {"weight": swapped("kernel"), "bias": stored("bias", 1)}),
        **define(kinds.EMBEDDING, "Embedding", {"weight": stored("embedding", 2)}),
        **define(kinds.CONVOLUTION, "Conv Conv1d Conv2d Conv3d", convolution),
        **define(kinds.TRANSPOSED, transposed, convolution),
        **define(kinds.BATCH_NORM, "BatchNorm", affine),
        **define(kinds.GROUP_NORM, "GroupNorm", affine),
        **define(kinds.LAYER_NORM, "LayerNorm", normed),
        **define(kinds.RMS_NORM, "RMSNorm", normed),
        **define(kinds.ATTENTION, "MultiheadAttention", attention),
        **define(kinds.PRELU, "PReLU", {"negative_slope": stored("negative_slope", 0)}),
        **define(cells.LSTM, "LSTMCell", lstm),
        **define(cells.RESET_AFTER, "GRUCell", gru),
        "WeightNorm": Layer(wraps=weight_norm),
        "SpectralNorm": Layer(wraps=spectral_norm),
    }


def weight_norm(place: Words, module: Module) -> Normalized:
    """Describe the layer in `eqx.nn.WeightNorm`, whose place is that of the wrapper."""
    if module.weight_name != "weight":
        raise UnknownLayout(f"it normalizes {module.weight_name!r}, not `weight`")
    return Normalized(module.layer, "weight", module.axis, place, (*place, "g"))


def spectral_norm(place: Words, module: Module) -> Normalized:
    """Describe the layer in `eqx.nn.SpectralNorm`, whose place is that of the wrapper."""
    if module.weight_name != "weight":
        raise UnknownLayout(f"it normalizes {module.weight_name!r}, not `weight`")
    return Normalized(module.layer, "weight", None, place, spectral=True)


def _file_name(
    part: Literal["params", "state"], words: Sequence[str], statistic: Statistic | None
) -> str:
    """Name an array by its path; a running statistic, which has no name, as PyTorch does."""
    del part
    if statistic is not None:
        *place, last = statistic.name.split("/")
        words = (*place, NAMES.get(last, last))
    return ".".join(words)


STORAGE = Storage(
    layers=_layers(),
    channels_first=True,
    leaf_names={"weight": "kernel"},
    statistics={name: last for last, name in NAMES.items()},
    corrects_start=True,
    file_name=_file_name,
)
