"""Weights of people's own networks go from library to library, as stated, as guessed, or not."""

import warnings
from typing import Any

import chex
import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import pytest

from triglot import from_equinox, from_haiku, from_linen, translate
from triglot.backends.pairing.guessing import guess
from triglot.core.errors import Guessed, TriglotError
from triglot.core.network import Network, Variables
from triglot.core.networks.combinators import freeze
from triglot.core.specs import Box

OBS = Box((4,))
INPUTS = jax.random.normal(jax.random.key(1), (5, 4))


def haiku_mlp(obs: jax.Array) -> jax.Array:
    return hk.nets.MLP([8] * 3 + [2])(obs)


class EquinoxMLP(eqx.Module):
    layers: list[eqx.nn.Linear]

    def __init__(self, key: jax.Array) -> None:
        sizes = [4, 8, 8, 8, 2]
        keys = jax.random.split(key, 4)
        self.layers = [
            eqx.nn.Linear(n, m, key=k) for n, m, k in zip(sizes, sizes[1:], keys, strict=False)
        ]

    def __call__(self, obs: jax.Array) -> jax.Array:
        for layer in self.layers[:-1]:
            obs = jax.nn.relu(layer(obs))
        return self.layers[-1](obs)


HAIKU, EQUINOX = from_haiku(haiku_mlp, OBS), from_equinox(EquinoxMLP)


def assert_same_function(source: Network, target: Network, variables: Any, moved: Any) -> None:
    expected, _ = source.apply(variables, INPUTS)
    found, _ = target.apply(moved, INPUTS)
    chex.assert_trees_all_close(expected, found, rtol=1e-4, atol=1e-5)


@pytest.mark.covering(2)
@pytest.mark.parametrize(("source", "target"), [(HAIKU, EQUINOX), (EQUINOX, HAIKU)])
def test_by_shape_and_order_with_a_warning_that_says_so(source: Network, target: Network) -> None:
    variables = source.init(jax.random.key(0))
    with pytest.warns(Guessed, match="paired by shape and order; .*mapping={") as caught:
        moved = translate(variables, source, target)
    assert caught[0].filename == __file__
    assert_same_function(source, target, variables, moved)


class Backwards(eqx.Module):
    """Its second layer comes before its first: only shapes tell which is which."""

    fc1: eqx.nn.Linear
    fc2: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key)
        self.fc1, self.fc2 = eqx.nn.Linear(8, 8, key=keys[0]), eqx.nn.Linear(4, 8, key=keys[1])

    def __call__(self, obs: jax.Array) -> jax.Array:
        return self.fc1(jnp.tanh(self.fc2(obs)))


def forwards(obs: jax.Array) -> jax.Array:
    hidden = jnp.tanh(hk.Linear(8)(obs))
    return hk.Linear(8)(hidden)


def test_a_layers_bias_goes_where_its_kernel_goes() -> None:
    source, target = from_haiku(forwards, OBS), from_equinox(Backwards)
    start = source.init(jax.random.key(0))
    variables = Variables(params=numbered(start.params), state=start.state)
    with pytest.warns(Guessed, match=r"mapping={'linear': '.fc2', 'linear_1': '.fc1'}"):
        moved = translate(variables, source, target)
    assert_same_function(source, target, variables, moved)
    stated = translate(variables, source, target, {"linear": "fc2", "linear_1": "fc1"})
    chex.assert_trees_all_equal(stated, moved)


def numbered(params: Any) -> Any:
    """Make every parameter another, biases too."""
    leaves, treedef = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(2), len(leaves))
    drawn = [jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
    return treedef.unflatten(drawn)


class ConvolvedLinen(nn.Module):
    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        features = nn.Conv(3, (2,), padding="VALID")(obs[..., None])
        features = nn.GroupNorm(3, epsilon=1e-5, use_fast_variance=False)(features)
        features = features.reshape((obs.shape[0], -1))
        return nn.Dense(2)(nn.LayerNorm(epsilon=1e-5, use_fast_variance=False)(features))


class ConvolvedEquinox(eqx.Module):
    window: eqx.nn.Conv1d
    groups: eqx.nn.GroupNorm
    norm: eqx.nn.LayerNorm
    out: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key)
        self.window = eqx.nn.Conv1d(1, 3, 2, key=keys[0])
        self.groups, self.norm = eqx.nn.GroupNorm(3, 3), eqx.nn.LayerNorm(9)
        self.out = eqx.nn.Linear(9, 2, key=keys[1])

    def __call__(self, obs: jax.Array) -> jax.Array:
        return self.out(self.norm(jnp.ravel(self.groups(self.window(obs[None])).T)))


