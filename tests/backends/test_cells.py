"""Recurrent cells, in people's own modules and as the zoo starts them."""

from typing import Any

import chex
import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from triglot import from_equinox, from_haiku, from_linen, from_nnx, translate
from triglot.backends import build
from triglot.core.errors import Guessed, TriglotError
from triglot.core.network import Network, Variables
from triglot.core.networks.architecture import MLP, NetworkSpec, RecurrentCell, value_head
from triglot.core.networks.combinators import ensemble
from triglot.core.networks.unroll import unroll
from triglot.core.specs import Box

OBS, SIZE, STEPS, ENVS = Box((4,)), 5, 7, 3


def zeros(num_envs: int) -> tuple[jax.Array, jax.Array]:
    return jnp.zeros((num_envs, SIZE)), jnp.zeros((num_envs, SIZE))


def in_haiku(obs: jax.Array, carry: Any) -> Any:
    out, carry = hk.LSTM(SIZE, name="memory")(hk.Linear(4)(obs), hk.LSTMState(*carry))
    return hk.Linear(2, name="head")(out), tuple(carry)


def gated_in_haiku(obs: jax.Array, carry: Any) -> Any:
    out, hidden = hk.GRU(SIZE, name="memory")(hk.Linear(4)(obs), carry[0])
    return hk.Linear(2, name="head")(out), (hidden, carry[1])


class InLinen(nn.Module):
    cell: type = nn.LSTMCell

    @nn.compact
    def __call__(self, obs: jax.Array, carry: Any) -> Any:
        hidden, cell = carry
        given = hidden if self.cell is nn.GRUCell else (cell, hidden)
        after, out = self.cell(SIZE, name="remember")(given, nn.Dense(4)(obs))
        cell, hidden = (cell, after) if self.cell is nn.GRUCell else after
        return nn.Dense(2, name="out")(out), (hidden, cell)


