"""The rewriting of products: what it changes, and what it leaves alone."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.xla_metadata import set_xla_metadata

from triglot.backends.canonical import params_on_the_right

W = jax.random.normal(jax.random.key(0), (5, 3))
X = jax.random.normal(jax.random.key(1), (7, 3))
STACKED = jax.random.normal(jax.random.key(2), (7, 5, 3))


@jax.custom_vjp
def doubled(x: jax.Array) -> jax.Array:
    return x * 2.0


doubled.defvjp(lambda x: (x * 2.0, None), lambda _, g: (g * 3.0,))  # wrong on purpose: 3, not 2


def left(w: jax.Array, x: jax.Array) -> jax.Array:
    return jax.vmap(lambda one: w @ one)(x)


def right(w: jax.Array, x: jax.Array) -> jax.Array:
    return x @ w.T


def batched(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.einsum("b,boi,bi->bo", jnp.ones(7), STACKED * w[None], x)


def nested_jit(w: jax.Array, x: jax.Array) -> jax.Array:
    return jax.jit(lambda a, b: jax.nn.relu(left(a, b)))(w, x)


def in_scan(w: jax.Array, x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda carry, one: (carry + w @ one, w @ one), jnp.zeros(5), x)[1]


def in_cond(w: jax.Array, x: jax.Array) -> jax.Array:
    return jax.lax.cond(x[0, 0] > 0, lambda: left(w, x), lambda: -left(w, x))


def custom(w: jax.Array, x: jax.Array) -> jax.Array:
    return doubled(left(w, x))


def attention(w: jax.Array, x: jax.Array) -> jax.Array:
    """Products of two activations, which stay as they are."""
    q, k = left(w, x), left(-w, x)
    return jax.nn.softmax(q @ k.T) @ q


def only_params(w: jax.Array, x: jax.Array) -> jax.Array:
    return (w @ w.T).sum() + x.sum()


FUNCTIONS = [left, right, batched, nested_jit, in_scan, in_cond, custom, attention, only_params]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_values_and_gradients_stay(function: Callable) -> None:
    rewritten = params_on_the_right(function)

    def value_and_gradients(f: Callable) -> tuple:
        return jax.jit(jax.value_and_grad(lambda w, x: (f(w, x) ** 2).sum(), argnums=(0, 1)))(W, X)

    plain, found = value_and_gradients(function), value_and_gradients(rewritten)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-4), plain, found)


def shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape


def products(function: Callable) -> list[tuple]:
    jaxpr = jax.make_jaxpr(function)(W, X)
    return [
        tuple(map(shape, equation.invars))
        for equation in jaxpr.jaxpr.eqns
        if equation.primitive.name == "dot_general"
    ]


def test_a_parameter_on_the_left_changes_sides() -> None:
    assert products(left) == [((5, 3), (7, 3))]
    assert products(params_on_the_right(left)) == [((7, 3), (5, 3))]


def test_a_turned_kernel_on_the_right_is_contracted_where_it_lies() -> None:
    def turned(w: jax.Array, x: jax.Array) -> jax.Array:  # PyTorch's, of a weight [out, in]
        return jax.lax.dot_general(x, w.T, (((1,), (1,)), ((), ())))

    jaxpr = str(jax.make_jaxpr(params_on_the_right(turned))(W.T, X))
    assert "transpose" not in jaxpr and jaxpr.count("dot_general") == 1
    np.testing.assert_array_equal(params_on_the_right(turned)(W.T, X), X @ W.T)


def test_the_axes_that_a_turned_kernel_keeps_are_in_its_own_order() -> None:
    w = jax.random.normal(jax.random.key(3), (2, 3, 4))

    def turned(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.dot_general(x, w.transpose(2, 0, 1), (((1,), (2,)), ((), ())))

    found = params_on_the_right(turned)(w, X)
    np.testing.assert_allclose(found, turned(w, X), rtol=1e-5)
    assert found.shape == (7, 4, 2)


def test_a_bias_that_gains_axes_is_reshaped() -> None:
    def added(b: jax.Array, x: jax.Array) -> jax.Array:
        return x + jax.lax.broadcast_in_dim(b, (1, 3), (1,))

    def reshaped(b: jax.Array, x: jax.Array) -> jax.Array:
        return x + b.reshape(1, 3)

    texts = [str(jax.make_jaxpr(params_on_the_right(f))(W[0], X)) for f in (added, reshaped)]
    assert texts[0] == texts[1]


def test_a_kernel_stored_as_in_out_is_contracted_where_it_lies() -> None:
    def stored(kernel: jax.Array, x: jax.Array) -> jax.Array:
        return left(kernel.T, x)

    jaxpr = str(jax.make_jaxpr(params_on_the_right(stored))(W.T, X))
    assert "transpose" not in jaxpr


HIGH, DEFAULT = jax.lax.Precision.HIGHEST, jax.lax.Precision.DEFAULT
F32, BF16 = jnp.dtype("float32"), jnp.dtype("bfloat16")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((HIGH, DEFAULT), (DEFAULT, HIGH)),
        (jax.lax.DotAlgorithm(F32, BF16, F32, 3, 1), jax.lax.DotAlgorithm(BF16, F32, F32, 1, 3)),
        (jax.lax.DotAlgorithmPreset.F32_F32_F32, jax.lax.DotAlgorithmPreset.F32_F32_F32),
    ],
    ids=["precisions", "algorithm", "preset"],
)
def test_the_precision_of_each_operand_is_kept(given: Any, expected: Any) -> None:
    def product(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.dot_general(w, x, (((1,), (1,)), ((), ())), precision=given)

    jaxpr = jax.make_jaxpr(params_on_the_right(product))(W, X).jaxpr
    (equation,) = [e for e in jaxpr.eqns if e.primitive.name == "dot_general"]
    assert equation.params["precision"] == expected
    assert type(equation.params["precision"]) is type(expected)


def test_a_product_with_an_algorithm_is_lowered_as_the_library_s() -> None:
    """As a reversed tuple, the algorithm ended the process. JAX refuses it on CPU, so for a GPU."""
    algorithm = jax.lax.DotAlgorithm(jnp.float32, jnp.float32, jnp.float32)

    def product(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.dot_general(w, x, (((1,), (1,)), ((), ())), precision=algorithm)

    def algorithms(function: Callable) -> list[str]:
        lowered = jax.jit(function).trace(W, X).lower(lowering_platforms=("cuda",)).as_text()
        return re.findall(r"algorithm = <[^>]*>", lowered)

    assert algorithms(params_on_the_right(product)) == algorithms(product) != []
    for each in (product, params_on_the_right(product)):
        with pytest.raises(ValueError, match="is not supported by dot_general on CPU"):
            each(W, X)


@pytest.mark.parametrize("function", [left, nested_jit, only_params], ids=lambda f: f.__name__)
def test_equations_keep_their_context(function: Callable) -> None:
    def marked(w: jax.Array, x: jax.Array) -> jax.Array:
        with set_xla_metadata(part="torso"), jax.named_scope("torso"):
            return function(w, x)

    lowered = jax.jit(params_on_the_right(marked)).lower(W, X)
    products = [line for line in lowered.as_text().splitlines() if "dot_general" in line]
    assert products and all('part = "torso"' in line for line in products)
    assert "torso/" in lowered.as_text(debug_info=True)


@pytest.mark.parametrize("function", [in_scan, in_cond])
def test_control_flow_is_passed_through(function: Callable) -> None:
    names = [e.primitive.name for e in jax.make_jaxpr(function)(W, X).jaxpr.eqns]
    kept = [
        e.primitive.name for e in jax.make_jaxpr(params_on_the_right(function))(W, X).jaxpr.eqns
    ]
    assert names == kept


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["VALID", "SAME", ((1, 2), (0, 3)), ((-1, 0), (0, 0))])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 1)])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("layout", [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC")])
def test_convolutions_are_computed_in_one_way(
    layout: tuple[str, str, str], groups: int, dilation: tuple[int, int], padding: Any
) -> None:
    images = jax.random.normal(jax.random.key(0), (2, 4, 9, 11))
    kernel = jax.random.normal(jax.random.key(1), (6, 4 // groups, 3, 2))
    if layout[0] == "NHWC":
        images, kernel = jnp.moveaxis(images, 1, -1), jnp.transpose(kernel, (2, 3, 1, 0))

    def convolve(kernel: jax.Array, images: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            images,
            kernel,
            (2, 1),
            padding,
            rhs_dilation=dilation,
            feature_group_count=groups,
            dimension_numbers=layout,
        )

    def values_and_gradients(f: Callable) -> tuple:
        def total(*operands: jax.Array) -> jax.Array:
            return jnp.sin(f(*operands)).sum()

        return f(kernel, images), jax.jit(jax.grad(total, argnums=(0, 1)))(kernel, images)

    rewritten = params_on_the_right(convolve)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4),
        values_and_gradients(convolve),
        values_and_gradients(rewritten),
    )
    names = {e.primitive.name for e in jax.make_jaxpr(rewritten)(kernel, images).jaxpr.eqns}
    grouped = "conv_general_dilated" in names
    assert grouped == (groups > 1)
    assert ("dot_general" in names) != grouped


@pytest.mark.parametrize("size", [(2, 3, 1, 2), (2, 3, 1, 0), (0, 3, 5, 5), (2, 0, 5, 5)])
def test_an_empty_convolution_is_that_of_the_library(size: tuple[int, ...]) -> None:
    images, kernel = jnp.ones(size), jnp.ones((4, size[1], 3, 2))

    def convolve(kernel: jax.Array, images: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(images, kernel, (1, 1), "VALID")

    def loss(function: Callable) -> Callable:
        return jax.grad(lambda *operands: function(*operands).sum(), argnums=(0, 1))

    ours = params_on_the_right(convolve)
    np.testing.assert_array_equal(ours(kernel, images), convolve(kernel, images))
    jax.tree.map(
        np.testing.assert_array_equal, loss(ours)(kernel, images), loss(convolve)(kernel, images)
    )
