"""Rounding in the types in which two networks compute: ordinary, or a difference that matters."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from triglot import diff_networks
from triglot.core.errors import TriglotError
from triglot.core.specs import Box

pytestmark = pytest.mark.library_promotion("norms and softmaxes mix dtypes")

LOW = jnp.bfloat16
TOKENS = Box((5, 16))
OFFSET = 3000.0


class Norm(nn.Module):
    fast: bool = False
    offset: float = OFFSET

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        norm = nn.LayerNorm(epsilon=1e-5, use_fast_variance=self.fast, name="norm")
        return nn.Dense(3, name="out")(norm(x + self.offset))


class EquinoxNorm(eqx.Module):
    norm: eqx.nn.LayerNorm
    out: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        self.norm, self.out = eqx.nn.LayerNorm(16), eqx.nn.Linear(16, 3, key=key)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.out(self.norm(x + OFFSET))


def attend(q: Any, k: Any, v: Any, *, upcast: bool, dtype: Any) -> jax.Array:
    """Attend with heads of 8 features, `[..., T, 16]`."""
    q, k, v = (each.reshape(*each.shape[:-1], 2, 8) for each in (q, k, v))
    logits = jnp.einsum("...qhd,...khd->...hqk", q, k) / jnp.sqrt(8).astype(dtype)
    weights = jax.nn.softmax(logits.astype(jnp.float32) if upcast else logits).astype(dtype)
    return jnp.einsum("...hqk,...khd->...qhd", weights, v).reshape(*q.shape[:-2], 16)


class LinenAttention(nn.Module):
    upcast: bool = True
    dtype: Any = LOW

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.astype(self.dtype)
        q, k, v = (nn.Dense(16, dtype=self.dtype, name=name)(x) for name in "qkv")
        y = attend(q, k, v, upcast=self.upcast, dtype=self.dtype)
        return nn.Dense(16, dtype=self.dtype, name="o")(y).astype(jnp.float32)


class NNXAttention(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, upcast: bool = True, dtype: Any = LOW) -> None:
        layers = [nnx.Linear(16, 16, dtype=dtype, rngs=rngs) for _ in range(4)]
        self.q, self.k, self.v, self.o = layers
        self.upcast, self.dtype = upcast, dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.astype(self.dtype)
        y = attend(self.q(x), self.k(x), self.v(x), upcast=self.upcast, dtype=self.dtype)
        return self.o(y).astype(jnp.float32)


def nnx_attention(rngs: nnx.Rngs) -> NNXAttention:
    return NNXAttention(rngs, upcast=False)


def nnx_attention_half(rngs: nnx.Rngs) -> NNXAttention:
    return NNXAttention(rngs, upcast=False, dtype=jnp.float16)


class Sums(nn.Module):
    """Dense layers in bfloat16, with sums of products in blocks and in another order."""

    blocks: int = 1
    normalized: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.astype(LOW)
        for name in ("first", "second", "third"):
            kernel = self.param(name, nn.initializers.lecun_normal(), (16, 16)).astype(LOW)
            size = 16 // self.blocks
            parts = [x[..., i : i + size] @ kernel[i : i + size] for i in range(0, 16, size)]
            x = sum(parts[-2::-1], parts[-1])
            if self.normalized:
                x = nn.LayerNorm(dtype=LOW, name=f"norm_{name}")(x)
            x = nn.gelu(x)
        return x.astype(jnp.float32)


def haiku_sums(x: jax.Array) -> jax.Array:
    x = x.astype(LOW)
    for name in ("first", "second", "third"):
        start = hk.initializers.VarianceScaling()
        x = jax.nn.gelu(x @ hk.get_parameter(name, (16, 16), init=start).astype(LOW))
    return x.astype(jnp.float32)


class Scaled(nn.Module):
    """One factor, written as a product or as a quotient of a number of bfloat16."""

    divides: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Dense(16, dtype=LOW, name="layer")(x.astype(LOW))
        y = y / float(np.sqrt(8)) if self.divides else y * float(1 / np.sqrt(8))
        return nn.Dense(4, dtype=LOW, name="out")(y).astype(jnp.float32)


class Stopped(nn.Module):
    """Layers in bfloat16, of which the first may get no gradient from one of its uses."""

    stops: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Dense(16, dtype=LOW, name="layer")(x.astype(LOW))
        gate = jax.lax.stop_gradient(y) if self.stops else y
        y = nn.Dense(4, dtype=LOW, name="out")(y * nn.sigmoid(gate))
        return y.astype(jnp.float32)


@pytest.mark.slow
def test_gradients_in_bfloat16() -> None:
    report = diff_networks(Stopped(), Stopped(stops=True), TOKENS)
    assert report.verdict == "different"
    assert {cause.name for cause in report.causes} == {"stop_gradient"}
    assert "test_rounding.py:" in report.causes[0].where


PLANTED = {
    "fast variance": (Norm(), Norm(fast=True), "conditioning", "E[x^2] - E[x]^2"),
    "softmax in bfloat16": (LinenAttention(), nnx_attention, "dtype", ""),
    "softmax in float16": (
        LinenAttention(dtype=jnp.float16), nnx_attention_half, "dtype", "",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other", "name", "words"), PLANTED.values(), ids=PLANTED)
def test_rounding_that_matters_is_a_difference(one: Any, other: Any, name: str, words: str) -> None:
    report = diff_networks(one, other, TOKENS if name == "dtype" else Box((16,)))
    assert report.verdict == "different"
    causes = [cause for cause in report.causes if cause.name != "initializer"]
    assert [cause.name for cause in causes] == [name]
    assert words in causes[0].evidence and "test_rounding.py:" in causes[0].where
    assert report.first_difference is not None


CLEAN = {
    "two forms of a norm": (Norm(), EquinoxNorm, Box((16,))),
    "attention in bfloat16": (LinenAttention(), NNXAttention, TOKENS),
    "softmax in bfloat16 in both": (LinenAttention(False), nnx_attention, TOKENS),
    "sums in blocks": (Sums(), Sums(blocks=4), TOKENS),
    "sums in another library": (Sums(), haiku_sums, TOKENS),
    "norms between sums in blocks": (
        Sums(normalized=True), Sums(blocks=8, normalized=True), TOKENS,
    ),
    "a factor that is rounded": (Scaled(), Scaled(divides=True), TOKENS),
}  # fmt: skip


@pytest.mark.covering(9)
@pytest.mark.parametrize(("one", "other", "inputs"), CLEAN.values(), ids=CLEAN)
def test_ordinary_rounding_is_no_difference(one: Any, other: Any, inputs: Box) -> None:
    report = diff_networks(one, other, inputs)
    assert report.verdict in ("equivalent", "identical"), str(report)
    assert not {cause.name for cause in report.causes} - {"initializer"}


@pytest.mark.slow
def test_the_user_says_what_matters() -> None:
    near, fast, inputs = Norm(offset=30.0), Norm(fast=True, offset=30.0), Box((16,))
    usual = diff_networks(near, fast, inputs)
    assert usual.verdict == "equivalent"
    assert any("rounding changes" in note for note in usual.notes)
    strict = diff_networks(near, fast, inputs, max_rounding=1e-6)
    assert {cause.name for cause in strict.causes} == {"conditioning"}
    with pytest.raises(TriglotError, match="max_rounding"):
        diff_networks(near, fast, inputs, max_rounding=0.0)
