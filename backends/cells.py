"""Canonical names of recurrent cells' parameters, one per gate, and the zoos' cells.

The canonical form of an LSTM with gates i, f, g, o (GRU: r, z, n) under a prefix such as `cell`:

  cell/input/GATE/kernel      [in, size]
  cell/recurrent/GATE/kernel  [size, size]
  cell/GATE/bias              [size]
  cell/recurrent/n/bias       [size], GRU only, inside the product with the reset gate
  cell/recurrent/GATE/bias    [size], of PyTorch's cells and Keras's GRU, added to cell/GATE/bias
"""

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp

from ..core.network import Network, Variables

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
    """Give a zoo's recurrent cell `cell` the same initializers in every library.

    Per gate, input kernels are drawn from `lecun_normal` and recurrent kernels are orthogonal.
    Biases are 0, except 1 at an LSTM's forget gate (Jozefowicz et al. 2015, section 4.2,
    https://proceedings.mlr.press/v37/jozefowicz15.html). Haiku's LSTM adds that 1 in its forward
    pass.
    """
    codec = network.require_codec("cell cannot be initialized")

    def init(key: jax.Array) -> Variables:
        own_key, cell_key = jax.random.split(key)
        variables = network.init(own_key)
        named = codec.encode(variables.params)
        names = [name for name in sorted(named) if name.startswith("cell/")]
        keys = jax.random.split(cell_key, len(names))
        drawn = {n: _draw(n, named[n], k) for n, k in zip(names, keys, strict=True)}
        return Variables(params=codec.decode({**named, **drawn}), state=variables.state)

    return replace(network, init=init)


def _draw(name: str, array: jax.Array, key: jax.Array) -> jax.Array:
    if name.endswith("/bias"):
        return jnp.full_like(array, float(name == "cell/f/bias"))
    initializers = jax.nn.initializers
    init = initializers.orthogonal() if "/recurrent/" in name else initializers.lecun_normal()
    return init(key, array.shape, array.dtype)
