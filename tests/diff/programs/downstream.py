"""Networks with a cause planted upstream of a layer of each kind, in Linen and in NNX."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from tests.diff.programs import families as f
from tests.diff.programs.planted import build, conv, dense, group_norm, layer_norm, rms_norm
from triglot.core.network import Network
from triglot.core.specs import Box

TOKENS, SIZE = 4, 6
SPEC = Box((TOKENS, SIZE))  # what every cause hands on to the layer behind it: [..., 4, 6]
Layers = dict[str, Any]
Forward = Callable[..., jax.Array]


class Part(NamedTuple):
    """Some layers, and a function of them: `forward(call, x, train)`."""

    layers: Layers
    forward: Forward


def tokens(x: jax.Array) -> jax.Array:
    """Arrange 24 features as tokens."""
    return x.reshape(*x.shape[:-1], TOKENS, SIZE)


# Layers of one library each.


def conv_over_tokens(padding: Any = "SAME") -> Layers:
    return {
        "linen": lambda name: nn.Conv(SIZE, (3,), padding=padding, name=name),
        "nnx": lambda rngs: nnx.Conv(SIZE, SIZE, (3,), padding=padding, rngs=rngs),
    }


def batch_norm(**how: Any) -> Layers:
    return {
        "linen": lambda name: nn.BatchNorm(name=name, **how),
        "nnx": lambda rngs: nnx.BatchNorm(SIZE, rngs=rngs, **how),
    }


class RunningNorm(nn.Module):
    """Normalize by the running average in training too."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        kept = {}
        axes = tuple(range(x.ndim - 1))
        batch = {"mean": jnp.mean(x, axes), "var": jnp.var(x, axes)}
        for name, start in (("mean", 0.0), ("var", 1.0)):
            known = self.variable("batch_stats", name, lambda s=start: jnp.full(SIZE, s))
            kept[name] = 0.9 * known.value + 0.1 * batch[name] if train else known.value
            if train and not self.is_initializing():
                known.value = kept[name]
        scale = self.param("scale", nn.initializers.ones, (SIZE,))
        bias = self.param("bias", nn.initializers.zeros, (SIZE,))
        return (x - kept["mean"]) * jax.lax.rsqrt(kept["var"] + 1e-5) * scale + bias


def dropout(rate: float) -> Layers:
    return {
        "linen": lambda name: nn.Dropout(rate, name=name),
        "nnx": lambda rngs: nnx.Dropout(rate, rngs=rngs),
    }


def embedding() -> Layers:
    return {
        "linen": lambda name: nn.Embed(SIZE, SIZE, name=name),
        "nnx": lambda rngs: nnx.Embed(SIZE, SIZE, rngs=rngs),
    }


# Functions of layers.


def one(name: str, after: Callable[[jax.Array], jax.Array] = f.identity) -> Forward:
    return lambda call, x, train: after(call(name, x, train))


def attend(
    call: Any,
    x: jax.Array,
    train: bool,
    *,
    scale: float = 3**-0.5,
    mask: Any = None,
    heads: int = 2,
) -> jax.Array:
    """Attend between tokens, with dense layers."""

    def split(name: str) -> jax.Array:
        array = call(name, x)
        return array.reshape(*array.shape[:-1], heads, SIZE // heads)

    logits = jnp.einsum("...qhd,...khd->...hqk", split("query"), split("key")) * scale
    if mask is not None:
        keep = jnp.broadcast_to(mask(TOKENS), logits.shape)
        logits = jnp.where(keep, logits, -1e30)
    mixed = jnp.einsum("...hqk,...khd->...qhd", jax.nn.softmax(logits), split("value"))
    return call("mixed", mixed.reshape(*x.shape))


ATTENTION = {name: dense(SIZE, SIZE) for name in ("query", "key", "value", "mixed")}


def scan_lstm(
    call: Any, x: jax.Array, train: bool, *, forget: float = 0.0, order: str = "ifgo"
) -> jax.Array:
    """Run an LSTM over the tokens, with a dense layer."""
    h = c = jnp.zeros_like(x[..., 0, :]) + 0.1
    rows = []
    for token in range(TOKENS):
        pieces = jnp.split(call("gates", jnp.concatenate([x[..., token, :], h], -1)), 4, -1)
        gate = dict(zip(order, pieces, strict=True))
        kept = jax.nn.sigmoid(gate["f"] + forget if forget else gate["f"]) * c
        c = kept + jax.nn.sigmoid(gate["i"]) * jnp.tanh(gate["g"])
        h = jax.nn.sigmoid(gate["o"]) * jnp.tanh(c)
        rows.append(h)
    return jnp.stack(rows, -2)


def step_gru(call: Any, x: jax.Array, train: bool, *, before: bool) -> jax.Array:
    """Compute one step of a GRU with the next token as the state."""
    h = jnp.roll(x, 1, -2)
    r, z = jnp.split(jax.nn.sigmoid(call("gates", jnp.concatenate([x, h], -1))), 2, -1)
    inner = call("inner", r * h) if before else r * call("inner", h)
    return z * h + (1 - z) * jnp.tanh(call("outer", x) + inner)


def pool(x: jax.Array) -> jax.Array:
    ones = (1,) * (x.ndim - 2)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (*ones, 2, 1), (*ones, 1, 1), "SAME")


