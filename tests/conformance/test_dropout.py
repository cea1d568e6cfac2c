"""Dropout on every library: one mask for all, on dense layers alone, and only with a key."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.extras import BACKENDS
from triglot.backends import build
from triglot.backends.translate import translate
from triglot.core import specs
from triglot.core.errors import TriglotError
from triglot.core.networks.architecture import (
    CNN,
    MLP,
    NetworkSpec,
    RecurrentCell,
    Table,
    value_head,
)
from triglot.core.networks.noise import draw_masks

OBS, ACTION = specs.Box((3,)), specs.Box((2,), low=-1.0, high=1.0)
HEADS = (("q", value_head()),)
KEY = jax.random.key(5)
INPUTS = jax.random.normal(jax.random.key(1), (6, 3)), jax.random.normal(jax.random.key(2), (6, 2))


def critic(**more: Any) -> NetworkSpec:
    torso = MLP((8, 5), activation="relu", normalization="layer")
    return NetworkSpec((OBS, ACTION), torso, HEADS, **{"dropout": 0.5, **more})


def numpy_critic(named: Mapping[str, Any], masks: Mapping[str, Any]) -> np.ndarray:
    """Compute dense, dropout, layer normalization, relu, as DroQ does (Hiraoka et al. 2022)."""
    p = {name.removeprefix("critic/"): np.asarray(one) for name, one in named.items()}
    x = np.concatenate(INPUTS, axis=-1)
    for layer in (0, 1):
        x = x @ p[f"torso/{layer}/kernel"] + p[f"torso/{layer}/bias"]
        x = x * np.asarray(masks[f"torso_{layer}"])
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        x = np.maximum(x * p[f"norm/{layer}/scale"] + p[f"norm/{layer}/bias"], 0.0)
    return (x @ p["head/q/kernel"] + p["head/q/bias"])[:, 0]


@pytest.mark.covering(8)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_library_computes_the_textbooks_function(backend: str) -> None:
    network = build(backend, {"critic": critic()}, arithmetic="canonical")
    variables = network.init(jax.random.key(0))
    assert network.codec is not None
    named = network.codec.encode(variables.params)
    part, own = network.parts["critic"], variables.params["critic"]
    given: Any = type(variables)(params=own, state=variables.state["critic"])
    sizes = critic().drawn_sizes
    assert sizes == {"torso_0": 8, "torso_1": 5}
    ones = {name: np.ones((6, size)) for name, size in sizes.items()}
    for key, train, masks in (
        (KEY, True, draw_masks(sizes, 0.5, 6, KEY)),
        (KEY, False, draw_masks(sizes, 0.5, 6, KEY)),
        (None, False, ones),
        (None, True, ones),
    ):
        found, _ = part.apply(given, INPUTS, key=key, train=train)
        expected = numpy_critic(named, masks)
        np.testing.assert_allclose(found["q"], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "linen"])
def test_translated_weights_give_equal_values(backend: str) -> None:
    first = build("linen", {"critic": critic(ensemble_size=2)}, arithmetic="canonical")
    other = build(backend, {"critic": critic(ensemble_size=2)}, arithmetic="canonical")
    variables = first.init(jax.random.key(0))
    moved = translate(variables, first, other)
    values = []
    for network, own in ((first, variables), (other, moved)):
        part = network.parts["critic"]
        given: Any = type(own)(params=own.params["critic"], state=own.state["critic"])
        values.append(np.asarray(part.apply(given, INPUTS, key=KEY, train=True)[0]["q"]))
    np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-6)
    assert not np.allclose(values[0][0], values[0][1])  # members differ


def test_masks_keep_the_mean_and_differ_by_example() -> None:
    masks = draw_masks({"b": 300, "a": 200}, 0.25, 40, KEY)
    assert {name: one.shape for name, one in masks.items()} == {"a": (40, 200), "b": (40, 300)}
    for mask in masks.values():
        values = np.unique(np.asarray(mask))
        np.testing.assert_allclose(values, [0.0, 4.0 / 3.0], rtol=1e-6)
        np.testing.assert_allclose(np.mean(np.asarray(mask)), 1.0, atol=0.02)
        assert not np.array_equal(mask[0], mask[1])


@pytest.mark.slow
def test_members_of_an_ensemble_draw_masks_of_their_own() -> None:
    network = build("jax", {"critic": critic(ensemble_size=2)}).parts["critic"]
    variables = network.init(jax.random.key(0))
    same = jax.tree.map(lambda leaf: jnp.stack([leaf[0], leaf[0]]), variables)
    q = np.asarray(network.apply(same, INPUTS, key=KEY)[0]["q"])
    assert not np.allclose(q[0], q[1])
    without = np.asarray(network.apply(same, INPUTS)[0]["q"])
    np.testing.assert_array_equal(without[0], without[1])


def test_convolutions_are_not_dropped() -> None:
    spec = NetworkSpec(specs.Box((6, 6, 2)), CNN((3,), 3, (4,)), HEADS, dropout=0.5)
    assert spec.drawn_sizes == {"torso_1": 4}
    network = build("jax", {"critic": spec}).parts["critic"]
    found, _ = network.apply(network.init(KEY), jnp.ones((5, 6, 6, 2)), key=KEY)
    assert found["q"].shape == (5,)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (critic(dropout=1.0), "dropout must be at least 0 and below 1, got 1.0"),
        (critic(dropout=-0.5), "dropout must be at least 0"),
        (critic(noise=0.5), "without noisy layers"),
        (NetworkSpec(OBS, MLP(), HEADS, RecurrentCell(), dropout=0.1), "without a recurrent cell"),
        (NetworkSpec(specs.Discrete(3), Table(), HEADS, dropout=0.1), "use an MLP or a CNN"),
    ],
)
def test_what_does_not_fit_is_refused(spec: NetworkSpec, words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        build("linen", {"critic": spec})
