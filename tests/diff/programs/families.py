"""Small networks whose constants and operations a test chooses: one function per kind."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

from tests.backends.layer_cases import adapted
from tests.diff.programs.planted import build, conv, dense, layer_norm
from triglot.backends import build as build_zoo
from triglot.core.network import Network
from triglot.core.networks.architecture import MLP, NetworkSpec, RecurrentCell, value_head
from triglot.core.specs import Box

FEATURES = Box((5,))
IMAGES = Box((6, 6, 2))
TOKENS = Box((4, 6))
CELL = (Box((3,)), Box((4,)), Box((4,)))


def identity(x: jax.Array) -> jax.Array:
    return x


def exact_gelu(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x, approximate=False)


def leaky(slope: float) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jax.nn.leaky_relu(x, slope)


def inside(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-3)


def outside(x: jax.Array) -> jax.Array:
    """Add the epsilon to the root."""
    return x / (jnp.sqrt(jnp.mean(jnp.square(x), -1, keepdims=True)) + 1e-3)


def two_groups(x: jax.Array, groups: int = 2) -> jax.Array:
    """Normalize each half of the channels over itself and all positions."""
    whole = x.reshape(*x.shape[:-1], groups, -1)
    axes = (-4, -3, -1)
    centred = whole - jnp.mean(whole, axes, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(centred), axes, keepdims=True) + 1e-5)
    return (centred * scale).reshape(x.shape)


def instance_norm(x: jax.Array) -> jax.Array:
    return two_groups(x, x.shape[-1])


def in_half(x: jax.Array) -> jax.Array:
    return jax.nn.relu(x.astype(jnp.bfloat16)).astype(jnp.float32)


def rounded(x: jax.Array) -> jax.Array:
    return jax.nn.relu(jax.lax.reduce_precision(x, 8, 7))


def half_dense(inputs: int, outputs: int) -> dict[str, Any]:
    """Build a dense layer that computes in bfloat16, in the two libraries that have an option."""
    half: Any = {"dtype": jnp.bfloat16}
    return {
        "linen": lambda name: nn.Dense(outputs, name=name, **half),
        "nnx": lambda rngs: nnx.Linear(inputs, outputs, rngs=rngs, **half),
    }


def dense_without_bias(inputs: int, outputs: int) -> dict[str, Any]:
    return {"linen": lambda name: nn.Dense(outputs, use_bias=False, name=name)}


def low_precision_dense(inputs: int, outputs: int) -> dict[str, Any]:
    """Build a dense layer whose product rounds its operands to bfloat16."""
    low: Any = {"precision": jax.lax.DotAlgorithmPreset.BF16_BF16_F32}
    return {
        "linen": lambda name: nn.Dense(outputs, name=name, **low),
        "nnx": lambda rngs: nnx.Linear(inputs, outputs, rngs=rngs, **low),
    }


def mlp(
    library: str,
    activation: Callable[[jax.Array], jax.Array] = jax.nn.relu,
    norm: Callable[..., dict[str, Any]] = layer_norm,
    after: Callable[[jax.Array], jax.Array] = identity,
    first: Callable[[int, int], dict[str, Any]] = dense,
    features: int = 5,
    **options: Any,
) -> Network:
    """A dense layer, a norm, an activation, a dense layer."""

    def forward(call: Any, x: jax.Array, train: bool) -> jax.Array:
        return after(call("last", activation(call("norm", call("first", x)))))

    layers = {"first": first(features, 8), "norm": norm(8, **options), "last": dense(8, 3)}
    return build(library, Box((features,)), layers, forward)


def cnn(
    library: str,
    *,
    flatten: Callable[[jax.Array], jax.Array] = identity,
    pool: Callable[[jax.Array], jax.Array] | None = None,
    size: int = 6 * 6 * 3,
    channels: int = 3,
    activation: Callable[[jax.Array], jax.Array] = jax.nn.relu,
    **options: Any,
) -> Network:
    """A convolution, an activation and a dense layer, with a flattening or a pooling between."""

    def forward(call: Any, x: jax.Array, train: bool) -> jax.Array:
        x = activation(call("conv", x))
        if pool is not None:
            return call("last", pool(x))
        x = flatten(x)
        return call("last", x.reshape(*x.shape[:-3], -1))

    layers = {"conv": conv(2, channels, **options), "last": dense(size, 4)}
    return build(library, IMAGES, layers, forward)


def global_mean(x: jax.Array) -> jax.Array:
    return jnp.mean(x, (-3, -2))


def max_pool(padding: str) -> Callable[[jax.Array], jax.Array]:
    """Take the maximum of windows of 3 by 3 with stride 2, then the mean."""

    def pool(x: jax.Array) -> jax.Array:
        ones = (1,) * (x.ndim - 3)
        window, strides = (*ones, 3, 3, 1), (*ones, 2, 2, 1)
        return global_mean(
            jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, padding)
        )

    return pool


def attention(
    library: str,
    *,
    scale: float | None = 3**-0.5,
    mask: Callable[[int], jax.Array] | None = None,
    scale_first: bool = False,
    heads: int = 2,
    activation: Callable[[jax.Array], jax.Array] = identity,
) -> Network:
    """Self-attention of 4 tokens with 6 features, written with dense layers."""

    def forward(call: Any, x: jax.Array, train: bool) -> jax.Array:
        def split(array: jax.Array) -> jax.Array:
            return array.reshape(*array.shape[:-1], heads, array.shape[-1] // heads)

        q, k, v = (split(call(name, x)) for name in ("query", "key", "value"))
        if scale is not None and scale_first:
            q = q * scale
        logits = jnp.einsum("...qhd,...khd->...hqk", q, k)
        if scale is not None and not scale_first:
            logits = logits * scale
        if mask is not None:
            keep = jnp.broadcast_to(mask(x.shape[-2]), logits.shape)
            logits = jnp.where(keep, logits, -1e30)
        mixed = jnp.einsum("...hqk,...khd->...qhd", jax.nn.softmax(logits), v)
        return call("out", activation(mixed.reshape(*x.shape)))

    layers = {name: dense(6, 6) for name in ("query", "key", "value", "out")}
    return build(library, TOKENS, layers, forward)


def causal(size: int) -> jax.Array:
    return jnp.tril(jnp.ones((size, size), bool))


def no_self(size: int) -> jax.Array:
    return ~jnp.eye(size, dtype=bool)


def lstm(
    library: str,
    *,
    forget: float = 0.0,
    order: str = "ifgo",
    squash: Callable[[jax.Array], jax.Array] = jnp.tanh,
) -> Network:
    """An LSTM's step, written with one dense layer; `order` is that of its gates."""

    def forward(call: Any, x: jax.Array, h: jax.Array, c: jax.Array, train: bool) -> Any:
        pieces = jnp.split(call("gates", jnp.concatenate([x, h], -1)), 4, -1)
        gate = dict(zip(order, pieces, strict=True))
        kept = jax.nn.sigmoid(gate["f"] + forget if forget else gate["f"]) * c
        c = kept + jax.nn.sigmoid(gate["i"]) * jnp.tanh(gate["g"])
        h = jax.nn.sigmoid(gate["o"]) * squash(c)
        return call("last", h), h, c

    return build(library, CELL, {"gates": dense(7, 16), "last": dense(4, 2)}, forward)


