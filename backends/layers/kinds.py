"""Kinds of layers, as messages call them, and why a layer with parameters may be refused.

The canonical layouts of their arrays, which the rules of each library's `layers` convert to:

| array | layout |
|---|---|
| dense kernel | `[in, out]` |
| convolution's kernel | `[*window, in / groups, out]`, the window as it slides over the inputs |
| transposed convolution's kernel | the same, over the inputs spread out by the stride |
| weight normalization | the kernel before it, and a scale: see `weight_norm` |
| embedding | `[rows, size]` |
| attention: `query`, `key`, `value`; `out` | `[in, heads, size]`; `[heads, size, out]` |
| recurrent cells | see `triglot.backends.cells` |
| biases, scales | `[size]`; attention: `[heads, size]` |
"""

DENSE = "a dense layer"
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

ONLY_HERE = "no other library has it"
EINSUM = "its einsum string decides on the order of its axes"
