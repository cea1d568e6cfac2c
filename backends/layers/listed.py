"""The list of layers, one table per library: what owns parameters, and how each is stored.

The canonical layouts, which the rules convert to:

| array | layout |
|---|---|
| dense kernel | `[in, out]` |
| convolution's kernel | `[*window, in / groups, out]`, the window as it slides over the inputs |
| transposed convolution's kernel | the same, over the inputs spread out by the stride |
| embedding | `[rows, size]` |
| attention: `query`, `key`, `value`; `out` | `[in, heads, size]`; `[heads, size, out]` |
| recurrent cells | see `triglot.backends.cells` |
| biases, scales | `[size]`; attention: `[heads, size]` |

`tests/backends/test_layers.py` fails when a library has a layer that is on no list.
"""

from collections.abc import Sequence

from .. import cells
from .rules import (
    DENSE,
    Layer,
    Rule,
    depthwise_window,
    each_gate,
    flax_transposed_window,
    gates,
    general_dense,
    haiku_lstm_bias,
    haiku_lstm_kernel,
    heads,
    inside,
    keras_gru,
    norm,
    stored,
    swapped,
    torch_projections,
    torch_slope,
    torch_transposed_window,
    turned_window,
    vector,
    window,
)

CONVOLUTION = "a convolution"
TRANSPOSED = "a transposed convolution"
EMBEDDING = "an embedding"
BATCH_NORM = "batch normalization"
GROUP_NORM = "group or instance normalization"
LAYER_NORM = "layer normalization"
RMS_NORM = "RMS normalization"
ATTENTION = "multi-head attention"
CONVOLUTIONAL_LSTM = "a convolutional LSTM"
PRELU = "a PReLU"

BIAS = vector("bias")
SCALE = vector("scale")
PROJECTIONS = ("query", "key", "value")
ONLY_HERE = "no other library has it"
NO_CELL = "it is what PyTorch's own cells derive from"
MAX_STACKED = 8  # layers of PyTorch's LSTM, GRU or RNN
LAZY = "its shape is known after its first call only, which makes it the plain layer"
OWN_ARRAYS = "only their author knows the layout of its arrays"
EINSUM = "its einsum string decides on the order of its axes"
REPARAMETRIZED = "it replaces the weights of the layer that it wraps, in each library differently"


def _same(kind: str, names: str, parameters: dict[str, Rule]) -> dict[str, Layer]:
    return {name: Layer(kind, parameters) for name in names.split()}


def _refused(names: str, reason: str) -> dict[str, Layer]:
    return {name: Layer(refused=reason) for name in names.split()}


def _haiku() -> dict[str, Layer]:
    attention = {"linear/w": heads("out/kernel", axis=-2), "linear/b": stored("out/bias", 1)}
    for part in PROJECTIONS:
        attention |= {f"{part}/w": heads(f"{part}/kernel"), f"{part}/b": heads(f"{part}/bias", 1)}
    gru = {
        "w_i": gates("input", "zrn", cells.RESET_BEFORE),
        "w_h": gates("recurrent", "zrn", cells.RESET_BEFORE),
        "b": gates("bias", "zrn", cells.RESET_BEFORE),
    }
    simple = {
        "linear/w": stored("input/kernel", 2),
        "linear/b": stored("bias", 1),
        "linear_1/w": stored("recurrent/kernel", 2),
        "linear_1/b": stored("recurrent/bias", 1),
    }
    convolutional = {
        "input_to_hidden/w": window("input/kernel"),
        "input_to_hidden/b": vector("input/bias"),
        "hidden_to_hidden/w": window("recurrent/kernel"),
        "hidden_to_hidden/b": vector("recurrent/bias"),
    }
    affine = {"scale": SCALE, "offset": BIAS}
    convolutions = "Conv1D Conv2D Conv3D ConvND DepthwiseConv1D DepthwiseConv2D DepthwiseConv3D"
    transposed = "Conv1DTranspose Conv2DTranspose Conv3DTranspose ConvNDTranspose"
    return {
        **_same(DENSE, "Linear", {"w": stored("kernel", 2), "b": stored("bias", 1)}),
        **_same("", "Bias", {"b": BIAS}),
        **_same(EMBEDDING, "Embed", {"embeddings": stored("embedding", 2)}),
        **_same(CONVOLUTION, convolutions, {"w": window(), "b": BIAS}),
        **_same(TRANSPOSED, transposed, {"w": window(channels_swapped=True), "b": BIAS}),
        **_same(BATCH_NORM, "BatchNorm", affine),
        **_same(GROUP_NORM, "GroupNorm InstanceNorm", affine),
        **_same(LAYER_NORM, "LayerNorm", {"scale": norm("scale"), "offset": norm("bias")}),
        **_same(RMS_NORM, "RMSNorm", {"scale": norm("scale")}),
        **_same(ATTENTION, "MultiHeadAttention", attention),
        **_same(cells.LSTM, "LSTM", {"linear/w": haiku_lstm_kernel, "linear/b": haiku_lstm_bias}),
        **_same(cells.RESET_BEFORE, "GRU", gru),
        **_same(cells.SIMPLE_CELL, "VanillaRNN", simple),
        **_same(CONVOLUTIONAL_LSTM, "Conv1DLSTM Conv2DLSTM Conv3DLSTM", convolutional),
        **_refused("VectorQuantizer", ONLY_HERE),
    }