class InNNX(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Linear(4, 4, rngs=rngs)
        self.lstm = nnx.LSTMCell(4, SIZE, rngs=rngs)
        self.out = nnx.Linear(SIZE, 2, rngs=rngs)

    def __call__(self, obs: jax.Array, carry: Any) -> Any:
        (cell, hidden), out = self.lstm(carry[::-1], self.embed(obs))
        return self.out(out), (hidden, cell)


class InEquinox(eqx.Module):
    embed: eqx.nn.Linear
    cells: list[eqx.nn.LSTMCell]
    out: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.embed = eqx.nn.Linear(4, 4, key=keys[0])
        self.cells = [eqx.nn.LSTMCell(4, SIZE, key=keys[1])]
        self.out = eqx.nn.Linear(SIZE, 2, key=keys[2])

    def __call__(self, obs: jax.Array, carry: Any) -> Any:
        carry = self.cells[0](self.embed(obs), carry)
        return self.out(carry[0]), carry


OWN = {
    "haiku": lambda: from_haiku(in_haiku, OBS, initial_carry=zeros),
    "linen": lambda: from_linen(InLinen(), OBS, initial_carry=zeros),
    "nnx": lambda: from_nnx(InNNX, initial_carry=zeros),
    "equinox": lambda: from_equinox(InEquinox, initial_carry=zeros),
}
LAYERS = {
    "haiku": ("linear", "memory", "head"),
    "linen": ("Dense/0", "remember", "out"),
    "nnx": ("embed", "lstm", "out"),
    "equinox": ("embed", "cells/0", "out"),
}


def varied(network: Network) -> Variables:
    start = network.init(jax.random.key(0))
    leaves, treedef = jax.tree.flatten(start.params)
    keys = jax.random.split(jax.random.key(2), len(leaves))
    noise = [a + 0.3 * jax.random.normal(k, a.shape) for k, a in zip(keys, leaves, strict=True)]
    return Variables(params=treedef.unflatten(noise), state=start.state)


def run(network: Network, variables: Variables) -> Any:
    obs = jax.random.normal(jax.random.key(1), (STEPS, ENVS, 4))
    first = jnp.zeros((STEPS, ENVS), bool).at[3, 1].set(True)
    carry = jax.tree.map(lambda leaf: leaf + 0.5, network.initial_carry(variables, ENVS))
    return jax.jit(lambda v: unroll(network, v, obs, first, carry)[:2])(variables)


@pytest.mark.slow
@pytest.mark.parametrize("target", OWN)
@pytest.mark.parametrize("source", OWN)
def test_a_persons_lstm_goes_where_they_say(source: str, target: str) -> None:
    one, other = OWN[source](), OWN[target]()
    variables = varied(one)
    mapping = dict(zip(LAYERS[source], LAYERS[target], strict=True))
    moved = translate(variables, one, other, mapping)
    chex.assert_trees_all_close(run(one, variables), run(other, moved), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_persons_lstm_may_be_guessed() -> None:
    one, other = OWN["haiku"](), OWN["equinox"]()
    variables = varied(one)
    with pytest.warns(Guessed, match="'memory/input/i': 'cells/0/input/i'"):
        moved = translate(variables, one, other)
    chex.assert_trees_all_close(run(one, variables), run(other, moved), rtol=1e-4, atol=1e-5)


def test_two_functions_by_the_name_of_gru_are_never_guessed_equal() -> None:
    one = from_haiku(gated_in_haiku, OBS, initial_carry=zeros)
    other = from_linen(InLinen(nn.GRUCell), OBS, initial_carry=zeros)
    for source, target in ((one, other), (other, one)):
        with pytest.raises(TriglotError, match=r"reset gate before .*different functions"):
            translate(source.init(jax.random.key(0)), source, target)


@pytest.mark.covering(8)
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("backend", ["haiku", "linen", "nnx", "equinox"])
def test_the_zoos_cells_start_alike(backend: str, cell: str) -> None:
    spec = NetworkSpec(OBS, MLP((64,)), (("value", value_head()),), RecurrentCell(cell, 16))
    network = build(backend, {"net": spec})
    codec = network.codec
    assert codec is not None
    start = jax.jit(lambda k: codec.encode(network.init(k).params))(jax.random.key(0))
    gates = "ifgo" if cell == "lstm" else "rzn"
    for gate in gates:
        recurrent = start[f"net/cell/recurrent/{gate}/kernel"]
        np.testing.assert_allclose(recurrent.T @ recurrent, np.eye(16), atol=1e-5)
        deviation = float(start[f"net/cell/input/{gate}/kernel"].std()) * 8.0  # sqrt(fan_in)
        assert 0.85 < deviation < 1.15
        bias = start[f"net/cell/{gate}/bias"]
        np.testing.assert_array_equal(bias, np.full((16,), float(gate == "f")))
    one, other = (start[f"net/cell/input/{gate}/kernel"] for gate in gates[:2])
    assert (one != other).any()
    assert not start.get("net/cell/recurrent/n/bias", np.zeros(())).any()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["haiku", "linen", "nnx", "equinox"])
def test_an_ensemble_of_recurrent_networks(backend: str) -> None:
    spec = NetworkSpec(OBS, MLP((8,)), (("value", value_head()),), RecurrentCell("lstm", SIZE))
    member = build(backend, {"net": spec})
    network = ensemble(member, 3)
    variables = network.init(jax.random.key(0))
    outputs, carry = run(network, variables)
    assert outputs["net"]["value"].shape == (STEPS, 3, ENVS)
    assert carry["net"]["hidden"].shape == (ENVS, 3, SIZE)
    second = jax.tree.map(lambda leaf: leaf[1], variables)
    alone, _ = run(member, second)
    chex.assert_trees_all_close(
        alone["net"]["value"], outputs["net"]["value"][:, 1], rtol=1e-4, atol=1e-5
    )
    linen = ensemble(build("linen", {"net": spec}), 3)
    moved = translate(variables, network, linen)
    chex.assert_trees_all_close(run(linen, moved), (outputs, carry), rtol=1e-4, atol=1e-5)