def embedded(call: Any, x: jax.Array, train: bool) -> jax.Array:
    """Add an embedding of the largest feature."""
    return x + call("embed", jnp.argmax(x, -1))


DOWNSTREAM: dict[str, Part] = {
    "dense": Part({"dense": dense(SIZE, SIZE)}, one("dense")),
    "convolution": Part({"conv": conv_over_tokens()}, one("conv")),
    "BatchNorm": Part({"norm": batch_norm(momentum=0.9)}, one("norm")),
    "LayerNorm": Part({"norm": layer_norm(SIZE)}, one("norm")),
    "GroupNorm": Part({"norm": group_norm(SIZE)}, one("norm")),
    "RMSNorm": Part({"norm": rms_norm(SIZE)}, one("norm")),
    "attention": Part(ATTENTION, attend),
    "recurrent cell": Part({"gates": dense(2 * SIZE, 4 * SIZE)}, scan_lstm),
    "pooling": Part({}, lambda call, x, train: pool(x)),
    "dropout": Part({"dropout": dropout(0.5)}, one("dropout")),
    "activation": Part({}, lambda call, x, train: jax.nn.gelu(x)),
    "embedding": Part({"embed": embedding()}, embedded),
}


class Planted(NamedTuple):
    """A cause: its two variants, and the spec of the inputs."""

    one: Part
    other: Part
    inputs: Box = SPEC


def variants(layers: Layers, forward: Forward, first: Any, second: Any) -> Planted:
    """Plant another argument of `forward`."""
    one, other = (Part(layers, partial(forward, **options)) for options in (first, second))
    return Planted(one, other)


def activated(call: Any, x: jax.Array, train: bool, *, by: Any) -> jax.Array:
    return by(call("first", x))


def then(call: Any, x: jax.Array, train: bool) -> jax.Array:
    return call("then", call("first", x), train)


def behind_dense(first: Layers, second: Layers) -> Planted:
    """Plant another layer behind a dense one."""
    one, other = (Part({**FIRST, "then": layer}, then) for layer in (first, second))
    return Planted(one, other)


def image(how: Any) -> Part:
    """A convolution, and the mean of its positions."""

    def forward(call: Any, x: jax.Array, train: bool) -> jax.Array:
        return tokens(jnp.mean(jax.nn.relu(call("first", x)), (-3, -2)))

    return Part({"first": conv(2, TOKENS * SIZE, **how)}, forward)


def images(first: Any, second: Any) -> Planted:
    return Planted(image(first), image(second), f.IMAGES)


def flattened(call: Any, x: jax.Array, train: bool, *, axes: tuple[int, ...]) -> jax.Array:
    x = call("first", x)
    lead = tuple(range(x.ndim - 2))
    moved = jnp.transpose(x, (*lead, *(len(lead) + axis for axis in axes)))
    return tokens(call("second", moved.reshape(*x.shape[:-2], -1)))


