"""Flax Linen's layers, and how their arrays are stored."""

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
    refuse,
    stored,
    vector,
    window,
)
from ..layers.storage import Storage


def _layers() -> dict[str, Layer]:
    simple = {
        "i/kernel": stored("input/kernel", 2),
        "i/bias": stored("bias", 1),
        "h/kernel": stored("recurrent/kernel", 2),
    }
    convolutional = {
        "ih/kernel": window("input/kernel"),
        "ih/bias": vector("input/bias"),
        "hh/kernel": window("recurrent/kernel"),
        "hh/bias": vector("recurrent/bias"),
    }
    lstm = each_gate(cells.LSTM_GATES)
    gru = each_gate(cells.GRU_GATES, cells.RESET_AFTER)
    return flax_layers(
        "Dense",
        "DenseGeneral",
        "MultiHeadDotProductAttention MultiHeadAttention SelfAttention",
        {
            **define(cells.LSTM, "LSTMCell OptimizedLSTMCell", lstm),
            **define(cells.RESET_AFTER, "GRUCell", gru),
            **define(cells.SIMPLE_CELL, "SimpleCell", simple),
            **define(kinds.CONVOLUTIONAL_LSTM, "ConvLSTMCell", convolutional),
            "WeightNorm": Layer(wraps=weight_norm),
            "SpectralNorm": Layer(wraps=spectral_norm),
            **refuse("ConvLocal MGUCell", kinds.ONLY_HERE),
        },
    )


def weight_norm(place: Words, module: Module) -> Normalized:
    """Describe the layer in `nn.WeightNorm`, which has a place of its own."""
    if module.variable_filter is None or set(module.variable_filter) != {"kernel"}:
        raise UnknownLayout(f"it normalizes {module.variable_filter or 'all arrays'}, not `kernel`")
    inner = tuple(module.layer_instance.path)
    scale = (*place, f"{inner[-1]}/kernel/scale")
    axis = norm_axis(module.feature_axes)
    return Normalized(module.layer_instance, "kernel", axis, _inner_place(place, module), scale)


def spectral_norm(place: Words, module: Module) -> Normalized:
    """Describe the layer in `nn.SpectralNorm`, which has a place of its own."""
    named = _inner_place(place, module)
    return Normalized(module.layer_instance, "kernel", None, named, spectral=True)


def _inner_place(place: Words, module: Module) -> Words:
    """Return the place of a wrapped layer.

    Without a name of its own it is called by the attribute of the wrapper.
    """
    inner = tuple(module.layer_instance.path)
    return place if inner == (*place, "layer_instance") else inner


def _file_name(
    part: Literal["params", "state"], words: Sequence[str], statistic: Statistic | None
) -> str:
    """Name an array by its path; the collection of parameters is not in theirs."""
    del statistic
    return "/".join(("params", *words) if part == "params" else words)


STORAGE = Storage(
    layers=_layers(),
    statistics=STATISTICS,
    parameters_in=PARAMETERS_IN,
    statistics_in=STATISTICS_IN,
    file_name=_file_name,
)
