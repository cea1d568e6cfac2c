"""Random networks and convolutions: canonical arithmetic against native."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from tests.properties import examples
from triglot.backends.canonical import params_on_the_right

Layer = Callable[[dict[str, jax.Array], jax.Array], jax.Array]
BATCH, NUM_SEEDS = 3, 2


@jax.custom_vjp
def clipped(x: jax.Array) -> jax.Array:
    return jnp.clip(x, -1.0, 1.0)


clipped.defvjp(lambda x: (jnp.clip(x, -1.0, 1.0), x), lambda x, g: (g * jnp.cos(x),))


@jax.custom_jvp
def squared(x: jax.Array) -> jax.Array:
    return x * x


squared.defjvp(lambda primals, tangents: (primals[0] ** 2, 3.0 * primals[0] * tangents[0]))


def recurrent(p: dict[str, jax.Array], h: jax.Array) -> jax.Array:
    def step(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        carry = jnp.tanh(p["square"] @ carry + p["square"].T @ row)
        return carry, carry

    return jax.lax.scan(step, p["bias"], h)[1]


def repeated(p: dict[str, jax.Array], h: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 2, lambda _, h: jnp.tanh(h @ p["square"] + p["bias"][None]), h)


def either(p: dict[str, jax.Array], h: jax.Array) -> jax.Array:
    return jax.lax.cond(h[0, 0] > 0, lambda: h @ p["square"], lambda: h - p["bias"][None])


def attention(p: dict[str, jax.Array], h: jax.Array) -> jax.Array:
    q = jnp.einsum("io,bi->bo", p["square"], h)
    k, v = h @ p["square"], jax.vmap(lambda row: p["square"] @ row)(h)
    return jax.nn.softmax(q @ k.T) @ v


def heads(p: dict[str, jax.Array], h: jax.Array) -> jax.Array:
    stacked = jnp.stack([p["square"], p["square"].T * 0.5])
    return jnp.einsum("koi,bi->obk", stacked, h).sum(-1).T


def looked_up(p: dict[str, jax.Array], h: jax.Array) -> jax.Array:
    return h + p["square"][jnp.argmax(h, axis=-1)]


def normalized(p: dict[str, jax.Array], h: jax.Array) -> jax.Array:
    centred = h - h.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 0.1) * p["bias"][None]


def precise(p: dict[str, jax.Array], h: jax.Array) -> jax.Array:
    mixed = (jax.lax.Precision.HIGHEST, jax.lax.Precision.DEFAULT)
    return jnp.einsum("oi,bi->bo", p["square"], h, precision=mixed)


LAYERS: dict[str, Layer] = {
    "left": lambda p, h: jax.vmap(lambda row: p["square"] @ row)(h),
    "right": lambda p, h: h @ p["square"],
    "transposed": lambda p, h: (p["square"].T @ h.T).T,
    "params only": lambda p, h: ((p["square"] @ p["square"].T) @ h.T).T,
    "bias": lambda p, h: h + p["bias"][None],
    "bias first": lambda p, h: p["bias"][None] - h,
    "scalar": lambda p, h: (h * p["scalar"]) / (1.5 + p["scalar"]),
    "divided": lambda p, h: p["bias"].reshape(1, -1) / (1.0 + h**2),
    "gate": lambda p, h: h * jax.nn.sigmoid(h @ p["square"] + p["bias"].reshape(1, -1)),
    "jit": lambda p, h: jax.jit(lambda w, h: jnp.tanh(jax.vmap(w.dot)(h)))(p["square"], h),
    "remat": lambda p, h: jax.checkpoint(lambda w, h: jnp.tanh(jax.vmap(w.dot)(h)))(p["square"], h),
    "custom vjp": lambda p, h: clipped(h @ p["square"]),
    "custom jvp": lambda p, h: squared(jax.vmap(p["square"].dot)(h)),
    "concatenated": lambda p, h: jnp.concatenate([h, h @ p["square"]], 1)[:, ::2],
    "scan": recurrent,
    "fori": repeated,
    "cond": either,
    "attention": attention,
    "einsum": heads,
    "gather": looked_up,
    "norm": normalized,
    "precision": precise,
}


def params_of(key: jax.Array, width: int) -> dict[str, jax.Array]:
    square, bias, scalar = jax.random.split(key, 3)
    return {
        "square": jax.random.normal(square, (width, width)) / width**0.5,
        "bias": jax.random.normal(bias, (width,)),
        "scalar": jax.random.uniform(scalar, ()),
    }


def assert_equal_up_to_rounding(
    function: Callable, params: Any, inputs: Any, mode: str, reference: Callable | None = None
) -> None:
    """Compare values and gradients of native and canonical arithmetic.

    Args:
      function: `function(params, inputs) -> array`.
      params, inputs: stacked `[NUM_SEEDS, ...]`.
      mode: `eager`, `jit`, or `vmap` over the first axis, under jit.
      reference: the same function, whose native values are compared; itself by default.
    """

    def run(function: Callable) -> Any:
        def total(params: Any, inputs: Any) -> jax.Array:
            return jnp.sin(function(params, inputs)).sum()

        def both(params: Any, inputs: Any) -> Any:
            return function(params, inputs), jax.grad(total, argnums=(0, 1))(params, inputs)

        if mode == "vmap":
            return jax.jit(jax.vmap(both))(params, inputs)
        first = jax.tree.map(lambda leaf: leaf[0], (params, inputs))
        return (both if mode == "eager" else jax.jit(both))(*first)

    native, canonical = run(reference or function), run(params_on_the_right(function))
    assert jax.tree.structure(native) == jax.tree.structure(canonical)
    for one, other in zip(jax.tree.leaves(native), jax.tree.leaves(canonical), strict=True):
        assert (one.shape, one.dtype, one.weak_type) == (other.shape, other.dtype, other.weak_type)
        scale = 1.0 + float(np.max(np.abs(one), initial=0.0))
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5 * scale)


MODES = st.sampled_from(["eager", "jit", "vmap"])


@examples(
    quick=1,
    slow=100,
    names=st.lists(st.sampled_from(list(LAYERS)), min_size=1, max_size=4),
    width=st.integers(1, 5),
    mode=MODES,
)
def test_a_random_network_keeps_its_values_and_gradients(
    names: list[str], width: int, mode: str
) -> None:
    def network(params: list[dict[str, jax.Array]], h: jax.Array) -> jax.Array:
        for name, p in zip(names, params, strict=True):
            h = LAYERS[name](p, h)
        return h

    seeds = jax.random.split(jax.random.key(width), NUM_SEEDS)
    params = [
        jax.vmap(lambda key, i=i: params_of(jax.random.fold_in(key, i), width))(seeds)
        for i in range(len(names))
    ]
    inputs = jax.random.normal(jax.random.key(0), (NUM_SEEDS, BATCH, width))
    assert_equal_up_to_rounding(network, params, inputs, mode)


PADDING = st.one_of(
    st.sampled_from(["SAME", "VALID"]),
    st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 2)), min_size=2, max_size=2),
)
SIZES = st.tuples(st.integers(0, 6), st.integers(1, 6))


@pytest.mark.slow
@examples(
    quick=6,
    slow=200,
    size=SIZES,
    kernel_size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    channels=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    groups=st.sampled_from([1, 1, 2]),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.tuples(st.sampled_from([1, 1, 2]), st.sampled_from([1, 1, 2])),
    padding=PADDING,
    layout=st.tuples(*(map(st.permutations, ("NCHW", "OIHW", "NCHW")))),
    mode=MODES,
)
def test_a_random_convolution_keeps_its_values_and_gradients(
    size: tuple[int, int],
    kernel_size: tuple[int, int],
    channels: tuple[int, int],
    groups: int,
    strides: tuple[int, int],
    dilations: tuple[int, int],
    padding: Any,
    layout: tuple[list[str], list[str], list[str]],
    mode: str,
) -> None:
    lhs, rhs, out = map("".join, layout)
    sizes = {"N": 2, "C": channels[0] * groups, "H": size[0], "W": size[1]}
    kernel_sizes = {
        "O": channels[1] * groups,
        "I": channels[0],
        "H": kernel_size[0],
        "W": kernel_size[1],
    }

    def convolve(kernel: jax.Array, images: jax.Array, padding: Any = padding) -> jax.Array:
        return jax.lax.conv_general_dilated(
            images,
            kernel,
            strides,
            padding,
            lhs_dilation=(1, 1) if isinstance(padding, str) else (dilations[0], 1),
            rhs_dilation=(1, dilations[1]),
            feature_group_count=groups,
            dimension_numbers=(lhs, rhs, out),
        )

    def without_cropping(kernel: jax.Array, images: jax.Array) -> jax.Array:
        # With negative padding, XLA's gradients on CPU read memory that nothing has written: from
        # run to run they differ, jaxlib 0.10.2.
        result = jax.eval_shape(convolve, kernel, images)
        more = [-(min(low, 0) // stride) for (low, _), stride in zip(padding, strides, strict=True)]
        pads = [
            (low + before * stride, max(high, 0))
            for (low, high), before, stride in zip(padding, more, strides, strict=True)
        ]
        larger, pixels = convolve(kernel, images, pads), [axis for axis in rhs if axis in "HW"]
        starts = dict(zip(pixels, more, strict=True))
        return jax.lax.dynamic_slice(larger, [starts.get(axis, 0) for axis in out], result.shape)

    images_key, kernel_key = jax.random.split(jax.random.key(0))
    images = jax.random.normal(images_key, (NUM_SEEDS, *(sizes[axis] for axis in lhs)))
    kernel = jax.random.normal(kernel_key, (NUM_SEEDS, *(kernel_sizes[axis] for axis in rhs)))
    reference = convolve
    if not isinstance(padding, str) and min(map(min, padding)) < 0:
        pixels = [sizes[axis] for axis in rhs if axis in "HW"]
        left = [n + low + high for n, (low, high) in zip(pixels, padding, strict=True)]
        assume(min(left) >= 0)  # JAX refuses to crop more than there is
        reference = without_cropping if images.size else convolve
    assert_equal_up_to_rounding(convolve, kernel, images, mode, reference)
