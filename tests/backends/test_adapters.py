"""What people bring to `from_haiku`, `from_linen`, `from_nnx` and `from_equinox`."""

from collections.abc import Callable
from typing import Any

import chex
import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from triglot import from_equinox, from_haiku, from_linen, from_nnx
from triglot.core.errors import TriglotError
from triglot.core.network import Network, Variables
from triglot.core.networks.combinators import ensemble, freeze, start_from
from triglot.core.networks.unroll import unroll
from triglot.core.specs import Box, Dict
from triglot.diff.loading import load_network

OBS = Box((4,))
OBS_DICT = Dict({"position": Box((3,)), "goal": Box((1,))})
BATCH = {"position": jnp.ones((5, 3)), "goal": jnp.zeros((5, 1))}
BACKENDS = ("haiku", "linen", "nnx", "equinox")
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def dense(inner: Callable[..., jax.Array], num_inputs: int = 1) -> dict[str, Callable[[], Network]]:
    """Build one dense layer of 2 units on `inner(*inputs)`, in each library.

    Args:
      inner: what comes before the layer; written for one example and for a batch alike.
      num_inputs: 2 for inputs (position, goal), 1 for a dictionary of them.
    """
    spec = OBS_DICT if num_inputs == 1 else (Box((3,)), Box((1,)))

    class Linen(nn.Module):
        @nn.compact
        def __call__(self, *inputs: Any) -> jax.Array:
            return nn.Dense(2)(inner(*inputs))

    class NNX(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.layer = nnx.Linear(4, 2, rngs=rngs)

        def __call__(self, *inputs: Any) -> jax.Array:
            return self.layer(inner(*inputs))

    class Equinox(eqx.Module):
        layer: eqx.nn.Linear

        def __init__(self, key: jax.Array) -> None:
            self.layer = eqx.nn.Linear(4, 2, key=key)

        def __call__(self, *inputs: Any) -> jax.Array:
            return self.layer(inner(*inputs))

    return {
        "haiku": lambda: from_haiku(lambda *inputs: hk.Linear(2)(inner(*inputs)), spec),
        "linen": lambda: from_linen(Linen(), spec),
        "nnx": lambda: from_nnx(NNX),
        "equinox": lambda: from_equinox(Equinox),
    }


def joined(obs: dict[str, jax.Array]) -> jax.Array:
    return jnp.concatenate([obs["position"], obs["goal"]], axis=-1)


@jax.custom_vjp
def sign_through(x: jax.Array) -> jax.Array:
    return jnp.sign(x)


sign_through.defvjp(lambda x: (jnp.sign(x), None), lambda _, g: (g,))


def scanned(obs: dict[str, jax.Array]) -> jax.Array:
    """Add the observation to itself three times, in a scan."""
    total, _ = jax.lax.scan(lambda sum_, _: (sum_ + joined(obs), None), joined(obs), None, 2)
    return sign_through(total) + jax.nn.relu(total)


@pytest.mark.covering(8)
@every_backend
@pytest.mark.parametrize("inner", [joined, scanned], ids=["dictionary", "scan and custom gradient"])
def test_dictionaries_scans_and_custom_derivatives(inner: Callable, backend: str) -> None:
    network = dense(inner)[backend]()
    variables = network.init(jax.random.key(0))
    outputs, _ = jax.jit(network.apply)(variables, BATCH)
    assert outputs.shape == (5, 2)

    def loss(params: Any) -> Any:
        outputs, _ = network.apply(Variables(params=params, state=variables.state), BATCH)
        return (outputs**2).sum(), None

    _, grads = network.value_and_grad(loss)(variables.params)
    assert all(leaf.any() for leaf in jax.tree.leaves(grads))


@every_backend
def test_several_inputs(backend: str) -> None:
    network = dense(lambda position, goal: jnp.concatenate([position, goal], -1), 2)[backend]()
    variables = network.init(jax.random.key(0))
    outputs, _ = network.apply(variables, (BATCH["position"], BATCH["goal"]))
    one = dense(joined)[backend]()
    alone, _ = one.apply(one.init(jax.random.key(0)), BATCH)
    chex.assert_trees_all_equal(outputs, alone)


class Counting(hk.Module):
    """A Haiku module with a counter, an integer parameter and a nested module."""

    def __call__(self, obs: jax.Array) -> jax.Array:
        count = hk.get_state("count", (), jnp.int32, init=jnp.zeros)
        hk.set_state("count", count + 1)
        index = hk.get_parameter("index", (4,), jnp.int32, init=lambda s, d: jnp.arange(4, dtype=d))
        return hk.nets.MLP([8, 2])(obs[:, index])


class CountingLinen(nn.Module):
    """The same in Linen."""

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        count = self.variable("counters", "count", lambda: jnp.zeros((), jnp.int32))
        if not self.is_initializing():
            count.value += 1
        index = self.param("index", lambda key: jnp.arange(4))
        return nn.Dense(2)(nn.Dense(8)(obs[:, index]))


class CountingNNX(nnx.Module):
    """The same in NNX."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.count = nnx.Variable(jnp.zeros((), jnp.int32))
        self.index = nnx.Param(jnp.arange(4))
        self.layers = nnx.List([nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)])

    def __call__(self, obs: jax.Array) -> jax.Array:
        self.count[...] += 1
        obs = obs[:, self.index[...]]
        for layer in self.layers:
            obs = layer(obs)
        return obs


COUNTING = {
    "a Haiku module's class": lambda: from_haiku(Counting, OBS),
    "a transformed Haiku function": lambda: from_haiku(
        hk.transform_with_state(lambda obs: Counting()(obs)), OBS
    ),
    "linen": lambda: from_linen(CountingLinen(), OBS),
    "nnx": lambda: from_nnx(CountingNNX),
}


@pytest.mark.covering(2)
@pytest.mark.parametrize("make", COUNTING.values(), ids=COUNTING)
def test_counters_move_in_training_and_integers_are_no_parameters(make: Callable) -> None:
    network = make()
    variables = network.init(jax.random.key(0))
    params = jax.tree.leaves(variables.params)
    assert [leaf.dtype for leaf in params] == [jnp.float32] * 4
    obs = jnp.ones((3, 4))
    _, still = network.apply(variables, obs)
    chex.assert_trees_all_equal(still, variables.state)
    _, moved = network.apply(variables, obs, train=True)
    changes = jax.tree.map(lambda a, b: (b - a).sum(), variables.state, moved)
    assert sorted(map(int, jax.tree.leaves(changes))) == [0, 1]


def test_an_untrained_transform_without_state() -> None:
    network = from_haiku(hk.transform(lambda obs: hk.Linear(2)(obs)), OBS)
    outputs, state = network.apply(network.init(jax.random.key(0)), jnp.ones((3, 4)))
    assert outputs.shape == (3, 2)
    assert not state


@every_backend
def test_frozen_parameters_are_state_and_compute_the_same(backend: str) -> None:
    network = dense(joined)[backend]()
    assert network.codec is not None
    (kernel,) = [leaf.name for leaf in network.codec.leaves if leaf.name.endswith("kernel")]
    frozen = freeze(network, "*kernel")
    variables = frozen.init(jax.random.key(0))
    assert list(variables.params) == [kernel.replace("kernel", "bias")]
    assert list(variables.state["held"]) == [kernel]
    outputs, state = frozen.apply(variables, BATCH, train=True)
    expected, _ = network.apply(network.init(jax.random.key(0)), BATCH)
    chex.assert_trees_all_equal(outputs, expected)
    chex.assert_trees_all_equal(state, variables.state)
    assert frozen.codec is not None
    assert [leaf.name for leaf in frozen.codec.leaves] == list(variables.params)


def test_freezing_what_is_not_there_or_everything() -> None:
    network = dense(joined)["linen"]()
    with pytest.raises(TriglotError, match=r"no parameter of 'Linen' matches 'torso/\*'"):
        freeze(network, "torso/*")
    with pytest.raises(TriglotError, match="leaves no parameter"):
        freeze(network, "*")


def test_starting_from_given_weights() -> None:
    network = dense(joined)["haiku"]()
    given = network.init(jax.random.key(7))
    started = start_from(network, given)
    chex.assert_trees_all_equal(started.init(jax.random.key(0)), given)
    with pytest.raises(TriglotError, match=r"params.linear.b is absent, expected float32\[2\]"):
        start_from(
            network, Variables(params={"linear": {"w": given.params["linear"]["w"]}}, state={})
        )


def adding(obs: jax.Array, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Add up what was seen since the episode's start."""
    total = obs + carry
    return total, total


class AddingLinen(nn.Module):
    def __call__(self, obs: jax.Array, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
        return adding(obs, carry)


class AddingNNX(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.unused = nnx.Linear(1, 1, rngs=rngs)

    def __call__(self, obs: jax.Array, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
        return adding(obs, carry)


class AddingEquinox(eqx.Module):
    unused: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        self.unused = eqx.nn.Linear(1, 1, key=key)

    def __call__(self, obs: jax.Array, carry: jax.Array) -> tuple[jax.Array, jax.Array]:
        return adding(obs, carry)


def zeros(num_envs: int) -> jax.Array:
    return jnp.zeros((num_envs,))


RECURRENT = {
    "haiku": lambda: from_haiku(adding, Box(()), initial_carry=zeros),
    "linen": lambda: from_linen(AddingLinen(), Box(()), initial_carry=zeros),
    "nnx": lambda: from_nnx(AddingNNX, initial_carry=zeros),
    "equinox": lambda: from_equinox(AddingEquinox, initial_carry=zeros),
}


@every_backend
def test_a_carry_starts_anew_where_an_episode_does(backend: str) -> None:
    network = RECURRENT[backend]()
    variables = network.init(jax.random.key(0))
    first = jnp.array([[True, False], [False, False], [False, True], [False, False]])
    inputs, carry = jnp.arange(1.0, 9.0).reshape(4, 2), jnp.array([100.0, 200.0])
    outputs, last, _ = unroll(network, variables, inputs, first, carry)
    # By hand: environment 0 starts at once and sees 1, 3, 5, 7; environment 1 goes on from 200
    # with 2 and 4, and starts again with 6, 8.
    expected = jnp.array([[1.0, 202.0], [4.0, 206.0], [9.0, 6.0], [16.0, 14.0]])
    chex.assert_trees_all_equal(outputs, expected)
    chex.assert_trees_all_equal(last, expected[-1])


def test_an_ensemble_of_recurrent_networks_has_a_carry_each() -> None:
    network = ensemble(RECURRENT["haiku"](), 2)
    variables = network.init(jax.random.key(0))
    carry = network.initial_carry(variables, 3)
    (outputs, carry), _ = network.apply(variables, (jnp.ones(3), carry))
    assert outputs.shape == (2, 3)
    assert carry.shape == (3, 2)  # environments first, as a restart expects


def test_unrolling_what_is_not_recurrent() -> None:
    network = dense(joined)["linen"]()
    with pytest.raises(TriglotError, match="is not recurrent"):
        unroll(network, network.init(jax.random.key(0)), BATCH, jnp.ones((2, 2), bool), ())


class Stateful(eqx.Module):
    norm: eqx.nn.BatchNorm

    def __init__(self, key: jax.Array) -> None:
        self.norm = eqx.nn.BatchNorm(4, axis_name="batch", mode="batch")

    def __call__(self, obs: jax.Array) -> jax.Array:
        return obs


def failing(obs: jax.Array) -> jax.Array:
    return hk.Linear(2)(obs) @ jnp.ones((3, 3))


class FailingNNX(nnx.Module):
    def __init__(self, size: int, rngs: nnx.Rngs) -> None:
        self.size = size


MISTAKES = {
    "a function that fails": (
        lambda: from_haiku(failing, OBS),
        r"the Haiku function 'failing' failed on float32 \[B, 4\]: TypeError: dot_general .*"
        r"\(test_adapters.py, line \d+\)",
    ),
    "a Linen class": (
        lambda: from_linen(CountingLinen, OBS),
        "an instance of a flax.linen.Module, .* got the class CountingLinen",
    ),
    "an NNX class that wants more": (
        lambda: from_nnx(FailingNNX),
        "the NNX constructor 'FailingNNX' failed when given nnx.Rngs: TypeError: .*'size'",
    ),
    "no NNX module": (
        lambda: from_nnx(lambda rngs: 3),  # pyright: ignore[reportArgumentType]
        "returned a int",
    ),
    "no Equinox module": (
        lambda: from_equinox(lambda key: jnp.ones(3)),  # pyright: ignore[reportArgumentType]
        "returned a Shape",
    ),
    "state that is not taken": (
        lambda: from_equinox(Stateful),
        r"holds state \(such as BatchNorm's\), but its __call__ does not take `state`",
    ),
}


@pytest.mark.parametrize(("make", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_in_one_sentence(make: Callable[[], Network], words: str) -> None:
    with pytest.raises(TriglotError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


class AnotherNameLinen(nn.Module):
    @nn.compact
    def __call__(s, x: jax.Array) -> jax.Array:  # pyright: ignore[reportSelfClsParameterName]
        return nn.Dense(2)(x)


class AnotherNameHaiku(hk.Module):
    def __call__(s, x: jax.Array) -> jax.Array:  # pyright: ignore[reportSelfClsParameterName]
        return hk.Linear(2)(x)


class AnotherNameNNX(nnx.Module):
    def __init__(s, rngs: nnx.Rngs) -> None:  # pyright: ignore[reportSelfClsParameterName]
        s.layer = nnx.Linear(4, 2, rngs=rngs)

    def __call__(s, x: jax.Array) -> jax.Array:  # pyright: ignore[reportSelfClsParameterName]
        return s.layer(x)


class AnotherNameEquinox(eqx.Module):
    layer: eqx.nn.Linear

    def __init__(s, key: jax.Array) -> None:  # pyright: ignore[reportSelfClsParameterName]
        s.layer = eqx.nn.Linear(4, 2, key=key)

    @eqx.filter_jit
    def __call__(s, x: jax.Array) -> jax.Array:  # pyright: ignore[reportSelfClsParameterName]
        return s.layer(x)


ANOTHER_NAME: dict[str, Any] = {
    "haiku": AnotherNameHaiku,
    "linen": AnotherNameLinen,
    "nnx": AnotherNameNNX,
    "equinox": AnotherNameEquinox,
}


@every_backend
def test_self_may_have_another_name(backend: str) -> None:
    # As `triglot diff` and `triglot check` load a class, through the adapter of its library.
    network = load_network(ANOTHER_NAME[backend], OBS)
    assert network.backend == backend
    variables = network.init(jax.random.key(0))
    assert network.apply(variables, jnp.ones((3, 4)))[0].shape == (3, 2)
