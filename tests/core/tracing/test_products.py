"""The order of recurrent cells: five ways to write a gate become one, with the same values."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jex

from tests.extras import TORCH
from triglot.core.network import Network, Variables
from triglot.core.specs import zeros
from triglot.core.tracing.products import in_one_order
from triglot.runs.registry.agents import make_agent
from triglot.runs.registry.environments import make_env

KEYS = jax.random.split(jax.random.key(0), 6)
SHAPES = ((4, 3), (4, 3), (2, 3), (2, 3), (3,), (3,))  # two gates: of inputs, of a carry, biases
PARAMS = [jax.random.normal(k, shape) for k, shape in zip(KEYS, SHAPES, strict=True)]
X = jax.random.normal(jax.random.key(7), (5, 4))
H = jax.random.normal(jax.random.key(8), (5, 2))
Step = Callable[[list[jax.Array], jax.Array, jax.Array], jax.Array]


def gates(one: jax.Array, other: jax.Array) -> jax.Array:
    return jax.nn.sigmoid(one) * jnp.tanh(other)


def apart(params: list[jax.Array], x: jax.Array, h: jax.Array) -> jax.Array:
    w1, w2, u1, u2, b1, b2 = params
    return gates(x @ w1 + h @ u1 + b1[None], x @ w2 + (h @ u2 + b2[None]))


def inputs_joined(params: list[jax.Array], x: jax.Array, h: jax.Array) -> jax.Array:
    """As Haiku, which also keeps a part of a bias apart."""
    w1, w2, u1, u2, b1, b2 = params
    kernel = jnp.concatenate([jnp.hstack([w1, w2]), jnp.hstack([u1, u2])])
    both = jnp.hstack([x, h]) @ kernel + jnp.concatenate([b1 - 1.0, b2])[None]
    one, other = jnp.split(both, 2, axis=-1)
    return gates(one + 1.0, other)


def gates_joined(params: list[jax.Array], x: jax.Array, h: jax.Array) -> jax.Array:
    """As Linen."""
    w1, w2, u1, u2, b1, b2 = params
    of_h = h @ jnp.hstack([u1, u2]) + jnp.reshape(jnp.concatenate([b1, b2]), (1, -1))
    of_x = jnp.split(x @ jnp.hstack([w1, w2]), 2, axis=-1)
    return gates(*(a + b for a, b in zip(jnp.split(of_h, 2, axis=-1), of_x, strict=True)))


def kernels_turned(params: list[jax.Array], x: jax.Array, h: jax.Array) -> jax.Array:
    """As Equinox under `vmap`."""
    w1, w2, u1, u2, b1, b2 = params
    w, u = jnp.vstack([w1.T, w2.T]), jnp.vstack([u1.T, u2.T])
    both = jax.vmap(lambda x, h: w @ x + u @ h + jnp.concatenate([b1, b2]))(x, h)
    return gates(*jnp.split(both, 2, axis=-1))


def ordered(step: Step) -> Step:
    def run(params: list[jax.Array], x: jax.Array, h: jax.Array) -> Any:
        closed = jax.make_jaxpr(step)(params, x, h)
        return jex.jaxpr_as_fun(in_one_order(closed, len(PARAMS)))(*params, x, h)[0]

    return run


def program(function: Any, *args: Any) -> str:
    text = str(jax.make_jaxpr(function)(*args))
    return re.sub(r"\s+|np.int64\((\d+)\)", r"\1 ", text)


@pytest.mark.covering(2)
@pytest.mark.parametrize("step", [apart, inputs_joined, gates_joined, kernels_turned])
def test_values_and_gradients_stay_and_the_program_is_one(step: Step) -> None:
    def results(f: Step) -> Any:
        return jax.jit(jax.value_and_grad(lambda *args: (f(*args) ** 2).sum(), (0, 1, 2)))(
            PARAMS, X, H
        )

    plain, found = results(step), results(ordered(step))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), plain, found)
    assert program(ordered(step), PARAMS, X, H) == program(ordered(apart), PARAMS, X, H)


def test_all_gates_of_one_input_are_one_product() -> None:
    equations = jax.make_jaxpr(ordered(apart))(PARAMS, X, H).jaxpr.eqns
    assert [e.primitive.name for e in equations].count("dot_general") == 2


@pytest.mark.parametrize("borders", [(2, 4), (3, 3)])
def test_a_slice_across_the_parts_stays_one(borders: tuple[int, int]) -> None:
    def step(params: list[jax.Array], x: jax.Array, h: jax.Array) -> jax.Array:
        both = x @ jnp.hstack(params[:2])
        return gates(both[:, : borders[0]].sum(-1), both[:, -borders[1] :].sum(-1))

    np.testing.assert_allclose(ordered(step)(PARAMS, X, H), step(PARAMS, X, H), rtol=1e-5)


def test_what_comes_before_a_cell_does_not_change_its_order() -> None:
    programs = set()
    for factor in range(3, 11):

        def step(params: list[jax.Array], x: jax.Array, h: jax.Array, factor: int = factor) -> Any:
            w1, w2, u1, u2, b1, b2 = params
            one, other = jnp.split(
                (x * float(factor)) @ jnp.hstack([w1, w2]) + h @ jnp.hstack([u1, u2]), 2, axis=-1
            )
            one, other = one + b1[None], other + b2[None]
            return gates(one, other) + gates(other, one)

        text = program(ordered(step), PARAMS, X, H)
        programs.add(text.replace(f" {float(factor)}:", " factor:"))
    assert len(programs) == 1


def network(backend: str, cell: str) -> Network:
    env = make_env("gymnax:MemoryChain-bsuite")
    config = {"cell": cell, "cell_size": 3, "hidden_sizes": (5,), "num_envs": 4}
    agent = make_agent("ppo", env, backend=backend, config=config)
    return agent.network.parts["actor"]


def step_of(backend: str, cell: str) -> str:
    """Write the program of one step of a zoo's recurrent network."""
    found = network(backend, cell)
    variables: Any = jax.eval_shape(found.init, jax.random.key(0))
    carry = jax.eval_shape(lambda variables: found.initial_carry(variables, 2), variables)
    obs = zeros(make_env("gymnax:MemoryChain-bsuite").obs_spec, 2)

    def step(params: Any, obs: Any, carry: Any) -> Any:
        return found.apply(Variables(params=params, state=variables.state), (obs, carry))[0]

    return program(step, variables.params, obs, carry).replace("preferred_element_type=float32", "")


@pytest.mark.covering(8)
@pytest.mark.parametrize(
    ("backend", "cell"),
    [
        *((backend, "lstm") for backend in ("haiku", "nnx", "equinox", *TORCH)),
        *((backend, "gru") for backend in ("nnx", "equinox", *TORCH)),
    ],
)
def test_recurrent_networks_of_all_libraries_are_one_program(backend: str, cell: str) -> None:
    assert step_of(backend, cell) == step_of("linen", cell)
