"""Hoisting the random numbers out of a scan changes nothing but its speed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.core.tracing.hoist import scan_keys

SCALE = jnp.array([2.0, 3.0])


def noise_and_carry(carry: jax.Array, key: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    first, second = jax.random.split(key)
    noise = jax.random.normal(first, (2,)) * SCALE
    carry = jnp.tanh(carry + noise) * jax.random.uniform(second)
    return carry, {"noise": noise, "carry": carry}


def key_in_the_carry_dependent_part(carry: jax.Array, key: jax.Array) -> tuple:
    """The key goes into a nested jit together with the carry: nothing can be drawn ahead."""
    inner = jax.jit(lambda c, k: c + jax.random.normal(k, (2,)) * c)
    return inner(carry, key), None


def constants_only(carry: jax.Array, key: jax.Array) -> tuple:
    del key
    return carry + SCALE, {"constant": SCALE * 2.0, "literal": 1.0}


def branches(carry: jax.Array, key: jax.Array) -> tuple:
    drawn = jax.random.normal(key, (2,))
    return jax.lax.cond(carry[0] > 0, lambda: carry - drawn, lambda: carry + drawn), drawn


STEPS = [noise_and_carry, key_in_the_carry_dependent_part, constants_only, branches]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_equals_a_plain_scan(step) -> None:
    keys = jax.random.split(jax.random.key(0), 7)
    start = jnp.array([0.1, -0.2])
    plain = jax.jit(lambda s: jax.lax.scan(step, s, keys))(start)
    hoisted = jax.jit(lambda s: scan_keys(step, s, keys))(start)
    assert jax.tree.structure(plain) == jax.tree.structure(hoisted)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), plain, hoisted)


def test_works_under_vmap_and_without_jit() -> None:
    keys = jax.random.split(jax.random.key(0), (3, 5))
    starts = jnp.ones((3, 2))
    together = jax.vmap(lambda s, k: scan_keys(noise_and_carry, s, k))(starts, keys)
    with jax.disable_jit():
        alone = scan_keys(noise_and_carry, starts[1], keys[1])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[1], b, rtol=1e-5), together, alone)


def test_no_random_numbers_are_left_in_the_loop() -> None:
    keys = jax.random.split(jax.random.key(0), 7)
    jaxpr = jax.make_jaxpr(lambda s: scan_keys(noise_and_carry, s, keys))(jnp.zeros(2))
    (loop,) = [eqn for eqn in jaxpr.jaxpr.eqns if eqn.primitive.name == "scan"]
    assert "random" not in str(loop.params["jaxpr"])
    assert "random" in str(jaxpr)


def test_effects_stay_in_the_loop_and_happen_once_a_step(capfd) -> None:
    def step(carry: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        jax.debug.print("drew {}", jax.random.bits(key))
        return carry + 1, None

    jax.block_until_ready(scan_keys(step, jnp.zeros(()), jax.random.split(jax.random.key(0), 3)))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("drew") == 3


def test_tracing_twice_gives_one_program() -> None:
    """A program that varied with memory addresses would never be found in JAX's cache again."""

    def step(carry: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        for k in jax.random.split(key, 8):
            carry = jnp.tanh(carry + jax.random.normal(k, (2,)) * SCALE)
        return carry, None

    keys = jax.random.split(jax.random.key(0), 3)
    programs = {
        jax.jit(lambda s: scan_keys(step, s, keys)).lower(jnp.zeros(2)).as_text() for _ in range(4)
    }
    assert len(programs) == 1
