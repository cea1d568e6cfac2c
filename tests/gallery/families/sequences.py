"""Sequences: language models of LSTM and GRU, WaveNet, and PixelCNN's masked convolutions."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

from triglot.core.specs import Box

from ..pair import Bug, Pair


class HaikuLSTM(hk.RNNCore):
    """Zaremba et al. 2014."""

    def __init__(self, width, name=None):
        super().__init__(name=name)
        self.width = width

    def __call__(self, x, carry):
        h, c = carry
        gates = hk.Linear(4 * self.width, name="gates")(jnp.concatenate([x, h], -1))
        i, f, g, o = jnp.split(gates, 4, -1)  # counterpart: gate_order
        forget = jax.nn.sigmoid(f + 1.0)  # counterpart: forget_bias, gate_order
        c = forget * c + jax.nn.sigmoid(i) * jnp.tanh(g)  # counterpart: gate_order
        h = jax.nn.sigmoid(o) * jnp.tanh(c)  # counterpart: cell_tanh, gate_order
        return h, (h, c)

    def initial_state(self, batch_size) -> Any:
        zeros = jnp.zeros((batch_size, self.width))
        return zeros, zeros


def haiku_lstm(width=16, depth=2, vocabulary=40):
    def network(tokens):
        x: Any = hk.Embed(vocabulary, width)(tokens).swapaxes(0, 1)
        for index in range(depth):
            core: Any = HaikuLSTM(width, name=f"lstm_{index}")
            x, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
        return hk.Linear(vocabulary)(x.swapaxes(0, 1))

    return network


class EquinoxLSTM(eqx.Module):
    gates: eqx.nn.Linear
    bug: str = eqx.field(static=True)

    def __init__(self, width, bug, key):
        self.gates, self.bug = eqx.nn.Linear(2 * width, 4 * width, key=key), bug

    def __call__(self, xs):
        def step(carry, x):
            h, c = carry
            parts = jnp.split(self.gates(jnp.concatenate([x, h])), 4)
            i, f, g, o = parts
            if self.bug == "gate_order":
                i, g, f, o = parts  # planted: gate_order
            bias = 0.0 if self.bug == "forget_bias" else 1.0  # planted: forget_bias
            forget = jax.nn.sigmoid(f + bias)  # planted: forget_bias, gate_order
            c = forget * c + jax.nn.sigmoid(i) * jnp.tanh(g)  # planted: gate_order
            shown = c if self.bug == "cell_tanh" else jnp.tanh(c)  # planted: cell_tanh
            h = jax.nn.sigmoid(o) * shown  # planted: cell_tanh, gate_order
            return (h, c), h

        zeros = jnp.zeros(xs.shape[1:])
        return jax.lax.scan(step, (zeros, zeros), xs)[1]


class EquinoxLSTMModel(eqx.Module):
    embed: eqx.nn.Embedding
    layers: list[EquinoxLSTM]
    out: eqx.nn.Linear

    def __init__(self, width, depth, vocabulary, bug, key):
        keys = jax.random.split(key, depth + 2)
        self.embed = eqx.nn.Embedding(vocabulary, width, key=keys[0])
        self.layers = [EquinoxLSTM(width, bug, each) for each in keys[2:]]
        self.out = eqx.nn.Linear(width, vocabulary, key=keys[1])

    def __call__(self, tokens):
        x = jax.vmap(self.embed)(tokens)
        for layer in self.layers:
            x = layer(x)
        return jax.vmap(self.out)(x)


def equinox_lstm(width=16, depth=2, vocabulary=40, bug=""):
    return lambda key: EquinoxLSTMModel(width, depth, vocabulary, bug, key)


class LinenGRUStep(nn.Module):
    """Cho et al. 2014; the reset gate applies after the product, as in cuDNN."""

    width: int

    @nn.compact
    def __call__(self, h, x):
        inputs = nn.Dense(3 * self.width, name="inputs")(x)
        recurrent = nn.Dense(3 * self.width, name="recurrent")(h)
        ri, zi, ni = jnp.split(inputs, 3, -1)
        rh, zh, nh = jnp.split(recurrent, 3, -1)  # counterpart: reset_input
        r, z = nn.sigmoid(ri + rh), nn.sigmoid(zi + zh)
        n = jnp.tanh(ni + r * nh)  # counterpart: reset_input, sigmoid_candidate
        h = (1 - z) * n + z * h  # counterpart: update_swapped
        return h, h


class LinenGRU(nn.Module):
    width: int = 16
    vocabulary: int = 40

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        how = {"variable_broadcast": "params", "split_rngs": {"params": False}}
        scanned = nn.scan(LinenGRUStep, in_axes=1, out_axes=1, **how)(self.width)
        _, x = scanned(jnp.zeros((len(x), self.width)), x)
        return nn.Dense(self.vocabulary)(x)


class NNXGRU(nnx.Module):
    def __init__(self, width, vocabulary, bug, rngs):
        self.embed = nnx.Embed(vocabulary, width, rngs=rngs)
        self.inputs = nnx.Linear(width, 3 * width, rngs=rngs)
        self.recurrent = nnx.Linear(width, 3 * width, rngs=rngs)
        self.out = nnx.Linear(width, vocabulary, rngs=rngs)
        self.bug = bug

    def step(self, h, x):
        ri, zi, ni = jnp.split(self.inputs(x), 3, -1)
        rh, zh, nh = jnp.split(self.recurrent(h), 3, -1)
        r, z = nnx.sigmoid(ri + rh), nnx.sigmoid(zi + zh)
        candidate = (
            r * ni + nh if self.bug == "reset_input" else ni + r * nh
        )  # planted: reset_input
        activation = nnx.sigmoid if self.bug == "sigmoid_candidate" else jnp.tanh
        n = activation(candidate)  # planted: sigmoid_candidate, reset_input
        if self.bug == "update_swapped":
            return z * n + (1 - z) * h  # planted: update_swapped
        return (1 - z) * n + z * h

    def __call__(self, tokens):
        h, outputs = jnp.zeros((len(tokens), self.out.in_features)), []
        for x in self.embed(tokens).swapaxes(0, 1):
            h = self.step(h, x)
            outputs.append(h)
        return self.out(jnp.stack(outputs, 1))


def nnx_gru(width=16, vocabulary=40, bug=""):
    return lambda rngs: NNXGRU(width, vocabulary, bug, rngs)


class LinenWaveNet(nn.Module):
    """Van den Oord et al. 2016, with the dilations 1, 2, 4, ..."""

    width: int = 16
    layers: int = 4

    @nn.compact
    def __call__(self, audio):
        x, skips = nn.Conv(self.width, (2,), padding="CAUSAL")(audio), 0.0
        for index in range(self.layers):
            dilation = 2**index
            conv = nn.Conv(2 * self.width, (2,), padding="CAUSAL", kernel_dilation=dilation)
            y = conv(x)  # counterpart: undilated, not_causal
            a, b = jnp.split(y, 2, -1)
            y = jnp.tanh(a) * nn.sigmoid(b)  # counterpart: halves
            skips += nn.Dense(self.width)(y)  # counterpart: skip_source
            x = x + nn.Dense(self.width)(y)  # counterpart: skip_source
        return nn.Dense(8)(nn.relu(nn.Dense(self.width)(nn.relu(skips))))


def haiku_wavenet(width=16, layers=4, bug=""):
    def network(audio):
        x, skips = hk.Conv1D(width, 2, padding=hk.pad.causal)(audio), 0.0
        for index in range(layers):
            rate = 2 * index + 1 if bug == "undilated" else 2**index  # planted: undilated
            padding = hk.pad.same if bug == "not_causal" else hk.pad.causal  # planted: not_causal
            conv = hk.Conv1D(2 * width, 2, rate=rate, padding=padding)
            y = conv(x)  # planted: undilated, not_causal
            a, b = jnp.split(y, 2, -1)
            if bug == "halves":
                a, b = b, a  # planted: halves
            y = jnp.tanh(a) * jax.nn.sigmoid(b)  # planted: halves
            skip = hk.Linear(width)(y)
            y = hk.Linear(width)(y)
            skips += x if bug == "skip_source" else skip  # planted: skip_source
            x = x + y
        return hk.Linear(8)(jax.nn.relu(hk.Linear(width)(jax.nn.relu(skips))))

    return network


def haiku_pixelcnn(width=16, layers=2):
    """Van den Oord et al. 2016: no pixel sees itself or what follows it."""

    def network(image):
        mask = jnp.ones((5, 5)).at[2, 2:].set(0).at[3:].set(0)[..., None, None]
        x = hk.Conv2D(width, 5, mask=jnp.tile(mask, (1, 1, 1, width)))(image)  # counterpart: mask_b
        mask = jnp.ones((3, 3)).at[1, 2:].set(0).at[2:].set(0)[..., None, None]
        for _ in range(layers):
            y = hk.Conv2D(width, 1)(jax.nn.relu(x))
            y = hk.Conv2D(width, 3, mask=jnp.tile(mask, (1, 1, width, width)))(jax.nn.relu(y))
            x = x + y  # counterpart: mask_rows
        return hk.Conv2D(4, 1)(jax.nn.relu(x))  # counterpart: final_relu

    return network


class LinenPixelCNN(nn.Module):
    width: int = 16
    layers: int = 2
    bug: str = ""

    @nn.compact
    def __call__(self, image):
        def mask(size, first):
            centre, fill = size // 2, 1 if first else 0
            rows = jnp.ones((size, size)).at[centre, centre + 1 - fill :].set(0)
            below = centre + 2 if self.bug == "mask_rows" and not first else centre + 1
            return rows.at[below:].set(0)[..., None, None]  # planted: mask_rows

        first = mask(5, self.bug != "mask_b")  # planted: mask_b
        first = jnp.tile(first, (1, 1, 1, self.width))
        x = nn.Conv(self.width, (5, 5), mask=first)(image)  # planted: mask_b
        later = jnp.tile(mask(3, False), (1, 1, self.width, self.width))
        for _ in range(self.layers):
            y = nn.Conv(self.width, (1, 1))(nn.relu(x))
            x = x + nn.Conv(self.width, (3, 3), mask=later)(nn.relu(y))  # planted: mask_rows
        x = x if self.bug == "final_relu" else nn.relu(x)
        return nn.Conv(4, (1, 1))(x)  # planted: final_relu


TOKENS = Box((6,), "int32", 0, 39)
PAIRS = (
    Pair(
        name="lstm_lm",
        source="Zaremba et al. 2014",
        libraries=("haiku", "equinox"),
        one=haiku_lstm,
        other=equinox_lstm,
        inputs=TOKENS,
        bugs=(
            Bug("forget_bias", ("lstm_forget_bias",), "leaves out the 1 of the forget gate"),
            Bug("gate_order", ("lstm_forget_bias",), "splits gates as i, g, f, o"),
            Bug("cell_tanh", ("activation",), "leaves out the tanh of the cell"),
        ),
    ),
    Pair(
        name="gru_lm",
        source="Cho et al. 2014",
        libraries=("linen", "nnx"),
        one=LinenGRU,
        other=nnx_gru,
        inputs=TOKENS,
        bugs=(
            Bug("reset_input", ("gru_variant",), "resets the input's part of the candidate"),
            Bug("sigmoid_candidate", ("activation",), "sigmoid for tanh"),
            Bug("update_swapped", ("gru_variant",), "the update gate keeps the candidate"),
        ),
    ),
    Pair(
        name="wavenet",
        source="van den Oord et al. 2016",
        libraries=("linen", "haiku"),
        one=LinenWaveNet,
        other=haiku_wavenet,
        inputs=Box((20, 1)),
        bugs=(
            Bug("undilated", ("dilation",), "dilations 1, 3, 5, 7 for 1, 2, 4, 8"),
            Bug("not_causal", ("padding",), "pads on both sides, so that outputs see the future"),
            Bug("halves", ("operand_order", "activation"), "gates with the other half"),
            Bug("skip_source", ("operand_source", "residual_source"), "skips the block's input"),
        ),
    ),
    Pair(
        name="pixelcnn",
        source="van den Oord et al. 2016",
        libraries=("haiku", "linen"),
        one=haiku_pixelcnn,
        other=LinenPixelCNN,
        inputs=Box((8, 8, 1)),
        bugs=(
            Bug("mask_b", ("causal_mask_offset",), "the first layer sees the pixel"),
            Bug("mask_rows", ("causal_mask_offset",), "sees a row too many"),
            Bug("final_relu", ("activation",), "leaves out the last ReLU"),
        ),
    ),
)