def gru(library: str, *, reset: str = "after", keep_old: bool = True) -> Network:
    """A GRU's step, written with dense layers."""

    def forward(call: Any, x: jax.Array, h: jax.Array, _: jax.Array, train: bool) -> Any:
        gates = jax.nn.sigmoid(call("gates", jnp.concatenate([x, h], -1)))
        r, z = jnp.split(gates, 2, -1)
        inner = call("inner", r * h) if reset == "before" else r * call("inner", h)
        n = jnp.tanh(call("outer", x) + inner)
        h = z * h + (1 - z) * n if keep_old else (1 - z) * h + z * n
        return call("last", h), h

    layers = {"gates": dense(7, 8), "inner": dense(4, 4), "outer": dense(3, 4), "last": dense(4, 2)}
    return build(library, CELL, layers, forward)


def zoo(library: str, cell: str | None = None) -> Network:
    """A network of the zoo: an MLP, or a recurrent cell."""
    kind = RecurrentCell(cell, 4) if cell else None
    spec = NetworkSpec(FEATURES, MLP((6,)), (("value", value_head()),), cell=kind)
    return build_zoo(library, {"critic": spec})


def dropout(library: str, rate: float, *, always: bool = False) -> Network:
    """A dense layer, dropout and a dense layer; `always` drops in evaluation too."""

    class Linen(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
            x = nn.Dense(8, name="first")(x)
            return nn.Dense(3, name="last")(nn.Dropout(rate, deterministic=not train)(x))

    class NNX(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.first, self.last = nnx.Linear(5, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)
            self.drop = nnx.Dropout(rate, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.last(self.drop(self.first(x)))

    class Equinox(eqx.Module):
        first: eqx.nn.Linear
        drop: eqx.nn.Dropout
        last: eqx.nn.Linear

        def __init__(self, key: jax.Array) -> None:
            one, two = jax.random.split(key)
            self.first, self.last = eqx.nn.Linear(5, 8, key=one), eqx.nn.Linear(8, 3, key=two)
            self.drop = eqx.nn.Dropout(rate)

        def __call__(self, x: jax.Array, key: jax.Array | None = None) -> jax.Array:
            return self.last(self.drop(self.first(x), key=key))

    def haiku(x: jax.Array, train: bool) -> jax.Array:
        x = hk.Linear(8, name="first")(x)
        if train or always:
            x = hk.dropout(hk.next_rng_key(), rate, x)
        return hk.Linear(3, name="last")(x)

    return adapted(library, FEATURES, haiku, Linen, NNX, Equinox)


def batch_norm(
    library: str, momentum: float = 0.9, epsilon: float = 1e-5, mode: Any = "batch"
) -> Network:
    """A dense layer, batch normalization and a dense layer; `mode` is Equinox's."""

    class Linen(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
            x = nn.Dense(8, name="first")(x)
            how: Any = {"momentum": momentum, "epsilon": epsilon}
            x = nn.BatchNorm(use_running_average=not train, name="norm", **how)(x)
            return nn.Dense(3, name="last")(x)

    class NNX(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.first, self.last = nnx.Linear(5, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)
            self.norm = nnx.BatchNorm(8, momentum=momentum, epsilon=epsilon, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.last(self.norm(self.first(x)))

    class Equinox(eqx.Module):
        first: eqx.nn.Linear
        norm: eqx.nn.BatchNorm
        last: eqx.nn.Linear

        def __init__(self, key: jax.Array) -> None:
            one, two = jax.random.split(key)
            self.first, self.last = eqx.nn.Linear(5, 8, key=one), eqx.nn.Linear(8, 3, key=two)
            self.norm = eqx.nn.BatchNorm(8, "batch", epsilon, momentum=momentum, mode=mode)

        def __call__(self, x: jax.Array, state: eqx.nn.State) -> Any:
            x, state = self.norm(self.first(x), state)
            return self.last(x), state

    def haiku(x: jax.Array, train: bool) -> jax.Array:
        x = hk.Linear(8, name="first")(x)
        x = hk.BatchNorm(True, True, momentum, epsilon, name="norm")(x, train)
        return hk.Linear(3, name="last")(x)

    return adapted(library, FEATURES, haiku, Linen, NNX, Equinox)
