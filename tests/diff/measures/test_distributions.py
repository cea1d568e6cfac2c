"""Initializers are compared by what they draw."""

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import pytest

from triglot import from_haiku
from triglot.core.network import Network
from triglot.core.specs import Box
from triglot.diff.measures.distributions import Drawing, compare_initializers
from triglot.diff.pairing.parameters import Pair, Pairing, read_parameters

INITS = hk.initializers


def layer(init: Any, bias: Any = jnp.zeros) -> Network:
    return from_haiku(lambda x: hk.Linear(16, w_init=init, b_init=bias)(x), Box((16,)))


def differing(one: Network, other: Network) -> set[str]:
    """Name the parameters whose initializers differ."""
    sides = read_parameters(one), read_parameters(other)
    pairing = Pairing(sides[0], sides[1], tuple(Pair(name, name) for name in sides[0]), "by name")
    drawings = [Drawing(n, jax.random.key(k), 1000) for k, n in enumerate((one, other))]
    rows = compare_initializers(drawings[0], drawings[1], pairing)
    return {row.name for row in rows if row.differs}


NORMAL = INITS.RandomNormal(0.25)


@pytest.mark.parametrize(
    "one, other, names",
    [
        (layer(NORMAL), layer(NORMAL), set()),
        (layer(INITS.Orthogonal()), layer(INITS.Orthogonal()), set()),
        (layer(NORMAL), layer(INITS.RandomNormal(0.26)), {"linear/w"}),
        (layer(NORMAL), layer(INITS.Orthogonal()), {"linear/w"}),
        (layer(NORMAL), layer(INITS.RandomUniform(-0.433, 0.433)), {"linear/w"}),
        (layer(NORMAL), layer(NORMAL, jnp.ones), {"linear/b"}),
    ],
    ids=["same", "orthogonal", "std", "normal, orthogonal", "normal, uniform", "bias"],
)
@pytest.mark.library_promotion("Haiku's orthogonal initializer multiplies a matrix by a vector")
def test_another_distribution_is_found(one: Network, other: Network, names: set[str]) -> None:
    assert differing(one, other) == names


def test_the_gain_and_the_weights_are_those_of_the_initializer() -> None:
    network = layer(NORMAL)
    drawing = Drawing(network, jax.random.key(0), 1000)
    no_keys = Drawing(network, jax.random.key(0), 0)
    assert (drawing.num_keys, no_keys.num_keys) == (1000, 0)
    assert jax.tree.map(jnp.shape, drawing.variables) == jax.tree.map(jnp.shape, no_keys.variables)
    assert drawing.variables.params["linear"]["w"].std() == pytest.approx(0.25, rel=0.15)
    assert no_keys.variables.params["linear"]["w"].std() == pytest.approx(0.25, rel=0.15)
    sides = read_parameters(network)
    pairing = Pairing(sides, sides, (Pair("linear/kernel", "linear/kernel"),), "by name")
    (row,) = compare_initializers(drawing, drawing, pairing)
    assert row.one.gain == pytest.approx(1.0, abs=0.01)
