"""The first fusion in which two programs compute differently is named, on both sides."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import pytest

from triglot.compare.programs.diff import diff_programs
from triglot.compare.programs.fusions import FusionPair
from triglot.compare.programs.text import program_text

X = jnp.arange(12.0).reshape(3, 4)


def text(function: Callable, *args: Any) -> str:
    return program_text(jax.jit(function).lower(*args).compile())


def between(one: Callable, other: Callable, *args: Any) -> FusionPair | None:
    return diff_programs(text(one, *args), text(other, *args)).fusion


@pytest.mark.library_promotion("norms broadcast and promote")
def test_a_fusion_of_two_libraries_is_named_with_both_sources() -> None:
    """Flax computes a variance from the mean of squares, Haiku from deviations."""
    haiku = hk.transform(lambda x: hk.LayerNorm(-1, False, False)(x))
    linen = nn.LayerNorm(use_bias=False, use_scale=False)
    found = between(lambda x: haiku.apply({}, None, x), lambda x: linen.apply({}, x), X)
    assert found is not None and found.one is not None and found.other is not None
    assert found.one.source.startswith("haiku/_src/layer_norm.py:")
    assert found.other.source.startswith("flax/linen/normalization.py:")
    assert found.one.opcode == found.other.opcode == "reduce"
    for one in (found.one, found.other):
        assert one.computes.startswith("sums f32[3,4] over dimension 1 (with multiply")


def rotated(x: jax.Array) -> jax.Array:
    """Rearrange, then compute."""
    return jnp.sum(jnp.exp(jnp.roll(x, 1, axis=0).T), axis=0)


def computes_otherwise(x: jax.Array) -> jax.Array:
    """Rearrange as `rotated` does, and compute something else."""
    return jnp.sum(jnp.sin(jnp.roll(x, 1, axis=0).T), axis=0)


def rearranges_otherwise(x: jax.Array) -> jax.Array:
    """Rearrange otherwise, and compute something else."""
    return jnp.sum(jnp.sin(jnp.roll(x, 2, axis=0).T), axis=0)


@pytest.mark.parametrize("other", [computes_otherwise, rearranges_otherwise])
def test_what_rearranges_is_passed_over(other: Callable) -> None:
    found = between(rotated, other, X)
    assert found is not None and found.one is not None and found.other is not None
    assert "exponential" in found.one.computes and "sine" in found.other.computes


def test_integers_are_exact() -> None:
    def integers(x: jax.Array, step: int) -> tuple[jax.Array, jax.Array]:
        number = jnp.argmax(x, axis=1) * step + 1
        return jnp.flip(number), jnp.exp(x * step)

    found = between(lambda x: integers(x, 3), lambda x: integers(x, 5), X)
    assert found is not None and found.one is not None
    assert found.one.computes.startswith("computes f32[3,4] by exponential")


@pytest.mark.parametrize(
    ("function", "phrase"),
    [
        (lambda x: jnp.sum(x * 2, axis=1), "sums f32[3,4] over dimension 1 (with multiply)"),
        (lambda x: jnp.max(x * 2, axis=0), "takes the maximum of f32[3,4] over dimension 0"),
        (lambda x: jnp.sin(jnp.exp(x)), "computes f32[3,4] by sine, exponential"),
        (lambda x: x @ x.T, "multiplies f32[3,4] by f32["),
    ],
)
def test_a_phrase_says_what_is_computed(function: Callable, phrase: str) -> None:
    found = between(function, lambda x: jnp.log(x) - 1.5, X)
    assert found is not None
    phrases = [one.computes for one in (found.one, found.other) if one]
    assert any(each.startswith(phrase) for each in phrases), phrases


def test_equal_programs_have_none() -> None:
    assert between(rotated, rotated, X) is None
