"""Canonical names and layouts of Equinox's parameters, by the class of the layer.

Leading axes, of layers built under `eqx.filter_vmap`, are kept.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..core.network import Leaf
from . import cells
from .naming import canonical_name, prefix_of


def leaf(eqx: Any, module: Any, path: Sequence[Any]) -> Leaf:
    """Describe one parameter by the module that owns it."""
    owner = module
    for key in path[:-1]:
        owner = getattr(owner, key.name) if hasattr(key, "name") else owner[_index(key)]
    last = path[-1].name if hasattr(path[-1], "name") else ""
    nn = eqx.nn
    if isinstance(owner, nn.LSTMCell | nn.GRUCell):
        return _cell_leaf(prefix_of(path, 1), last, isinstance(owner, nn.LSTMCell))
    is_weight = last == "weight"
    name = canonical_name(path, {"weight": _weight_name(nn, owner)})
    if isinstance(owner, nn.Linear) and is_weight:
        return Leaf.one(name, _transposed, _transposed)
    if isinstance(owner, nn.Conv):
        return _convolution_leaf(name, owner.num_spatial_dims, is_weight)
    return Leaf.one(name)


def _weight_name(nn: Any, owner: Any) -> str:
    if isinstance(owner, nn.Embedding):
        return "embedding"
    norms = nn.LayerNorm | nn.GroupNorm | nn.RMSNorm | nn.BatchNorm
    return "scale" if isinstance(owner, norms) else "kernel"


def _cell_leaf(place: str, name: str, is_lstm: bool) -> Leaf:
    gates = cells.LSTM_GATES if is_lstm else cells.GRU_GATES
    note = "" if is_lstm else cells.RESET_AFTER
    if name == "bias_n":
        return Leaf.one(cells.inner_bias(place), note=note)
    if name == "bias":
        return cells.concatenated(cells.biases(place, gates), note)
    part = "input" if name == "weight_ih" else "recurrent"
    return cells.stacked(cells.kernels(place, part, gates), note)


def _convolution_leaf(name: str, num_axes: int, is_weight: bool) -> Leaf:
    """Describe a kernel `[out, in, *window]`, or a bias `[out, 1, ...]`."""
    spatial = range(-num_axes, 0)
    if not is_weight:
        return Leaf.one(
            name,
            lambda bias: jnp.squeeze(bias, tuple(spatial)),
            lambda bias: jnp.expand_dims(bias, tuple(spatial)),
        )
    outputs_first = (-num_axes - 2, -num_axes - 1)
    return Leaf.one(
        name,
        lambda weight: jnp.moveaxis(weight, outputs_first, (-1, -2)),
        lambda kernel: jnp.moveaxis(kernel, (-1, -2), outputs_first),
    )


def _transposed(weight: jax.Array) -> jax.Array:
    return jnp.swapaxes(weight, -1, -2)


def _index(key: Any) -> Any:
    return key.idx if hasattr(key, "idx") else key.key
