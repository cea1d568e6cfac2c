"""Random steps: `scan_keys` against `jax.lax.scan`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from tests.properties import examples
from triglot.core.tracing.hoist import MAX_BYTES, scan_keys

SHAPES = [(), (3,), (2, 3), (0,)]
Draw = Callable[[jax.Array, tuple[int, ...]], jax.Array]


def on_host(values: Any) -> np.ndarray:
    return np.asarray(values) + np.float32(1)


def called_back(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    like = jax.ShapeDtypeStruct(shape, jnp.float32)
    return jax.pure_callback(on_host, like, jax.random.normal(key, shape), vmap_method="sequential")


def other_generator(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    data = jax.random.bits(key, (4,))
    return jax.random.bits(jax.random.wrap_key_data(data, impl="rbg"), shape)


def either(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    heads, rest = jax.random.split(key)
    return jax.lax.cond(
        jax.random.bernoulli(heads),
        lambda: jax.random.normal(rest, shape),
        lambda: jnp.zeros(shape),
    )


def until_heads(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    def toss(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        key, count = state
        return jax.random.split(key)[0], count + 1

    last = jax.lax.while_loop(lambda s: jax.random.bernoulli(s[0], 0.4), toss, (key, jnp.int32(0)))
    return jnp.full(shape, last[1])


def walk(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    def move(at: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        at = jnp.sin(at + jax.random.normal(key, shape))
        return at, at

    return jax.lax.scan(move, jnp.zeros(shape), jax.random.split(key, 3))[1]


def vmapped(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.vmap(lambda key: jax.random.randint(key, shape, 0, 9))(jax.random.split(key, 4))


@jax.jit
def jitted(key: jax.Array) -> jax.Array:
    first, second = jax.random.split(key)
    return jax.random.gumbel(first, (2,)) * jax.random.uniform(second)


DRAWS: dict[str, Draw] = {
    "normal": jax.random.normal,
    "uniform": lambda key, shape: jax.random.uniform(key, shape, minval=-1.0),
    "bits": jax.random.bits,
    "randint": lambda key, shape: jax.random.randint(key, shape, -5, 5),
    "bernoulli": lambda key, shape: jax.random.bernoulli(key, 0.3, shape),
    "gamma": lambda key, shape: jax.random.gamma(key, 2.0, shape),
    "permutation": lambda key, shape: jax.random.permutation(key, 7),
    "choice": lambda key, shape: jax.random.choice(key, jnp.arange(7), (3,), replace=False),
    "jitted": lambda key, shape: jitted(key),
    "callback": called_back,
    "rbg": other_generator,
    "cond": either,
    "while": until_heads,
    "scan": walk,
    "vmap": vmapped,
}


@dataclass(frozen=True)
class Program:
    """A step: draws, each added to the carry or only returned, and weakly typed parts."""

    draws: tuple[tuple[str, tuple[int, ...], bool], ...]
    weak: Any
    key_in_branch: bool

    def __call__(self, carry: Any, key: jax.Array) -> tuple[Any, Any]:
        x, count, weak = carry
        outputs = {}
        for number, (name, shape, into_carry) in enumerate(self.draws):
            drawn = DRAWS[name](jax.random.fold_in(key, number), shape)
            outputs[f"{number} {name}"] = drawn
            if into_carry:
                x = jnp.tanh(x + jnp.sum(drawn, dtype=jnp.float32))
                count = count + jnp.int32(drawn.size)
        if self.key_in_branch:
            x = jax.lax.cond(x[0] > 0, lambda: x - jax.random.normal(key, (2,)), lambda: -x)
        return (x, count, weak + 1), {**outputs, "x": x, "weak": weak, "literal": 2.0}


PROGRAMS = st.builds(
    Program,
    draws=st.lists(
        st.tuples(st.sampled_from(list(DRAWS)), st.sampled_from(SHAPES), st.booleans()),
        max_size=5,
    ).map(tuple),
    weak=st.sampled_from([0, 0.5, np.int32(0)]),
    key_in_branch=st.booleans(),
)


def assert_same(plain: Any, hoisted: Any) -> None:
    """Compare structures and types; integers exactly, and floats up to rounding."""
    assert jax.tree.structure(plain) == jax.tree.structure(hoisted)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(hoisted), strict=True):
        assert (one.shape, one.dtype, one.weak_type) == (other.shape, other.dtype, other.weak_type)
        exact = not jnp.issubdtype(one.dtype, jnp.floating)
        (np.testing.assert_array_equal if exact else close)(one, other)


def close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@examples(
    quick=1,
    slow=100,
    program=PROGRAMS,
    length=st.sampled_from([0, 1, 2, 5]),
    max_bytes=st.sampled_from([0, 60, 200, MAX_BYTES]),
    impl=st.sampled_from(["threefry2x32", "threefry2x32", "rbg", "unsafe_rbg"]),
    num_seeds=st.sampled_from([0, 2]),
)
def test_a_random_step_gives_what_a_plain_scan_gives(
    program: Program, length: int, max_bytes: int, impl: str, num_seeds: int
) -> None:
    def both(key: jax.Array) -> tuple[Any, Any]:
        keys = jax.random.split(key, length)
        carry = (jnp.array([0.1, -0.2]), jnp.int32(0), program.weak)
        plain = jax.lax.scan(program, carry, keys)
        return plain, scan_keys(program, carry, keys, max_bytes=max_bytes)

    key = jax.random.key(length, impl=impl)
    if num_seeds:
        assert_same(*jax.jit(jax.vmap(both))(jax.random.split(key, num_seeds)))
    else:
        assert_same(*jax.jit(both)(key))
