"""Haiku's zoo: networks built from a `NetworkSpec`."""

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from ...core.networks.architecture import Head, Layers, NetworkSpec, RecurrentCell, Table, joined


def make(spec: NetworkSpec) -> Callable[..., Any]:
    """Return the Haiku function of a network, called on batches `[B, ...]`."""
    cell = spec.cell
    if cell is not None:
        return lambda obs, carry: _recurrent(obs, carry, spec, cell)

    def network(*inputs: Any) -> dict[str, jax.Array]:
        if isinstance(spec.torso, Table):
            return {name: _row(inputs[0], spec, name, head) for name, head in sorted(spec.heads)}
        features = _torso(joined(inputs), spec.layers)
        return {name: _head(features, name, head) for name, head in sorted(spec.heads)}

    return network


def _recurrent(
    obs: Any, carry: dict[str, jax.Array], spec: NetworkSpec, cell: RecurrentCell
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    features = _torso(joined((obs,)), spec.layers)
    if cell.kind == "lstm":
        features, after = hk.LSTM(cell.size, name="cell")(features, hk.LSTMState(**carry))
        carry = {"hidden": after.hidden, "cell": after.cell}
    else:
        features, hidden = hk.GRU(cell.size, name="cell")(features, carry["hidden"])
        carry = {"hidden": hidden}
    return {name: _head(features, name, head) for name, head in sorted(spec.heads)}, carry


def _torso(features: jax.Array, torso: Layers) -> jax.Array:
    activation = getattr(jax.nn, torso.activation)
    init = _initializer(torso.scale)
    for index, (width, size, stride) in enumerate(torso.convolutions):
        convolution = hk.Conv2D(
            width, size, stride, padding="VALID", w_init=init, name=f"torso_{index}"
        )
        features = activation(convolution(features))
    features = hk.Flatten()(features)
    for index, width in enumerate(torso.hidden_sizes, len(torso.channels)):
        features = activation(hk.Linear(width, w_init=init, name=f"torso_{index}")(features))
    return features


def _initializer(scale: float | None) -> hk.initializers.Initializer | None:
    return None if scale is None else hk.initializers.Orthogonal(scale)


def _head(features: jax.Array, name: str, head: Head) -> jax.Array:
    def dense(size: int, suffix: str = "") -> jax.Array:
        init = _initializer(head.scale)
        return hk.Linear(size, w_init=init, name=f"head_{name}{suffix}")(features)

    if head.size is None:
        return dense(1)[:, 0]
    if head.state_independent is not None:
        zeros = jnp.zeros((features.shape[0], head.size))
        init = hk.initializers.Constant(head.state_independent)
        return hk.Bias(b_init=init, name=f"head_{name}")(zeros)
    if not head.dueling:
        return dense(head.size)
    advantage = dense(head.size, "_advantage")
    return dense(1, "_value") + advantage - advantage.mean(axis=-1, keepdims=True)


def _row(obs: jax.Array, spec: NetworkSpec, name: str, head: Head) -> jax.Array:
    init = hk.initializers.Constant(spec.table.init)
    row = hk.Embed(spec.num_rows, head.size or 1, w_init=init, name=f"head_{name}")(obs)
    return row[:, 0] if head.size is None else row
