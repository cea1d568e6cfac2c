"""The order of norms: what is computed once and last, with the same values and gradients."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jex

from triglot.core.tracing.norms import has_norms
from triglot.core.tracing.products import in_one_order

SCALE = jnp.array([0.5, -2.0, 3.0])
X = jax.random.normal(jax.random.key(0), (4, 3))


def scale_first(scale: jax.Array, x: jax.Array) -> jax.Array:
    """As Haiku: a mean for itself, one in the variance, and the scale before the inputs."""
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    inverse = scale[None] * jax.lax.rsqrt(var + 1e-5)
    return jnp.sin(inverse * (x - mean))


def scale_last(scale: jax.Array, x: jax.Array) -> jax.Array:
    """As Equinox: the scale after the inputs."""
    mean = x.mean(-1, keepdims=True)
    var = jnp.square(x - mean).mean(-1)
    return jnp.sin(scale[None] * ((x - mean) * jax.lax.rsqrt(var + 1e-5)[:, None]))


def ordered(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def run(scale: jax.Array, x: jax.Array) -> Any:
        closed = in_one_order(jax.make_jaxpr(function)(scale, x), 1)
        return jex.jaxpr_as_fun(closed)(scale, x)[0]

    return run


def names(function: Callable[..., jax.Array]) -> list[str]:
    return [e.primitive.name for e in jax.make_jaxpr(function)(SCALE, X).jaxpr.eqns]


@pytest.mark.covering(2)
@pytest.mark.parametrize("function", [scale_first, scale_last])
def test_values_and_gradients_stay(function: Callable[..., jax.Array]) -> None:
    def results(f: Callable[..., jax.Array]) -> Any:
        return jax.jit(jax.value_and_grad(lambda s, x: (f(s, x) ** 2).sum(), argnums=(0, 1)))(
            SCALE, X
        )

    plain, found = results(function), results(ordered(function))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), plain, found)


def test_what_is_equal_is_computed_once_and_the_scale_last() -> None:
    first, last = names(ordered(scale_first)), names(ordered(scale_last))
    assert first.count("sub") == first.count("rsqrt") == 1 and first.count("reduce_sum") == 2
    assert [name for name in first if name != "reshape"] == [n for n in last if n != "reshape"]
    jaxpr = jax.make_jaxpr(ordered(scale_first))(SCALE, X).jaxpr
    products = [e for e in jaxpr.eqns if e.primitive.name == "mul"]
    reads_scale = [any(jaxpr.invars[0] in scales(jaxpr, v) for v in e.invars) for e in products]
    assert reads_scale == [False, True]


def scales(jaxpr: Any, variable: Any) -> set[Any]:
    """List the inputs that a variable depends on."""
    found, waiting = set(), [variable]
    made = {out: e for e in jaxpr.eqns for out in e.outvars}
    while waiting:
        one = waiting.pop()
        if one in made:
            waiting += [v for v in made[one].invars if not isinstance(v, jex.Literal)]
        else:
            found.add(one)
    return found


def test_draws_with_equal_names_stay_apart_and_equal_ones_join() -> None:
    def noisy(scale: jax.Array, x: jax.Array) -> jax.Array:
        one, other = (jax.random.normal(jax.random.key(i), x.shape) for i in (0, 1))
        return scale[None] * jax.lax.rsqrt(jnp.square(x) + 1.0) + one - other

    np.testing.assert_allclose(ordered(noisy)(SCALE, X), noisy(SCALE, X), rtol=1e-6)


def test_effects_are_kept() -> None:
    seen = []

    def printing(scale: jax.Array, x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda value: seen.append(float(value)), x[0, 0])
        return scale[None] * jax.lax.rsqrt(jnp.square(x) + 1.0)

    closed = jax.make_jaxpr(printing)(SCALE, X)
    assert has_norms(closed.jaxpr) and in_one_order(closed, 1) is closed


def fast_variance(scale: jax.Array, x: jax.Array) -> jax.Array:
    """As BatchNorm of Haiku and Linen: mean(square(x)) - square(mean), over the batch."""
    mean, squares = x.mean(0), jnp.square(x).mean(0)
    var = jnp.maximum(0.0, squares - jnp.square(mean))
    return (x - mean[None]) * (jax.lax.rsqrt(var + 1e-5) * scale)[None]


def divided_by_the_root(scale: jax.Array, x: jax.Array) -> jax.Array:
    """As BatchNorm of Equinox, whose sums over the batch `vmap` writes as `psum`."""

    def one(x: jax.Array) -> jax.Array:
        mean = jax.lax.pmean(x, "batch")
        var = jnp.maximum(0.0, jax.lax.pmean((x - mean) * (x - mean), "batch"))
        return (x - mean) / jnp.sqrt(var + 1e-5) * scale

    return jax.vmap(one, axis_name="batch")(x)


def test_batch_norms_become_one_program() -> None:
    fast, slow = ordered(fast_variance), ordered(divided_by_the_root)
    assert sorted(names(fast)) == sorted(names(slow))
    assert "max" not in names(fast)  # squares are not negative
    np.testing.assert_array_equal(jax.jit(fast)(SCALE, X), jax.jit(slow)(SCALE, X))
    np.testing.assert_allclose(fast(SCALE, X), divided_by_the_root(SCALE, X), rtol=1e-5, atol=1e-6)


def test_a_difference_of_other_means_stays() -> None:
    def difference(scale: jax.Array, x: jax.Array) -> jax.Array:
        return scale * (jnp.square(x).mean(0) - jnp.square(x.mean(0) + 1.0))

    found = ordered(difference)(SCALE, X)
    np.testing.assert_allclose(found, difference(SCALE, X), rtol=1e-5)
