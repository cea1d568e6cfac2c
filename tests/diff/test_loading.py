"""Networks are lifted from every form in which people have them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import triglot
from tests.diff import networks as nets
from triglot import TriglotError, diff_networks, from_haiku
from triglot.core.network import Network
from triglot.core.specs import Box, Discrete, Spec
from triglot.diff.inputs import parse_input
from triglot.diff.loading import load_network


class HaikuModule(hk.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return hk.Linear(2)(x)


def of_specs(obs_spec: Spec, action_spec: Spec) -> Network:
    assert action_spec == Discrete(2)
    return from_haiku(nets.haiku_mlp, obs_spec)


def of_obs_spec(obs_spec: Spec) -> Any:
    return nets.LinenMLP()


def of_nothing() -> Any:
    return nets.LinenMLP()


def of_rng(rng: jax.Array) -> eqx.Module:
    return nets.equinox_mlp(rng)


def of_seed(seed: jax.Array) -> eqx.Module:
    return nets.equinox_mlp(seed)


def of_key_for_nnx(key: jax.Array) -> nnx.Module:
    return nets.NNXMLP(nnx.Rngs(key))


def of_rngs(*, rngs: nnx.Rngs) -> nnx.Module:
    return nets.NNXMLP(rngs)


class Computing(eqx.Module):
    """Its constructor computes a number, which fails while tracing."""

    scale: float
    linear: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        self.scale = float(jnp.sqrt(4.0))
        self.linear = eqx.nn.Linear(4, 2, key=key)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.linear(x)


FORMS: dict[str, tuple[Callable[[], Any], str]] = {
    "a Haiku function": (lambda: nets.haiku_mlp, "haiku"),
    "a Haiku function with a mode": (lambda: nets.haiku_dropout(0.5), "haiku"),
    "a transformed function": (lambda: hk.transform(nets.haiku_mlp), "haiku"),
    "a transformed function with state": (
        lambda: hk.transform_with_state(nets.haiku_mlp), "haiku",
    ),
    "a Haiku class": (lambda: HaikuModule, "haiku"),
    "a Linen module": (lambda: nets.LinenMLP(), "linen"),
    "a Linen class": (lambda: nets.LinenMLP, "linen"),
    "an NNX class": (lambda: nets.NNXMLP, "nnx"),
    "an NNX module": (lambda: nets.NNXMLP(nnx.Rngs(0)), "nnx"),
    "a function of rngs": (lambda: of_rngs, "nnx"),
    "a function of a key, for NNX": (lambda: of_key_for_nnx, "nnx"),
    "an Equinox class": (lambda: nets.EquinoxMatrix, "equinox"),
    "an Equinox module": (lambda: nets.EquinoxMatrix(jax.random.key(0)), "equinox"),
    "a function of a key": (lambda: nets.equinox_mlp, "equinox"),
    "a function of a key called rng": (lambda: of_rng, "equinox"),
    "a function of a key called otherwise": (lambda: of_seed, "equinox"),
    "a constructor that computes": (lambda: Computing, "equinox"),
    "a Network": (lambda: from_haiku(nets.haiku_mlp, nets.INPUTS), "haiku"),
    "a function of both specs": (lambda: of_specs, "haiku"),
    "a function of obs_spec": (lambda: of_obs_spec, "linen"),
    "a function of nothing": (lambda: of_nothing, "linen"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.library_promotion("Haiku's dropout multiplies a bool by a float")
def test_a_network_is_lifted(form: str) -> None:
    make, backend = FORMS[form]
    network = load_network(make(), nets.INPUTS, action_spec=Discrete(2))
    assert network.backend == backend
    variables = jax.eval_shape(network.init, jax.random.key(0))
    inputs = jax.ShapeDtypeStruct((3, 4), np.float32)
    outputs, _ = jax.eval_shape(network.apply, variables, inputs)
    assert outputs.shape == (3, 2)


def test_a_made_module_keeps_its_weights() -> None:
    module = nets.EquinoxMatrix(jax.random.key(5))
    network = load_network(module, nets.INPUTS)
    assert not network.random_start
    np.testing.assert_array_equal(network.init(jax.random.key(0)).params.w, module.w)


@pytest.mark.parametrize(
    "given, says",
    [
        (3, "is a int; expected a module"),
        (lambda x: x @ np.zeros((5, 2)), "neither a function of the inputs nor of a key"),
        (of_specs, "takes action_spec: name the environment"),
        (lambda: 3, "returned a int; expected a module"),
    ],
)
def test_what_is_no_network_is_refused(given: Any, says: str) -> None:
    with pytest.raises(triglot.TriglotError, match=says):
        load_network(given, nets.INPUTS)


@pytest.mark.parametrize(
    "text, spec",
    [
        ("float32:84,84,4", Box((84, 84, 4))),
        ("8", Box((8,))),
        ("uint8:84x84x4", Box((84, 84, 4), "uint8", 0, 255)),
        ("int32:", Box((), "int32", 0, 1)),
        ("int32", Box((), "int32", 0, 1)),
        ("int32:16:0..99", Box((16,), "int32", 0, 99)),
        ("float32:2:-1.5..2", Box((2,), "float32", -1.5, 2.0)),
    ],
)
def test_an_input_is_read(text: str, spec: Box) -> None:
    assert parse_input(text) == spec


@pytest.mark.parametrize("text", ["flaot32:8", "float32:a", "8,b", "int32:1:5", "int32:1:5..x"])
def test_a_wrong_input_is_refused(text: str) -> None:
    with pytest.raises(triglot.TriglotError, match="must have the form DTYPE:SHAPE"):
        parse_input(text)


def test_weights_that_are_not_a_number_are_refused() -> None:
    layers = eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0))
    weight = layers.layers[0].weight
    broken = eqx.tree_at(lambda m: m.layers[0].weight, layers, weight.at[0, 0].set(jnp.nan))
    for pair in ((broken, layers), (layers, broken)):
        with pytest.raises(TriglotError, match=r"NaN in \.layers\[0\]\.weight: no diff"):
            diff_networks(*pair, nets.INPUTS, level="quick")
