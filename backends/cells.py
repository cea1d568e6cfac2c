"""Canonical names of recurrent cells' parameters, one per gate, and the cells of built-in networks.

The canonical form of an LSTM with gates i, f, g, o (GRU: r, z, n) under a prefix such as `cell`:

  cell/input/GATE/kernel      [in, size]
  cell/recurrent/GATE/kernel  [size, size]
  cell/GATE/bias              [size]
  cell/recurrent/n/bias       [size], GRU only, inside the product with the reset gate
  cell/recurrent/GATE/bias    [size], of PyTorch's cells and Keras's GRU, added to cell/GATE/bias
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ..core.network import Network
from .zoo.initializers import redrawn

LSTM = "an LSTM"
SIMPLE_CELL = "a simple recurrent cell"
LSTM_GATES = ("i", "f", "g", "o")
GRU_GATES = ("r", "z", "n")
RESET_AFTER = "a GRU that applies the reset gate after the recurrent product"
INNER_BIAS = "recurrent/n/bias"  # of a GRU, inside the product with the reset gate
RESET_BEFORE = "a GRU that applies the reset gate before the recurrent product"
KEEPS_BY_UPDATE = f"{RESET_BEFORE} and keeps the carry where the update gate is 1"


def names_of(part: str, gates: Sequence[str]) -> tuple[str, ...]:
    """Name a cell's `input` or `recurrent` kernels, or each gate's `bias` or `recurrent biases`."""
    pattern = {"bias": "{}/bias", "recurrent biases": "recurrent/{}/bias"}
    return tuple(pattern.get(part, f"{part}/{{}}/kernel").format(gate) for gate in gates)


def match_initializers(network: Network) -> Network:
    """Give a built-in network's recurrent cell `cell` the same initializers in every library.

    Per gate, input kernels are drawn from `lecun_normal` and recurrent kernels are orthogonal.
    Biases are 0, except 1 at an LSTM's forget gate (Jozefowicz et al. 2015, section 4.2,
    https://proceedings.mlr.press/v37/jozefowicz15.html). Haiku's LSTM adds that 1 in its forward
    pass.
    """
    return redrawn(network, lambda name: name.startswith("cell/"), _draw)


def _draw(name: str, array: jax.Array, key: jax.Array) -> jax.Array:
    if name.endswith("/bias"):
        return jnp.full_like(array, float(name == "cell/f/bias"))
    initializers = jax.nn.initializers
    init = initializers.orthogonal() if "/recurrent/" in name else initializers.lecun_normal()
    return init(key, array.shape, array.dtype)
