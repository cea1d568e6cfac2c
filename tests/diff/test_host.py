"""Operations evaluated with NumPy are XLA's: bit for bit, or up to rounding in float64."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.diff import host

RANDOM = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def conv(shape: tuple[int, ...], kernel: tuple[int, ...], numbers: Any, **how: Any) -> Any:
    options = {"window_strides": (1,) * (len(shape) - 2), "padding": "SAME", **how}
    return (
        lambda x, k: jax.lax.conv_general_dilated(x, k, dimension_numbers=numbers, **options),
        (array(*shape), array(*kernel)),
    )


IMAGES = ("NHWC", "HWIO", "NHWC")
CONVOLUTIONS = [
    conv((2, 7, 6, 4), (3, 3, 4, 5), IMAGES),
    conv((2, 7, 6, 4), (3, 2, 4, 5), IMAGES, window_strides=(2, 3), padding=((1, 0), (2, 1))),
    conv((2, 7, 6, 4), (3, 3, 2, 6), IMAGES, feature_group_count=2),
    conv((2, 7, 6, 4), (3, 3, 1, 8), IMAGES, feature_group_count=4),
    conv((4, 7, 6, 4), (3, 3, 4, 6), IMAGES, batch_group_count=2),
    conv((2, 9, 9, 4), (3, 3, 4, 5), IMAGES, rhs_dilation=(2, 3)),
    conv((2, 5, 6, 4), (4, 4, 4, 5), IMAGES, lhs_dilation=(2, 2), padding=((2, 1), (1, 2))),
    conv((2, 7, 6, 4), (3, 3, 4, 5), IMAGES, padding=((-1, 0), (2, -2))),
    conv((2, 4, 7, 6), (5, 4, 3, 3), ("NCHW", "OIHW", "NCHW")),
    conv((4, 7, 6, 2), (3, 3, 4, 5), ("CHWN", "HWIO", "NHWC")),
    conv((2, 9, 4), (3, 4, 5), ("NWC", "WIO", "NWC"), window_strides=(2,)),
]
PRODUCTS = [
    (lambda x, y: x @ y, (array(3, 4), array(4, 5))),
    (lambda x, y: jnp.einsum("abcd,bde->eabc", x, y), (array(2, 3, 4, 5), array(3, 5, 6))),
    (lambda x, y: jnp.einsum("abc,dac->adb", x, y), (array(2, 3, 4), array(5, 2, 4))),
    (lambda x: jnp.cumsum(x, 1), (array(3, 4),)),
    (lambda x: jax.lax.cumsum(x, 0, reverse=True), (array(3, 4),)),
    (lambda x: x**5 + x.sum(0, keepdims=True), (array(3, 4),)),
    (lambda x: jax.nn.gelu(x, approximate=False) + jnp.log1p(jnp.exp(x)), (array(3, 4),)),
]


@pytest.mark.parametrize(("function", "arrays"), [*CONVOLUTIONS, *PRODUCTS])
def test_sums_are_xla_s_up_to_rounding(function: Callable[..., Any], arrays: Any) -> None:
    with jax.enable_x64(True):
        wide = [each.astype(np.float64) for each in arrays]
        result, expected = host.call(function, *wide, exact=False), function(*wide)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("function", "arrays"), CONVOLUTIONS[:7])
def test_gradients_of_convolutions_are_xla_s(function: Callable[..., Any], arrays: Any) -> None:
    def loss(*arrays: Any) -> Any:
        return jnp.sum(jnp.sin(function(*arrays)))

    with jax.enable_x64(True):
        wide = [each.astype(np.float64) for each in arrays]
        gradient = jax.grad(loss, (0, 1))
        for found, wanted in zip(
            host.call(gradient, *wide, exact=False), gradient(*wide), strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


EXACT: list[Callable[..., Any]] = [
    lambda x: x * 3 - x / 7 + jnp.sqrt(jnp.abs(x)),
    lambda x: jnp.maximum(x, 0) + jnp.clip(x, -0.5, 0.5) + jnp.sign(x) * jnp.floor(x),
    lambda x: jnp.where(x > 0, x, -x).T.reshape(2, -1)[::-1, 1:5:2],
    lambda x: jnp.concatenate([x, x[:, :1]], 1).max(1) + x.min(1),
    lambda x: (x.astype(jnp.float16).astype(jnp.float32), (x < 0).astype(jnp.int32)),
    lambda x: jax.lax.bitcast_convert_type(x, jnp.uint32) >> jnp.uint32(9),
    lambda x: jnp.isfinite(jnp.where(x > 0, jnp.nan, x)) & (x < 1) | ~(x > -1),
    lambda x: jnp.exp(x) @ jnp.tanh(x).T,  # which XLA evaluates
]


@pytest.mark.parametrize("function", EXACT)
@pytest.mark.library_promotion("scalars and matrices of other ranks, for short")
def test_exact_operations_have_xla_s_bits(function: Callable[..., Any]) -> None:
    x = array(3, 4)
    leaves = jax.tree.leaves(host.call(function, x))
    for one, wanted in zip(leaves, jax.tree.leaves(_one_by_one(function, x)), strict=True):
        assert one.dtype == wanted.dtype
        np.testing.assert_array_equal(one, wanted)


def _one_by_one(function: Callable[..., Any], x: Any) -> Any:
    with jax.disable_jit():
        return function(jnp.asarray(x))


def test_drawn_bits_depend_on_the_keys_only() -> None:
    def draw(key: jax.Array) -> tuple[jax.Array, ...]:
        one, other = jax.random.split(key)
        folded = jax.random.fold_in(key, 3)
        return tuple(jax.random.normal(each, (2000,)) for each in (one, other, folded, one))

    key = jax.random.key(0)
    first, second, third, again = host.call(draw, key, exact=False)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, host.call(draw, key, exact=False)[0])
    for drawn in (first, second, third):
        assert abs(float(drawn.mean())) < 0.1
        assert abs(float(drawn.std()) - 1) < 0.1
    assert np.abs(np.corrcoef([first, second, third]) - np.eye(3)).max() < 0.1
