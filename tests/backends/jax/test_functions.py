"""`from_functions`: what its forms compute, by hand, and what it refuses."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot import from_equinox, from_functions, translate
from triglot.core.errors import TriglotError
from triglot.core.network import Network
from triglot.core.networks.unroll import unroll
from triglot.core.specs import Box
from triglot.diff.loading import load_network
from triglot.envs import probes

OBS, KEY = Box((2,)), jax.random.key(0)
W = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
X = jnp.array([[1.0, 0.0], [1.0, 1.0]])
EXPECTED = np.array([[1.5, 2.5, 3.5], [5.5, 7.5, 9.5]])  # X @ W + 0.5, by hand


def init(key: jax.Array) -> dict[str, Any]:
    return {"w": jnp.asarray(W), "b": jnp.full(3, 0.5)}


def apply(params: Any, inputs: Any) -> jax.Array:
    return inputs @ params["w"] + params["b"][None]


def stax_init(rng: jax.Array, input_shape: tuple[int, ...]) -> Any:
    assert input_shape == (-1, 2)
    return (*input_shape[:-1], 3), [(jnp.asarray(W), jnp.full(3, 0.5)), ()]


def stax_apply(params: Any, inputs: jax.Array, **kwargs: Any) -> jax.Array:
    (w, b), _ = params
    return inputs @ w + b[None]


class WithMethods:
    def init(self, rng: jax.Array, x: jax.Array) -> Any:
        assert x.shape == (1, 2)
        return init(rng)

    def apply(self, x: jax.Array, theta: Any) -> jax.Array:
        return apply(theta, x)


def counting_init(key: jax.Array) -> Any:
    return init(key), {"calls": 0}


def counting_apply(params: Any, state: Any, inputs: Any, key: Any, train: bool) -> Any:
    return apply(params, inputs), {"calls": state["calls"] + 1}


def haiku_like(params: Any, state: Any, rng: Any, *args: Any) -> Any:
    return counting_apply(params, state, args[0], rng, True)


FORMS: dict[str, Callable[[], Network]] = {
    "two functions": lambda: from_functions(init, apply),
    "a pair": lambda: from_functions((init, apply)),
    "any name for the parameters": lambda: from_functions(
        lambda k: init(k), lambda p, x: apply(p, x)
    ),
    "inputs first": lambda: from_functions(init, lambda obs, params: apply(params, obs)),
    "compiled": lambda: from_functions(jax.jit(init), jax.jit(apply)),
    "keyword arguments": lambda: from_functions(init, lambda *, obs, params: apply(params, obs)),
    "stax": lambda: from_functions((stax_init, stax_apply), obs_spec=OBS),
    "an object": lambda: from_functions(WithMethods(), obs_spec=OBS),
    "a class": lambda: from_functions(WithMethods, obs_spec=OBS),
    "a namespace": lambda: from_functions(SimpleNamespace(init=init, apply=apply)),
    "a state": lambda: from_functions(counting_init, counting_apply),
    "positional, with a state": lambda: from_functions(counting_init, haiku_like),
    "a default": lambda: from_functions(
        init, lambda params, x, scale=1.0: scale * apply(params, x)
    ),
}


@pytest.mark.covering(8)
@pytest.mark.parametrize("form", FORMS)
def test_each_form_computes_what_it_says(form: str) -> None:
    network = FORMS[form]()
    variables = network.init(KEY)
    for train in (False, True):
        outputs, state = network.apply(variables, X, key=KEY if train else None, train=train)
        np.testing.assert_allclose(outputs, EXPECTED, rtol=1e-6)
        chex.assert_trees_all_equal_shapes_and_dtypes(state, variables.state)
    assert network.backend == "jax"
    report = triglot.check_network(network, OBS)
    assert report.failed == ("seeds",), report  # the weights above do not depend on the key


def test_a_state_changes_in_training_only() -> None:
    network = from_functions(counting_init, counting_apply, name="counting")
    variables = network.init(KEY)
    assert variables.state["calls"].dtype == jnp.int32
    assert int(network.apply(variables, X)[1]["calls"]) == 0
    assert int(network.apply(variables, X, train=True)[1]["calls"]) == 1


def test_integers_are_state() -> None:
    def with_counts(params: Any, x: jax.Array) -> jax.Array:
        return apply(params, x) + params["n"].astype(jnp.float32)

    network = from_functions(lambda key: {**init(key), "n": np.int32(1)}, with_counts)
    variables = network.init(KEY)
    assert list(variables.params) == ["bias", "kernel"]
    np.testing.assert_allclose(network.apply(variables, X)[0], EXPECTED + 1.0)


@pytest.mark.parametrize("name", ["train", "training", "is_training", "deterministic", "inference"])
def test_the_switch_has_many_names(name: str) -> None:
    made: dict[str, Any] = {}
    exec(f"def switched(params, x, {name}): return x + 1.0 if {name} else x", made)
    network = from_functions(init, made["switched"])
    in_training, evaluated = (
        network.apply(network.init(KEY), X, train=train)[0] for train in (True, False)
    )
    one, other = (X + 1.0, X) if "train" in name else (X, X + 1.0)
    chex.assert_trees_all_equal((in_training, evaluated), (one, other))


def dropped(params: Any, x: jax.Array, key: jax.Array | None) -> jax.Array:
    if key is None:
        return x
    return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x / 0.5, 0.0)


def test_dropout_gets_a_key_in_training() -> None:
    network = from_functions(init, dropped)
    variables, x = network.init(KEY), jnp.ones((8, 8))
    for key in (None, KEY):
        chex.assert_trees_all_equal(network.apply(variables, x, key=key)[0], x)
    one, other = (
        network.apply(variables, x, key=jax.random.key(seed), train=True)[0] for seed in (1, 2)
    )
    assert set(np.unique(one)) == {0.0, 2.0} and (one != other).any()


def test_a_function_with_a_switch_gets_every_key() -> None:
    def noisy(params: Any, x: jax.Array, train: bool, rng: jax.Array | None = None) -> jax.Array:
        return x if rng is None else x + jax.random.normal(rng, x.shape)

    network = from_functions(init, noisy)
    assert (network.apply(network.init(KEY), X, key=KEY)[0] != X).all()


def test_stax_gets_its_key_among_the_keyword_arguments() -> None:
    def keyed(params: Any, x: jax.Array, **kwargs: Any) -> jax.Array:
        return x + 1.0 if kwargs.get("rng") is not None else x

    network = from_functions(init, keyed)
    variables = network.init(KEY)
    chex.assert_trees_all_equal(network.apply(variables, X)[0], X)
    chex.assert_trees_all_equal(network.apply(variables, X, key=KEY, train=True)[0], X + 1.0)


def test_several_inputs_become_several_arguments() -> None:
    network = from_functions(init, lambda params, obs, action: obs + 10.0 * action)
    outputs, _ = network.apply(network.init(KEY), (X, X))
    chex.assert_trees_all_equal(outputs, 11.0 * X)


def test_a_recurrent_function_starts_anew_where_an_episode_does() -> None:
    def adding(params: Any, obs: jax.Array, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
        return obs + carry, obs + carry

    spec, first = Box(()), jnp.array([[True, False], [False, False], [False, True]])
    network = from_functions(
        init, adding, obs_spec=spec, initial_carry=lambda num_envs: jnp.zeros(num_envs)
    )
    inputs, carry = jnp.arange(1.0, 7.0).reshape(3, 2), jnp.array([100.0, 200.0])
    outputs, last, _ = unroll(network, network.init(KEY), inputs, first, carry)
    chex.assert_trees_all_equal(outputs, jnp.array([[1.0, 202.0], [4.0, 206.0], [9.0, 6.0]]))
    chex.assert_trees_all_equal(last, outputs[-1])


class Dense(eqx.Module):
    layer: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        self.layer = eqx.nn.Linear(2, 3, key=key)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layer(x)


@pytest.mark.parametrize("axes", ["in out", "out in"])
def test_a_declared_layout_is_translated(axes: str) -> None:
    def stored(kernel: Any) -> Any:
        return kernel if axes == "in out" else kernel.T

    plain = from_functions(
        lambda key: {"layer": {"w": stored(jnp.asarray(W)), "b": jnp.full(3, 0.5)}},
        lambda params, x: x @ stored(params["layer"]["w"]) + params["layer"]["b"][None],
        layouts={"layer/w": axes},
    )
    other = from_equinox(Dense)
    moved = translate(plain.init(KEY), plain, other)
    np.testing.assert_allclose(other.apply(moved, X)[0], EXPECTED, rtol=1e-6)
    chex.assert_trees_all_equal(translate(moved, other, plain).params, plain.init(KEY).params)


def test_a_declared_convolution_has_its_window_first() -> None:
    kernel = jnp.arange(24.0).reshape(4, 1, 3, 2)
    network = from_functions(
        lambda key: {"conv": {"w": kernel}},
        lambda params, x: x,
        layouts={"conv/w": "out in height width"},
    )
    assert network.codec is not None
    encoded = network.codec.encode(network.init(KEY).params)
    chex.assert_trees_all_equal(encoded, {"conv/kernel": jnp.transpose(kernel, (2, 3, 1, 0))})
    chex.assert_trees_all_equal(network.codec.decode(encoded), network.init(KEY).params)


def test_a_matrix_without_a_layout_is_not_translated() -> None:
    plain = from_functions(lambda key: {"layer": init(key)}, lambda params, x: x)
    with pytest.raises(TriglotError, match="only its author knows its layout"):
        translate(plain.init(KEY), plain, from_equinox(Dense))


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "no functions": (lambda: from_functions(3), "takes two functions init and apply.*got a int"),
    "no key": (
        lambda: from_functions(lambda: 1, apply),
        r"init of .* takes \(\); expected init\(key",
    ),
    "no params": (
        lambda: from_functions(init, lambda *, x: x),
        r"takes \(x\); expected apply\(para",
    ),
    "no shape": (lambda: from_functions(stax_init, stax_apply), "pass obs_spec="),
    "no arrays": (lambda: from_functions(lambda key: {}, apply), "returned no arrays"),
    "a text": (lambda: from_functions(lambda key: {"a": "relu"}, apply), "a str among its arrays"),
    "no state": (
        lambda: from_functions(init, counting_apply),
        r"takes `state`, so init of .* must return \(params, state\); it returned a dict",
    ),
    "a state that is not returned": (
        lambda: from_functions(counting_init, lambda params, state, x: x, obs_spec=OBS),
        r"must return \(outputs, state\)",
    ),
    "one input more": (
        lambda: from_functions(init, lambda params, obs, carry: obs, obs_spec=OBS),
        r"requires 2 inputs \(obs, carry\) and was given 1.*initial_carry=FUNCTION",
    ),
    "one input less": (
        lambda: from_functions(init, lambda params, x: x, obs_spec=(OBS, OBS)),
        "takes 1 inputs and was given 2",
    ),
    "a failing init": (
        lambda: from_functions(lambda key: jnp.ones(2) @ jnp.ones(3), apply),
        r"init of .* failed when given a key: TypeError.*\(test_functions.py, line \d+\)",
    ),
    "a failing apply": (
        lambda: from_functions(init, apply, obs_spec=Box((5,)), name="mine"),
        r"apply of 'mine' failed on float32 \[B, 5\]: TypeError.*\(test_functions.py, line \d+\)",
    ),
    "an unknown name in layouts": (
        lambda: from_functions(init, apply, layouts={"v": "in out"}),
        "unknown parameter 'v' in layouts",
    ),
    "a layout that does not fit": (
        lambda: from_functions(init, apply, layouts={"w": "height in out"}),
        r"the layout 'height in out' of 'kernel' does not fit its shape \(2, 3\)",
    ),
}


@pytest.mark.parametrize(("make", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_in_one_sentence(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(TriglotError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def heads(*names: str) -> Any:
    def init_heads(key: jax.Array, x: jax.Array) -> Any:
        return {n: 0.1 * jax.random.normal(key, (x.size, 1 + (n == "logits"))) for n in names}

    def apply_heads(params: Any, x: jax.Array) -> Any:
        flat = x.reshape(x.shape[0], -1)
        return {n: flat @ params[n] if n == "logits" else (flat @ params[n])[:, 0] for n in names}

    return init_heads, apply_heads


@pytest.mark.parametrize(
    "networks", [heads("logits", "value"), {"actor": heads("logits"), "critic": heads("value")}]
)
def test_an_agent_takes_functions_whole_or_by_name(networks: Any) -> None:
    agent: Any = triglot.make_agent("ppo", probes.make("two-step"), networks=networks)
    assert agent.network.backend == "jax"


def test_a_pair_is_loaded_as_other_networks_are() -> None:
    for made in ((init, apply), WithMethods, WithMethods(), lambda obs_spec: (init, apply)):
        network = load_network(made, OBS)
        assert network.backend == "jax"
        np.testing.assert_allclose(network.apply(network.init(KEY), X)[0], EXPECTED, rtol=1e-6)
