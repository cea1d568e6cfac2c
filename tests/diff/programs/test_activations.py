"""Any activation in place of any other is named, wherever it stands."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

from tests.covering import pairwise
from tests.diff.programs import families as f
from tests.diff.programs.cases import pair

pytestmark = pytest.mark.library_promotion("norms broadcast and promote")

FUNCTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "softplus": jax.nn.softplus,  # computes a relu
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "exp": jnp.exp,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "identity": f.identity,
}
PLACES = ("middle", "output", "half of the output", "half beside tanh")
LIBRARIES = ("haiku", "linen", "nnx", "equinox")


class Replaced(NamedTuple):
    one: str
    other: str
    place: str
    libraries: tuple[str, str]


CASES = [
    Replaced(one, other, place, libraries)
    for one, other in itertools.permutations(FUNCTIONS, 2)
    for place in PLACES
    for libraries in itertools.permutations(LIBRARIES, 2)
]


def on_half(
    function: Callable[[jax.Array], jax.Array], rest: Callable[[jax.Array], jax.Array] = f.identity
) -> Callable[[jax.Array], jax.Array]:
    """Apply a function to the first two channels only."""

    def apply(x: jax.Array) -> jax.Array:
        first, second = jnp.split(x, [2], -1)
        return jnp.concatenate([function(first), rest(second)], -1)

    return apply


@pytest.mark.covering
@pytest.mark.parametrize("case", pairwise(CASES), ids=lambda case: " ".join(case[:3]))
def test_another_activation_is_named(case: Replaced) -> None:
    sides = []
    for library, name in zip(case.libraries, (case.one, case.other), strict=True):
        function = FUNCTIONS[name]
        if case.place == "middle":
            sides.append((library, {"activation": function}))
        elif case.place == "output":
            sides.append((library, {"after": function}))
        else:
            rest = jnp.tanh if case.place == "half beside tanh" else f.identity
            sides.append((library, {"after": on_half(function, rest)}))
    explained = pair(f.mlp, *sides).explain()
    assert [cause.name for cause in explained.causes] == ["activation"]
