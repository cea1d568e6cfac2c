"""Flax NNX's layers, and how their arrays are stored."""

from collections.abc import Sequence
from typing import Literal

from ...core.network import Statistic
from .. import cells
from ..layers import kinds
from ..layers.flax import (
    PARAMETERS_IN,
    STATISTICS,
    STATISTICS_IN,
    each_gate,
    flax_layers,
    norm_axis,
)
from ..layers.rules import (
    Layer,
    Module,
    Normalized,
    UnknownLayout,
    Words,
    define,
    gates,
    refuse,
    stored,
)
from ..layers.storage import Storage

VALUES = ("value", "raw_value")  # the array in a variable


def _layers() -> dict[str, Layer]:
    packed_lstm = {
        "dense_i/kernel": gates("input", cells.LSTM_GATES),
        "dense_h/kernel": gates("recurrent", cells.LSTM_GATES),
        "dense_h/bias": gates("bias", cells.LSTM_GATES),
    }
    gru = {
        "dense_i/kernel": gates("input", cells.GRU_GATES, cells.RESET_AFTER),
        "dense_i/bias": gates("bias", cells.GRU_GATES, cells.RESET_AFTER),
        "dense_h/kernel": gates("recurrent", cells.GRU_GATES, cells.RESET_AFTER),
        # Of the built-in network's subclass; NNX's own cell lacks it.
        "bias_n": stored(cells.INNER_BIAS, 1, note=cells.RESET_AFTER),
    }
    simple = {
        "dense_i/kernel": stored("input/kernel", 2),
        "dense_i/bias": stored("bias", 1),
        "dense_h/kernel": stored("recurrent/kernel", 2),
    }
    lstm = {name.replace("if/", "if_/"): rule for name, rule in each_gate(cells.LSTM_GATES).items()}
    return flax_layers(
        "Linear",
        "LinearGeneral",
        "MultiHeadAttention",
        {
            **define(cells.LSTM, "LSTMCell", lstm),
            **define(cells.LSTM, "OptimizedLSTMCell", packed_lstm),
            **define(cells.RESET_AFTER, "GRUCell", gru),
            **define(cells.SIMPLE_CELL, "SimpleCell", simple),
            "WeightNorm": Layer(wraps=weight_norm),
            "SpectralNorm": Layer(wraps=spectral_norm),
            **refuse("LoRA LoRALinear", kinds.ONLY_HERE),
        },
    )


def weight_norm(place: Words, module: Module) -> Normalized:
    """Describe the layer in `nnx.WeightNorm`, whose place is that of the wrapper.

    Its scales are arrays outside of `nnx.Param`, so that no optimizer of NNX trains them: they are
    state.
    """
    chosen = {name: bool(module.variable_filter((name,), None)) for name in ("kernel", "bias")}
    if chosen != {"kernel": True, "bias": False}:
        raise UnknownLayout("it normalizes other arrays than `kernel`")
    axis = norm_axis(module.feature_axes)
    return Normalized(module.layer_instance, "kernel", axis, place, (*place, "scales", "kernel"))


def spectral_norm(place: Words, module: Module) -> Normalized:
    """Describe the layer in `nnx.SpectralNorm`, whose place is that of the wrapper."""
    return Normalized(module.layer_instance, "kernel", None, place, spectral=True)


def _file_name(
    part: Literal["params", "state"], words: Sequence[str], statistic: Statistic | None
) -> str:
    """Name an array by its path, without the last word, which is the variable's own."""
    del part, statistic
    return "/".join(words[:-1] if words[-1] in VALUES else words)


STORAGE = Storage(
    layers=_layers(),
    statistics=STATISTICS,
    parameters_in=PARAMETERS_IN,
    statistics_in=STATISTICS_IN,
    file_name=_file_name,
)