@pytest.mark.library_promotion("flax's and equinox's norms broadcast")
def test_convolutions_and_norms_go_both_ways() -> None:
    networks = from_linen(ConvolvedLinen(), OBS), from_equinox(ConvolvedEquinox)
    for source, target in (networks, networks[::-1]):
        start = source.init(jax.random.key(0))
        variables = Variables(params=numbered(start.params), state=start.state)
        with pytest.warns(Guessed, match=r"LayerNorm/0|norm"):
            moved = translate(variables, source, target)
        assert_same_function(source, target, variables, moved)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (["linear", "linear/1", "linear/10", "linear/2"], ["d/0", "d/1", "d/2", "d/3"], "0132"),
        (["linear", "linear/1"], ["linear/1", "linear/2"], "01"),
        (["block/linear/1", "block/1/linear"], ["c/0", "c/1"], "01"),
        (["actor", "critic"], ["net/critic", "net/actor"], "10"),
        (["mha/query", "mha/key"], ["attend/key", "attend/query"], "10"),
        (["actor", "critic"], ["pi", "v"], None),
        (["actor", "critic"], ["c/0", "c/1"], None),
    ],
)
def test_what_looks_alike_is_paired_by_name_or_by_number(
    first: list[str], second: list[str], expected: str | None
) -> None:
    shape = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    source, target = ({f"{n}/kernel": shape for n in names} for names in (first, second))
    if expected is None:
        with pytest.raises(TriglotError, match="several ways"):
            guess(source, target, "here")
        return
    found = guess(source, target, "here")
    assert found == {
        f"{name}/kernel": f"{second[int(index)]}/kernel"
        for name, index in zip(first, expected, strict=True)
    }


def test_a_kernel_never_parts_from_its_bias() -> None:
    kernel, bias, scale = (
        jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((3, 3), (3,), (2,))
    )
    layers = {"a/0/kernel": kernel, "a/0/bias": bias, "a/1/kernel": kernel, "a/1/bias": bias}
    source = {**layers, "a/0/scale": scale}
    target = {
        "b/0/kernel": kernel,
        "b/1/kernel": kernel,
        "c/0/bias": bias,
        "b/1/bias": bias,
        "b/1/scale": scale,
    }
    with pytest.raises(TriglotError, match="several ways"):
        guess(source, target, "here")


def test_only_what_differs_need_be_stated_and_the_longest_place_counts() -> None:
    def function(last: str) -> Network:
        return from_haiku(lambda obs: hk.Linear(2, name=last)(forwards(obs)), OBS)

    source, target = function("out"), function("head")
    variables = source.init(jax.random.key(0))
    moved = translate(variables, source, target, {"out": "head"})
    assert_same_function(source, target, variables, moved)
    whole = {"": "", "out": "head"}
    chex.assert_trees_all_equal(translate(variables, source, target, whole), moved)


