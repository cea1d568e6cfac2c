"""A recorded network computes what the network computes, with its loops unrolled."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.diff.programs import families as f
from tests.diff.programs.planted import build, dense, sides
from triglot.core.network import Network
from triglot.diff.programs.recorder import Program, record
from triglot.diff.programs.recording import record_both
from triglot.diff.programs.tape import Tape

pytestmark = pytest.mark.library_promotion("hk.dropout multiplies a mask and an array")

INPUTS = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)


def looping(library: str) -> Network:
    """Build a network with a scan, a condition, a while loop and a checkpoint."""

    def forward(call: Any, x: jax.Array, train: bool) -> jax.Array:
        x = jax.nn.softplus(call("first", x))
        _, x = jax.lax.scan(lambda carry, row: (carry + 1, row * carry), 2.0, x, reverse=True)
        x = jax.lax.cond(jnp.ones(()) > 0, jnp.sin, jnp.cos, x)
        x = jax.lax.while_loop(lambda y: jnp.sum(y) < 99, lambda y: y + 1, x)
        return call("last", jax.checkpoint(jnp.tanh)(x))

    return build(library, f.FEATURES, {"first": dense(5, 4), "last": dense(4, 2)}, forward)


def recorded(wide: bool) -> tuple[Tape, Any]:
    one, other = sides(looping("linen"), looping("nnx"))
    options: Any = {"train": False, "key": jax.random.key(0)}
    tape, _ = record_both(one, other, INPUTS, wide=wide, **options)
    outputs, _ = one.network.apply(one.variables, INPUTS)
    return tape, outputs


@pytest.mark.parametrize("wide", [False, True])
def test_outputs_are_those_of_the_network(wide: bool) -> None:
    tape, outputs = recorded(wide)
    (value,) = tape.outputs
    assert tape.arrays[value].dtype == (np.float64 if wide else np.float32)
    np.testing.assert_allclose(tape.arrays[value], outputs, rtol=1e-5)
    names = [step.name for step in tape.steps]
    assert "scan" not in names and "cond" not in names and "while" in names


def test_replay_evaluates_what_depends_on_a_replaced_value() -> None:
    tape, _ = recorded(wide=True)
    step = next(step for step in tape.steps if step.name == "dot_general")
    (product,) = step.results
    now = tape.replay({product: np.zeros_like(tape.arrays[product])})
    assert not np.array_equal(now[tape.outputs[0]], tape.arrays[tape.outputs[0]])
    same = tape.replay({product: tape.arrays[product]})
    np.testing.assert_array_equal(same[tape.outputs[0]], tape.arrays[tape.outputs[0]])


def test_random_masks_keep_everything() -> None:
    one, other = sides(f.dropout("haiku", 0.5), f.dropout("nnx", 0.5))
    tapes = record_both(one, other, INPUTS, wide=True, train=True, key=jax.random.key(0))
    first, second = (tape.arrays[tape.outputs[0]] for tape in tapes)
    np.testing.assert_allclose(first, second, rtol=1e-6)
    assert np.all(first != 0)


@pytest.mark.parametrize("reverse", [False, True])
def test_an_update_keeps_its_draws_and_the_first_of_many_iterations(reverse: bool) -> None:
    def function(params: Any, state: Any, inputs: Any, key: jax.Array) -> Any:
        def step(total: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            return total + jnp.sin(x), total

        _, rows = jax.lax.scan(step, jnp.zeros(()), inputs, reverse=reverse)
        return (jax.random.uniform(key, (4,)), rows), ()

    key, inputs = jax.random.key(0), jnp.arange(300.0)
    tape = record(Program(function=function, params={}, inputs=inputs, key=key, is_update=True))
    bits, rows = (tape.arrays[value] for value in tape.outputs)
    (expected, all_rows), _ = function({}, (), inputs, key)
    np.testing.assert_array_equal(bits, expected)
    count = sum(step.name == "sin" for step in tape.steps)
    assert 1 < count < 300
    done, all_rows = (array[::-1] if reverse else array for array in (rows, all_rows))
    np.testing.assert_allclose(done[:count], all_rows[:count], rtol=1e-5)
    np.testing.assert_array_equal(done[count:], np.full(300 - count, done[count - 1]))


@pytest.mark.parametrize("wide", [False, True])
def test_the_iterations_of_a_while_loop_in_an_update_are_recorded(wide: bool) -> None:
    def function(params: Any, state: Any, inputs: Any, key: jax.Array) -> Any:
        def body(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            return carry[0] - 1, carry[1] / 3

        return jax.lax.while_loop(lambda carry: carry[0] > 0, body, inputs)[1], ()

    def last(count: int) -> Tape:
        inputs = (jnp.asarray(count), jnp.ones((4,)))
        arguments: Any = {"params": {}, "inputs": inputs, "key": jax.random.key(0)}
        return record(Program(function=function, is_update=True, **arguments), wide=wide)

    tape = last(3)
    (value,) = tape.outputs
    assert [step.name for step in tape.steps].count("div") == 3
    assert not any(step.name == "while" for step in tape.steps)
    exact = np.full(4, np.float64(1) / 3 / 3 / 3)
    np.testing.assert_allclose(tape.arrays[value], exact, rtol=1e-15 if wide else 1e-6)
    long = last(600)  # what is left of it is one step
    assert [step.name for step in long.steps].count("while") == 1
    np.testing.assert_allclose(long.arrays[long.outputs[0]], 0.0, atol=1e-30)