TWO = {"first": dense(SIZE, SIZE), "second": dense(TOKENS * SIZE, TOKENS * SIZE)}
FIRST = {"first": dense(SIZE, SIZE)}
LSTM = {"gates": dense(2 * SIZE, 4 * SIZE)}
GRU = {"gates": dense(2 * SIZE, 2 * SIZE), "inner": dense(SIZE, SIZE), "outer": dense(SIZE, SIZE)}


def tilted(x: jax.Array) -> jax.Array:
    return 1.1 * jnp.tanh(x) + 0.1


def both_axes(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    mean = jnp.mean(x, axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.mean(jnp.square(x - mean), axes, keepdims=True) + 1e-5)


UPSTREAM: dict[str, Planted] = {
    "activation": variants(FIRST, activated, {"by": jax.nn.gelu}, {"by": f.exact_gelu}),
    "attention_heads": variants(ATTENTION, attend, {"heads": 2}, {"heads": 3}),
    "attention_mask": variants(ATTENTION, attend, {"mask": f.causal}, {}),
    "attention_scale": variants(ATTENTION, attend, {}, {"scale": 0.3}),
    "dilation": images({"padding": ((1, 1), (1, 1))}, {"padding": ((2, 2), (2, 2)), "dilation": 2}),
    "padding": images({"padding": ((1, 1), (1, 1))}, {"padding": ((2, 0), (2, 0))}),
    "padding, another size": images({"padding": "SAME"}, {"padding": "VALID"}),
    "stride": images({"padding": "SAME"}, {"padding": "SAME", "stride": 2}),
    "dropout": behind_dense(dropout(0.5), dropout(0.25)),
    "dtype": variants(FIRST, activated, {"by": jax.nn.relu}, {"by": f.in_half}),
    "flatten_order": variants(TWO, flattened, {"axes": (0, 1)}, {"axes": (1, 0)}),
    "gru_variant": variants(GRU, step_gru, {"before": True}, {"before": False}),
    "lstm_forget_bias": variants(LSTM, scan_lstm, {"forget": 1.0}, {}),
    "missing_bias": Planted(
        Part({"first": f.dense_without_bias(SIZE, SIZE)}, one("first", jnp.tanh)),
        Part(FIRST, one("first", jnp.tanh)),
    ),
    "norm_axis": variants(
        FIRST,
        activated,
        {"by": partial(both_axes, axes=(-1,))},
        {"by": partial(both_axes, axes=(-2, -1))},
    ),
    "norm_epsilon": behind_dense(layer_norm(SIZE), layer_norm(SIZE, 1e-3)),
    "norm_kind": behind_dense(layer_norm(SIZE), group_norm(SIZE)),
    "norm_momentum": behind_dense(batch_norm(momentum=0.9), batch_norm(momentum=0.8)),
    "norm_statistics": behind_dense(
        {"linen": lambda name: RunningNorm(name=name)}, batch_norm(momentum=0.9)
    ),
    "precision": variants(FIRST, activated, {"by": f.rounded}, {"by": jax.nn.relu}),
    "operation_differs": variants(
        FIRST,
        activated,
        {"by": lambda x: jnp.log1p(x * x)},
        {"by": lambda x: jnp.exp(-(jnp.abs(x) ** 3))},
    ),
    "unknown": variants(
        FIRST,
        activated,
        {"by": lambda x: jnp.log1p(x * x) + jnp.sin(x) * jnp.cos(x)},
        {"by": lambda x: jnp.exp(-(jnp.abs(x) ** 3)) - jnp.sinh(x) / jnp.cosh(x)},
    ),
}


def network(library: str, upstream: Part, downstream: Part, inputs: Box) -> Network:
    """Build a network: a cause, a layer behind it, and a dense layer."""
    layers = {f"up_{name}": layer for name, layer in upstream.layers.items()}
    layers |= {f"down_{name}": layer for name, layer in downstream.layers.items()}
    layers["last"] = dense(SIZE, 3)

    def forward(call: Any, x: jax.Array, train: bool) -> jax.Array:
        for prefix, part in (("up", upstream), ("down", downstream)):
            x = part.forward(
                lambda name, x, train=train, prefix=prefix: call(f"{prefix}_{name}", x, train),
                x,
                train,
            )
        return call("last", x)

    return build(library, inputs, layers, forward)