def _flax(
    dense: str, general_dense_name: str, attention_names: str, own: dict[str, Layer]
) -> dict[str, Layer]:
    """List what Linen and NNX store alike, in part under other names, and what is `own` to one."""
    attention = {"out/kernel": stored("out/kernel", 3), "out/bias": stored("out/bias", 1)}
    for part in PROJECTIONS:
        attention |= {
            f"{part}/kernel": stored(f"{part}/kernel", 3),
            f"{part}/bias": stored(f"{part}/bias", 2),
        }
    affine = {"scale": SCALE, "bias": BIAS}
    general = {"kernel": general_dense("kernel"), "bias": general_dense("bias")}
    return {
        **_same(DENSE, dense, {"kernel": stored("kernel", 2), "bias": stored("bias", 1)}),
        **_same("a general dense layer", general_dense_name, general),
        **_same(EMBEDDING, "Embed", {"embedding": stored("embedding", 2)}),
        **_same(CONVOLUTION, "Conv", {"kernel": window(), "bias": BIAS}),
        **_same(TRANSPOSED, "ConvTranspose", {"kernel": flax_transposed_window, "bias": BIAS}),
        **_same(BATCH_NORM, "BatchNorm", affine),
        **_same(GROUP_NORM, "GroupNorm InstanceNorm", affine),
        **_same(LAYER_NORM, "LayerNorm", {"scale": norm("scale"), "bias": norm("bias")}),
        **_same(RMS_NORM, "RMSNorm", {"scale": norm("scale")}),
        **_same(ATTENTION, attention_names, attention),
        **_same(PRELU, "PReLU", {"negative_slope": stored("negative_slope", 0)}),
        **_refused("Einsum", EINSUM),
        **_refused("SpectralNorm WeightNorm", REPARAMETRIZED),
        **own,
    }


def _linen() -> dict[str, Layer]:
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
    return _flax(
        "Dense",
        "DenseGeneral",
        "MultiHeadDotProductAttention MultiHeadAttention SelfAttention",
        {
            **_same(cells.LSTM, "LSTMCell OptimizedLSTMCell", lstm),
            **_same(cells.RESET_AFTER, "GRUCell", gru),
            **_same(cells.SIMPLE_CELL, "SimpleCell", simple),
            **_same(CONVOLUTIONAL_LSTM, "ConvLSTMCell", convolutional),
            **_refused("ConvLocal MGUCell", ONLY_HERE),
        },
    )


