"""Small networks with planted differences, of inputs `[B, 4]` and outputs `[B, 2]`."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from triglot import from_haiku, from_linen
from triglot.core.network import Network
from triglot.core.specs import Box

INPUTS = Box((4,))


def haiku_mlp(x: jax.Array) -> jax.Array:
    return hk.nets.MLP([8, 2])(x)


def haiku_without_bias(x: jax.Array) -> jax.Array:
    return hk.Linear(2)(jax.nn.relu(hk.Linear(8, with_bias=False)(x)))


def equinox_mlp(key: jax.Array) -> eqx.Module:
    return eqx.nn.MLP(4, 2, 8, 1, key=key)


class LinenMLP(nn.Module):
    dtype: Any = None
    param_dtype: Any = jnp.float32
    precision: Any = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        how: Any = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        x = nn.relu(nn.Dense(8, precision=self.precision, **how)(x))
        return nn.Dense(2, **how)(x).astype(jnp.float32)


class NNXMLP(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(4, 8, rngs=rngs)
        self.out = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.out(jax.nn.relu(self.hidden(x)))


def haiku_matrix(size: int) -> Any:
    """Return a Haiku function that multiplies with a matrix of its own, `[in, out]`."""

    def network(x: jax.Array) -> jax.Array:
        w = hk.get_parameter("w", (4, size), init=hk.initializers.RandomNormal())
        return hk.Linear(2, name="out")(jnp.tanh(x @ w))

    return network


class EquinoxMatrix(eqx.Module):
    """Multiplies with a matrix of its own, `[in, out]` or, `turned`, `[out, in]`."""

    w: Any
    out: eqx.nn.Linear
    turned: bool = eqx.field(static=True)
    stopped: bool = eqx.field(static=True)

    def __init__(
        self,
        key: jax.Array,
        *,
        size: int = 6,
        turned: bool = False,
        stopped: bool = False,
        constant: bool = False,
    ) -> None:
        own, out = jax.random.split(key)
        shape = (size, 4) if turned else (4, size)
        self.w = jax.random.normal(own, shape)
        if constant:  # a NumPy array is no parameter of an Equinox module
            self.w = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        self.out = eqx.nn.Linear(size, 2, key=out)
        self.turned, self.stopped = turned, stopped

    def __call__(self, x: jax.Array) -> jax.Array:
        w = jax.lax.stop_gradient(self.w) if self.stopped else self.w
        return self.out(jnp.tanh(w @ x if self.turned else x @ w))


@jax.custom_jvp
def halved_tanh(x: jax.Array) -> jax.Array:
    """Give half of the derivative."""
    return jnp.tanh(x)


@halved_tanh.defjvp
def _halved_tanh_jvp(primals: Any, tangents: Any) -> Any:
    return halved_tanh(*primals), 0.5 * tangents[0]


def gated(x: jax.Array) -> jax.Array:
    return jnp.tanh(x) * jax.nn.sigmoid(x)


def stopped_gate(x: jax.Array) -> jax.Array:
    return jnp.tanh(x) * jax.lax.stop_gradient(jax.nn.sigmoid(x))


def safe_root(x: jax.Array) -> jax.Array:
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)


def unsafe_root(x: jax.Array) -> jax.Array:
    """Compute the same; its gradient is NaN where `x` is negative."""
    return jnp.where(x > 0, jnp.sqrt(x), 0.0)


class Activated(nn.Module):
    """Two layers of Linen with an activation between."""

    function: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(2)(self.function(nn.Dense(8)(x)))


def haiku_activated(function: Any) -> Any:
    return lambda x: hk.Linear(2)(function(hk.Linear(8)(x)))


class EquinoxTurnedLinear(eqx.Module):
    """Uses a layer's weight `[out, in]` as if it were `[in, out]`."""

    hidden: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        hidden, out = jax.random.split(key)
        self.hidden = eqx.nn.Linear(4, 4, key=hidden)
        self.out = eqx.nn.Linear(4, 2, key=out)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.out(jax.nn.relu(x @ self.hidden.weight + jnp.asarray(self.hidden.bias)))


def haiku_square(x: jax.Array) -> jax.Array:
    return hk.nets.MLP([4, 2])(x)


def haiku_gru() -> Network:
    """Build a recurrent network, whose reset gate comes before the product."""

    def network(x: jax.Array, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, carry = hk.GRU(3)(x, carry)
        return hk.Linear(2)(x), carry

    return from_haiku(network, INPUTS, initial_carry=lambda n: jnp.zeros((n, 3)))


def linen_gru() -> Network:
    """Build a recurrent network, whose reset gate comes after the product."""

    class Recurrent(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
            carry, x = nn.GRUCell(3)(carry, x)
            return nn.Dense(2)(x), carry

    return from_linen(Recurrent(), INPUTS, initial_carry=lambda n: jnp.zeros((n, 3)))


def haiku_tied(x: jax.Array) -> jax.Array:
    """Use an embedding's transpose as the last layer."""
    embed = hk.Embed(4, 3)
    return jnp.tanh(x @ embed.embeddings) @ embed.embeddings.T


class LinenUntied(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = jnp.tanh(nn.Dense(3, use_bias=False)(x))
        return nn.Dense(4, use_bias=False)(x)


class Frozen(nnx.Variable):
    """A variable that is no `nnx.Param`."""


class NNXFrozen(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.w = Frozen(jax.random.normal(rngs.params(), (4, 6)))
        self.out = nnx.Linear(6, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.out(jnp.tanh(x @ self.w[...]))


def haiku_shared(x: jax.Array) -> jax.Array:
    layer = hk.Linear(4, name="layer")
    return hk.Linear(2, name="out")(jnp.tanh(layer(jnp.tanh(layer(x)))))


class LinenCopies(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for _ in range(2):
            x = jnp.tanh(nn.Dense(4)(x))
        return nn.Dense(2)(x)


def haiku_leaky(slope: float) -> Any:
    """Return a Haiku function with a leaky activation and, at 0.01, a missing bias."""

    def network(x: jax.Array) -> jax.Array:
        x = hk.Linear(8, with_bias=slope != 0.01)(x)
        return hk.Linear(2)(jax.nn.leaky_relu(x, slope))

    return network


class LinenDropout(nn.Module):
    rate: float = 0.5

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = nn.Dropout(self.rate, deterministic=not train)(nn.Dense(8)(x))
        return nn.Dense(2)(x)


def haiku_dropout(rate: float) -> Any:
    def network(x: jax.Array, is_training: bool) -> jax.Array:
        x = hk.Linear(8)(x)
        if is_training:
            x = hk.dropout(hk.next_rng_key(), rate, x)
        return hk.Linear(2)(x)

    return network


def haiku_scales(x: jax.Array) -> jax.Array:
    return x[:, :2] * jnp.sum(hk.get_parameter("scales", (3,), init=jnp.ones))


class ActorCritic(nn.Module):
    """Two branches of equal shapes, computed one after the other or layer by layer."""

    branchwise: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> dict[str, jax.Array]:
        if self.branchwise:
            logits = nn.Dense(2)(jnp.tanh(nn.Dense(8)(x)))
            return {"logits": logits, "value": nn.Dense(2)(jnp.tanh(nn.Dense(8)(x)))}
        critic, actor = jnp.tanh(nn.Dense(8, name="u")(x)), jnp.tanh(nn.Dense(8, name="v")(x))
        return {"logits": nn.Dense(2, name="w")(actor), "value": nn.Dense(2, name="z")(critic)}
