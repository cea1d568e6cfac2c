"""Recurrent cells with two biases in a gate, as PyTorch's, and those with one become each other."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.backends import layer_cases as cases
from tests.backends.layer_cases import Built, Case, network
from tests.extras import TORCH, skip_missing
from triglot import Network, Variables, from_haiku, from_torch, translate
from triglot.backends.canonical import with_arithmetic
from triglot.backends.pairing.biases import second_biases
from triglot.core.errors import Guessed, TriglotError
from triglot.core.specs import Box
from triglot.diff.compare import diff_networks

pytestmark = pytest.mark.library_promotion("cells of the libraries broadcast and promote")

N, SIZE = 3, 4
SPEC = Box((N,))
CELLS = {"LSTM": cases.lstm, "GRU": cases.gru, "simple cell": cases.simple_cell}
WITH_TWO = [("GRU", "keras"), *((kind, library) for kind in CELLS for library in TORCH)]
HAIKU_WITH_TWO = Built(
    lambda name: hk.VanillaRNN(SIZE, double_bias=True, name=name),
    lambda layer, x: layer(x, jnp.full((x.shape[0], SIZE), 0.3))[0],
)
NNX_WITHOUT_INNER = Built(
    lambda rngs: nnx.GRUCell(N, SIZE, rngs=rngs),
    lambda layer, x: layer(jnp.full((x.shape[0], SIZE), 0.3), x)[1],
)


def torch_cell(kind: str) -> Network:
    import torch

    class One(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            made = {
                "LSTM": lambda: torch.nn.LSTMCell(N, SIZE),
                "GRU": lambda: torch.nn.GRUCell(N, SIZE),
                "simple cell": lambda: torch.nn.RNNCell(N, SIZE, nonlinearity="relu"),
            }
            self.layers = torch.nn.ModuleList([made[kind]()])

        def forward(self, x: Any) -> Any:
            hidden, memory = (torch.full((x.shape[0], SIZE), value) for value in (0.3, 0.7))
            if kind == "LSTM":
                return self.layers[0](x, (hidden, memory))[0]
            return self.layers[0](x, hidden)

    return from_torch(One, SPEC)


def networks(kind: str) -> dict[str, Network]:
    case: Case = CELLS[kind](N, SIZE)
    built = dict(case.built)
    if kind == "simple cell":
        built["haiku, two biases"] = HAIKU_WITH_TWO
    found = {}
    for library, each in built.items():
        found[library] = network(library.split(",")[0], SPEC, [each])
    if TORCH:
        found["torch"] = torch_cell(kind)
    return found


def drawn(made: Network, seed: int = 0) -> Variables:
    """Draw all parameters, since libraries start biases at 0."""
    start, random = jax.eval_shape(made.init, jax.random.key(0)), np.random.default_rng(seed)
    return jax.tree.map(lambda a: jnp.asarray(random.normal(size=a.shape), jnp.float32), start)


def applied(made: Network) -> Callable[[Variables], jax.Array]:
    x = jax.random.normal(jax.random.key(1), (5, N))
    return jax.jit(lambda variables: made.apply(variables, x)[0])


def named(made: Network, variables: Variables) -> dict[str, Any]:
    return made.require_codec("").encode(variables.params)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CELLS)
def test_each_becomes_each_other_and_comes_back(kind: str) -> None:
    found = networks(kind)
    compute = {library: applied(each) for library, each in found.items()}
    for one, other in permutations(found, 2):
        start = drawn(found[one])
        moved = translate(start, found[one], found[other])
        back = translate(moved, found[other], found[one])
        expected = compute[one](start)
        for library, variables in ((other, moved), (one, back)):
            np.testing.assert_allclose(
                compute[library](variables),
                expected,
                rtol=1e-5,
                atol=1e-5,
                err_msg=f"{one} {other}",
            )


@pytest.mark.slow
@pytest.mark.parametrize("kind", CELLS)
def test_two_biases_to_two_biases_are_not_summed(kind: str) -> None:
    skip_missing("torch")
    source, target = torch_cell(kind), torch_cell(kind)
    variables = drawn(source)
    moved = translate(variables, source, target)
    assert jax.tree.all(jax.tree.map(np.array_equal, moved, variables))


def test_the_first_bias_gets_the_sum_and_the_second_0() -> None:
    cell = CELLS["GRU"](N, SIZE).built
    keras, linen = (network(library, SPEC, [cell[library]]) for library in ("keras", "linen"))
    two = drawn(keras)
    bias = two.params["layers/0/bias"]
    moved = named(linen, translate(two, keras, linen))
    for gate, index in (("z", 0), ("r", 1)):
        own = slice(index * SIZE, (index + 1) * SIZE)
        np.testing.assert_array_equal(moved[f"layers/0/{gate}/bias"], bias[0, own] + bias[1, own])
    np.testing.assert_array_equal(moved["layers/0/n/bias"], bias[0, 2 * SIZE :])
    np.testing.assert_array_equal(moved["layers/0/recurrent/n/bias"], bias[1, 2 * SIZE :])
    one = drawn(linen)
    bias = translate(one, linen, keras).params["layers/0/bias"]
    assert bias.any() and not bias[1, : 2 * SIZE].any()


def test_other_names_are_paired_by_a_guess() -> None:
    cell = CELLS["GRU"](N, SIZE).built
    keras = network("keras", SPEC, [cell["keras"]])
    linen = network("linen", SPEC, [cell["linen"]], named=False)
    for source, target in ((keras, linen), (linen, keras)):
        variables = drawn(source)
        with pytest.warns(Guessed, match="paired by shape and order"):
            moved = translate(variables, source, target)
        np.testing.assert_allclose(
            applied(target)(moved), applied(source)(variables), rtol=1e-5, atol=1e-5
        )


@pytest.mark.covering(3)
@pytest.mark.parametrize("library", ["linen", "keras", *TORCH])
def test_a_gru_without_its_inner_bias_gets_only_one_that_is_0(library: str) -> None:
    source = networks("GRU")[library]
    target = network("nnx", SPEC, [NNX_WITHOUT_INNER])
    variables = drawn(source)
    with pytest.raises(
        TriglotError,
        match=r"inside the product with the reset gate.* the second's GRU has no such bias",
    ):
        translate(variables, source, target)
    codec = source.require_codec("")
    inner = "layers/0/recurrent/n/bias"
    params = codec.decode({**named(source, variables), inner: jnp.zeros(SIZE)})
    variables = Variables(params=params, state=variables.state)
    moved = translate(variables, source, target)
    expected = applied(source)(variables)
    np.testing.assert_allclose(applied(target)(moved), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(TriglotError, match="has no such bias"):  # its values are not known
        jax.eval_shape(lambda given: translate(given, source, target), variables)
    back = translate(moved, target, source)
    np.testing.assert_allclose(applied(source)(back), expected, rtol=1e-5, atol=1e-5)
    assert not named(source, back)[inner].any()


def test_a_module_called_recurrent_has_one_bias() -> None:
    def own(x: jax.Array) -> jax.Array:
        cell = hk.VanillaRNN(SIZE, double_bias=False, name="recurrent")
        return cell(x, jnp.full((x.shape[0], SIZE), 0.3))[0]

    class Linen(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            cell = nn.SimpleCell(SIZE, activation_fn=nn.relu, name="recurrent")
            return cell(jnp.full((x.shape[0], SIZE), 0.3), x)[1]

    source, target = from_haiku(own, SPEC), cases.adapted("linen", SPEC, own, Linen, None, None)
    variables = drawn(source)
    moved = translate(variables, source, target)
    np.testing.assert_allclose(applied(target)(moved), applied(source)(variables), atol=1e-6)


@pytest.mark.covering(4)
@pytest.mark.parametrize(("kind", "library"), WITH_TWO)
def test_both_biases_get_their_gradient_in_canonical_arithmetic(kind: str, library: str) -> None:
    native, x = networks(kind)[library], jax.random.normal(jax.random.key(1), (5, N))
    canonical, codec = with_arithmetic(native, "canonical"), native.require_codec("")
    start = drawn(native)

    def gradients(made: Network, params: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            return jnp.sin(made.apply(Variables(params=params, state=start.state), x)[0]).sum()

        return jax.jit(jax.grad(loss))(params)

    expected = codec.encode(gradients(native, start.params))
    found = gradients(canonical, codec.encode(start.params))
    assert second_biases(codec.by_name).keys() <= found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "library"), WITH_TWO)
@pytest.mark.parametrize("is_named", [True, False])
def test_diff_says_that_a_sum_of_two_learns_faster(kind: str, library: str, is_named: bool) -> None:
    linen = network("linen", SPEC, [CELLS[kind](N, SIZE).built["linen"]], named=is_named)
    report = diff_networks(networks(kind)[library], linen, SPEC)
    assert report.verdict == "different"
    causes = [cause for cause in report.causes if cause.name != "initializer"]
    assert [cause.name for cause in causes] == ["second_bias"]
    assert "twice as fast" in causes[0].evidence