def _nnx() -> dict[str, Layer]:
    packed_lstm = {
        "dense_i/kernel": gates("input", cells.LSTM_GATES),
        "dense_h/kernel": gates("recurrent", cells.LSTM_GATES),
        "dense_h/bias": gates("bias", cells.LSTM_GATES),
    }
    gru = {
        "dense_i/kernel": gates("input", cells.GRU_GATES, cells.RESET_AFTER),
        "dense_i/bias": gates("bias", cells.GRU_GATES, cells.RESET_AFTER),
        "dense_h/kernel": gates("recurrent", cells.GRU_GATES, cells.RESET_AFTER),
        # Of the zoo's subclass; NNX's own cell lacks it.
        "bias_n": stored(cells.INNER_BIAS, 1, note=cells.RESET_AFTER),
    }
    simple = {
        "dense_i/kernel": stored("input/kernel", 2),
        "dense_i/bias": stored("bias", 1),
        "dense_h/kernel": stored("recurrent/kernel", 2),
    }
    lstm = {name.replace("if/", "if_/"): rule for name, rule in each_gate(cells.LSTM_GATES).items()}
    return _flax(
        "Linear",
        "LinearGeneral",
        "MultiHeadAttention",
        {
            **_same(cells.LSTM, "LSTMCell", lstm),
            **_same(cells.LSTM, "OptimizedLSTMCell", packed_lstm),
            **_same(cells.RESET_AFTER, "GRUCell", gru),
            **_same(cells.SIMPLE_CELL, "SimpleCell", simple),
            **_refused("LoRA LoRALinear", ONLY_HERE),
        },
    )


def _equinox() -> dict[str, Layer]:
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
        **_same(DENSE, "Linear", {"weight": swapped("kernel"), "bias": stored("bias", 1)}),
        **_same(EMBEDDING, "Embedding", {"weight": stored("embedding", 2)}),
        **_same(CONVOLUTION, "Conv Conv1d Conv2d Conv3d", convolution),
        **_same(TRANSPOSED, transposed, convolution),
        **_same(BATCH_NORM, "BatchNorm", affine),
        **_same(GROUP_NORM, "GroupNorm", affine),
        **_same(LAYER_NORM, "LayerNorm", normed),
        **_same(RMS_NORM, "RMSNorm", normed),
        **_same(ATTENTION, "MultiheadAttention", attention),
        **_same(PRELU, "PReLU", {"negative_slope": stored("negative_slope", 0)}),
        **_same(cells.LSTM, "LSTMCell", lstm),
        **_same(cells.RESET_AFTER, "GRUCell", gru),
        **_refused("SpectralNorm WeightNorm", REPARAMETRIZED),
    }