def test_as_stated_by_place_without_a_warning() -> None:
    variables = HAIKU.init(jax.random.key(0))
    mapping = {f"mlp/linear_{index}": f"layers/{index}" for index in range(4)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moved = translate(variables, HAIKU, EQUINOX, mapping)
    assert_same_function(HAIKU, EQUINOX, variables, moved)


def test_a_mapping_may_change_an_array() -> None:
    def scaled(obs: jax.Array) -> jax.Array:
        return obs @ (2.0 * hk.get_parameter("half", (4, 2), init=hk.initializers.RandomNormal()))

    source = from_haiku(scaled, OBS)
    target = from_haiku(lambda obs: hk.Linear(2, with_bias=False)(obs), OBS)
    variables = source.init(jax.random.key(0))
    mapping: dict[str, Any] = {"half": ("linear/kernel", lambda half: 2.0 * half)}
    (name,) = [leaf.name for leaf in source.codec.leaves] if source.codec else [""]
    moved = translate(variables, source, target, {name: mapping["half"]})
    assert_same_function(source, target, variables, moved)


PROJECTIONS = ("query", "key", "value")


def attending(obs: jax.Array) -> jax.Array:
    """Attend with two heads of 3 units, written with dense layers."""
    tokens = obs[..., None] * jnp.ones((6,))
    query, key, value = (
        hk.Linear(6, name=name)(tokens).reshape(*tokens.shape[:-1], 2, 3) for name in PROJECTIONS
    )
    weights = jax.nn.softmax(jnp.einsum("bthd,bThd->bhtT", query, key) / 3**0.5)
    heads = jnp.einsum("bhtT,bThd->bthd", weights, value)
    return hk.Linear(6, name="out")(heads.reshape(tokens.shape))


class AttendingLinen(nn.Module):
    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        return nn.MultiHeadDotProductAttention(2, name="attend")(obs[..., None] * jnp.ones((6,)))


@pytest.mark.library_promotion("flax's attention mixes dtypes and ranks")
def test_attention_whose_axes_one_library_splits() -> None:
    source, target = from_haiku(attending, OBS), from_linen(AttendingLinen(), OBS)
    variables = source.init(jax.random.key(0))
    places = {name: f"attend/{name}" for name in (*PROJECTIONS, "out")}
    with pytest.raises(TriglotError, match=r"to a dense layer, .* to multi-head attention"):
        translate(variables, source, target, places)
    mapping = {
        f"{name}/{array}": f"{place}/{array}"
        for name, place in places.items()
        for array in ("kernel", "bias")
    }
    moved = translate(variables, source, target, mapping)
    assert moved.params["attend"]["query"]["kernel"].shape == (6, 2, 3)
    assert_same_function(source, target, variables, moved)


def branches(left: str, right: str) -> Network:
    def function(obs: jax.Array) -> jax.Array:
        return hk.Linear(2, name=left)(obs) - hk.Linear(2, name=right)(obs)

    return from_haiku(function, OBS, name=f"{left} and {right}")


REFUSED = {
    "several ways": (
        branches("left", "right"),
        branches("up", "down"),
        None,
        r"can be paired in several ways.*left/w \(4, 2\).*up/w \(4, 2\).*"
        r"complete mapping={'left/b': \.\.\., ",
    ),
    "other shapes": (
        HAIKU,
        branches("left", "right"),
        None,
        r"the architectures differ.*mlp/~/linear_0/w \(4, 8\).* of the first and left/b",
    ),
    "an unknown name": (HAIKU, EQUINOX, {"mlp/dense_0": "layers/0"}, "no parameter is named"),
    "no name": (HAIKU, EQUINOX, {"mlp": ("layers", "half")}, "expected a name, or .name, function"),
    "an unknown target": (
        HAIKU,
        EQUINOX,
        {"mlp/linear/0": "layer/0"},
        r"no parameter is named 'layer/0'; there are \.layers\[0\]\.bias",
    ),
    "leftovers": (
        HAIKU,
        EQUINOX,
        {f"mlp/linear/{index}": f"layers/{index}" for index in range(3)},
        r"does not cover mlp/~/linear_3/b \(2,\), mlp/~/linear_3/w \(8, 2\) of the first and ",
    ),
    "twice": (
        HAIKU,
        EQUINOX,
        {"mlp/linear/0": "layers/0", "mlp/linear_0": "layers/1"},
        "'mlp/linear_0' is mapped twice",
    ),
    "to one twice": (
        HAIKU,
        EQUINOX,
        {"mlp/linear/1": "layers/1", "mlp/linear/2": "layers/1"},
        r"two parameters are mapped to '\.layers\[1\]\.bias'",
    ),
    "a stated pair that does not fit": (
        branches("left", "right"),
        branches("up", "down"),
        {
            "left/kernel": "up/kernel",
            "left/bias": "up/bias",
            "right/bias": "down/bias",
            "right/kernel": ("down/kernel", jnp.transpose),
        },
        r"the mapping does not fit: down/w is \(2, 4\) float32 in the first and \(4, 2\) f",
    ),
    "state": (freeze(HAIKU, "*bias"), EQUINOX, None, "freeze after translating"),
}


@pytest.mark.parametrize(("source", "target", "mapping", "words"), REFUSED.values(), ids=REFUSED)
def test_refused_in_words(source: Network, target: Network, mapping: Any, words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        translate(source.init(jax.random.key(0)), source, target, mapping)
