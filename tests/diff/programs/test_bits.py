"""The first operation whose results differ in a bit, op by op or only when compiled."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.diff.programs import families as f
from tests.diff.programs.planted import sides
from triglot.core.network import Network
from triglot.diff.programs import Program, first_bit_difference, record, record_both
from triglot.diff.programs.tape import Tape
from triglot.diff.types import Difference

pytestmark = pytest.mark.library_promotion("norms broadcast and promote")


def between(one: Network, other: Network, shape: tuple[int, int] = (16, 5)) -> Difference | None:
    inputs: Any = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    first, second = sides(one, other)
    options: Any = {"train": False, "key": jax.random.key(0), "exact": True}
    return first_bit_difference(*record_both(first, second, inputs, **options))


def scaled(x: jax.Array) -> jax.Array:
    return jnp.tanh(x * 3.0 * 7.1)


def scaled_apart(x: jax.Array) -> jax.Array:
    """Compute the same, without letting the compiler join the two factors."""
    return jnp.tanh(jax.lax.optimization_barrier(x * 3.0) * 7.1)


def test_equal_programs_have_none() -> None:
    assert between(f.mlp("linen"), f.mlp("nnx")) is None


def sums_in_two_orders(rows: int) -> bool:
    """Return whether this CPU sums `x @ weight` and `weight.T @ x.T` in two orders."""
    rng = np.random.default_rng(0)
    x, weight = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((rows, 300), (300, 8)))
    turned = jax.lax.dot_general(weight.T, x, (((1,), (1,)), ((), ()))).T
    return not np.array_equal(x @ weight, turned)


def test_the_side_of_an_operand_is_found() -> None:
    # Each instruction set has its own sizes at which the orders agree.
    rows = next(filter(sums_in_two_orders, (2, 1, 64)))
    difference = between(f.mlp("haiku", features=300), f.mlp("equinox", features=300), (rows, 300))
    assert difference is not None and difference.one is not None and difference.other is not None
    assert not difference.compiled_only
    assert (difference.one.name, difference.other.name) == ("dot_general", "dot_general")
    assert "first" in difference.one.scope and "eqx.nn.Linear" in difference.other.scope
    assert 0 < difference.max_rel < 1e-6


def in_order(order: range, *, hide: bool) -> Tape:
    """Record the norm of many arrays, summed in an order; `hide` compares it with 1e3 alone."""
    numbers = np.random.default_rng(0).normal(size=(40, 7)).astype(np.float32)

    def norm(arrays: Any, *_: Any) -> tuple[Any, tuple[()]]:
        total = sum((jnp.sum(jnp.square(arrays[str(i)])) for i in order), jnp.float32(0))
        return (total > 1e3 if hide else jnp.sqrt(total)), ()

    params = {str(i): array for i, array in enumerate(numbers)}
    return record(Program(function=norm, params=params, key=jax.random.key(0)))


@pytest.mark.parametrize("hidden", [False, True])
def test_a_long_sum_in_another_order_is_found_at_the_sum(hidden: bool) -> None:
    """None of the partial sums has a counterpart."""
    tapes = in_order(range(40), hide=hidden), in_order(range(40)[::-1], hide=hidden)
    difference = first_bit_difference(*tapes, hidden=hidden)
    assert difference is not None and difference.one is not None and difference.other is not None
    assert (difference.one.name, difference.other.name) == ("add", "add")
    assert 0 < difference.max_rel < 1e-6 and not difference.compiled_only
    if hidden:
        assert first_bit_difference(*tapes) is None


def test_a_difference_of_compiled_programs_is_found() -> None:
    difference = between(f.mlp("nnx", activation=scaled), f.mlp("nnx", activation=scaled_apart))
    assert difference is not None and difference.one is not None
    assert difference.compiled_only
    assert difference.one.name == "mul"
    assert 0 < difference.max_rel < 1e-6