def _keras() -> dict[str, Layer]:
    attention = {"output_dense/kernel": stored("out/kernel", 3)}
    attention |= {"output_dense/bias": stored("out/bias", 1)}
    for part in PROJECTIONS:
        attention |= {
            f"{part}_dense/kernel": stored(f"{part}/kernel", 3),
            f"{part}_dense/bias": stored(f"{part}/bias", 2),
        }
    lstm = {
        "kernel": gates("input", cells.LSTM_GATES),
        "recurrent_kernel": gates("recurrent", cells.LSTM_GATES),
        "bias": gates("bias", cells.LSTM_GATES),
    }
    gru = {
        "kernel": keras_gru("input"),
        "recurrent_kernel": keras_gru("recurrent"),
        "bias": keras_gru("bias"),
        # Of the zoo's subclass; Keras's own cell has it in its bias.
        "bias_n": stored(cells.INNER_BIAS, 1, note=cells.RESET_AFTER),
    }
    simple = {
        "kernel": stored("input/kernel", 2),
        "recurrent_kernel": stored("recurrent/kernel", 2),
        "bias": stored("bias", 1),
    }
    affine = {"gamma": SCALE, "beta": BIAS}
    normed = {"gamma": norm("scale"), "beta": norm("bias")}
    transposed = {"kernel": turned_window, "bias": BIAS}
    return {
        **_same(DENSE, "Dense", {"kernel": stored("kernel", 2), "bias": stored("bias", 1)}),
        **_same(EMBEDDING, "Embedding", {"embeddings": stored("embedding", 2)}),
        **_same(CONVOLUTION, "Conv1D Conv2D Conv3D", {"kernel": window(), "bias": BIAS}),
        **_same(
            CONVOLUTION,
            "DepthwiseConv1D DepthwiseConv2D",
            {"kernel": depthwise_window, "bias": BIAS},
        ),
        **_same(TRANSPOSED, "Conv1DTranspose Conv2DTranspose Conv3DTranspose", transposed),
        **_same(BATCH_NORM, "BatchNormalization", affine),
        **_same(GROUP_NORM, "GroupNormalization", affine),
        **_same(LAYER_NORM, "LayerNormalization", normed),
        **_same(RMS_NORM, "RMSNormalization", {"scale": norm("scale")}),
        **_same(ATTENTION, "MultiHeadAttention", attention),
        **_same(cells.LSTM, "LSTMCell", lstm),
        **_same(cells.RESET_AFTER, "GRUCell", gru),
        **_same(cells.SIMPLE_CELL, "SimpleRNNCell", simple),
        **_refused("EinsumDense", EINSUM),
        **_refused("SpectralNormalization", REPARAMETRIZED),
        **_refused("PReLU", "it has a slope for each of its inputs, elsewhere one number"),
        **_refused("ConvLSTM1D ConvLSTM2D ConvLSTM3D", "its gates are in another order"),
        **_refused(
            "AdditiveAttention Attention GroupedQueryAttention ReversibleEmbedding "
            "SeparableConv1D SeparableConv2D STFTSpectrogram",
            ONLY_HERE,
        ),
        **_refused(
            "FlaxLayer TFSMLayer TorchModuleWrapper",
            "it wraps what another library made",
        ),
    }


def _torch() -> dict[str, Layer]:
    attention = {
        "in_proj_weight": torch_projections("kernel"),
        "in_proj_bias": torch_projections("bias"),
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
    # Of the zoo's subclass, whose cells have one bias; PyTorch's own have two.
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
    dense = {"weight": swapped("kernel"), "bias": stored("bias", 1)}
    convolution = {"weight": window(outputs_first=True), "bias": BIAS}
    transposed = {"weight": torch_transposed_window, "bias": BIAS}
    dimensions = ("1d", "2d", "3d")
    lazy = ["LazyLinear"] + [
        f"Lazy{name}{size}"
        for name in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm")
        for size in dimensions
    ]
    return {
        **_same(DENSE, "Linear", dense),
        **_same(EMBEDDING, "Embedding", {"weight": stored("embedding", 2)}),
        **_same(CONVOLUTION, "Conv1d Conv2d Conv3d", convolution),
        **_same(TRANSPOSED, "ConvTranspose1d ConvTranspose2d ConvTranspose3d", transposed),
        **_same(BATCH_NORM, "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm", affine),
        **_same(GROUP_NORM, "GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d", affine),
        **_same(LAYER_NORM, "LayerNorm", normed),
        **_same(RMS_NORM, "RMSNorm", normed),
        **_same(ATTENTION, "MultiheadAttention", attention),
        **_same(PRELU, "PReLU", {"weight": torch_slope}),
        **_same(cells.LSTM, "LSTMCell", lstm),
        **_same(cells.RESET_AFTER, "GRUCell", own_gru),
        **_same(cells.SIMPLE_CELL, "RNNCell", simple),
        **_same(cells.LSTM, "LSTM", over_time(lstm)),
        **_same(cells.RESET_AFTER, "GRU", over_time(gru)),
        **_same(cells.SIMPLE_CELL, "RNN", over_time(simple)),
        **_refused("RNNBase RNNCellBase", NO_CELL),
        **_refused("Bilinear EmbeddingBag", ONLY_HERE),
        **_refused("ParameterList ParameterDict", OWN_ARRAYS),
        **_refused(" ".join(lazy), LAZY),
    }


LAYERS = {
    "haiku": _haiku(),
    "linen": _linen(),
    "nnx": _nnx(),
    "equinox": _equinox(),
    "keras": _keras(),
    "torch": _torch(),
}
