"""Custom networks of several libraries share names, by name, mapping or guess."""

import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot.compare.check import check, with_backends
from triglot.compare.rungs import rung_named
from triglot.compare.training.networks import build_agent, read_mapping, shared_names
from triglot.core.errors import TriglotError
from triglot.runs.registry.environments import make_env

from ..in_process import OPTIONS

ENV = make_env("probe:two-step")


def haiku(obs: jax.Array) -> Any:
    """Compute logits and value in Haiku."""
    features = jnp.tanh(hk.Linear(8, name="hidden")(obs))
    return {
        "logits": hk.Linear(2, name="policy")(features),
        "value": hk.Linear(1, name="critic")(features)[:, 0],
    }


class Linen(nn.Module):
    """The same under other names, the value first."""

    @nn.compact
    def __call__(self, obs: jax.Array) -> Any:
        features = jnp.tanh(nn.Dense(8)(obs))
        value = nn.Dense(1)(features)[:, 0]
        return {"logits": nn.Dense(2)(features), "value": value}


class Equinox(eqx.Module):
    """A network of another architecture."""

    layer: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        self.layer = eqx.nn.Linear(1, 3, key=key)

    def __call__(self, obs: jax.Array) -> Any:
        out = self.layer(obs)
        return {"logits": out[:2], "value": out[2]}


def networks(obs_spec: Any, action_spec: Any) -> dict[str, Any]:
    """Build one network per library."""
    del action_spec
    return {
        "haiku": triglot.from_haiku(haiku, obs_spec),
        "linen": triglot.from_linen(Linen(), obs_spec),
        "equinox": triglot.from_equinox(Equinox),
    }


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Put the networks where `--network` finds them."""
    module: Any = types.ModuleType("my_networks")
    module.networks = networks
    module.one = networks(ENV.obs_spec, None)["haiku"]
    module.wrong = {"haiku": 3}
    monkeypatch.setitem(sys.modules, "my_networks", module)
    yield module


CUSTOM = replace(
    OPTIONS,
    network=("my_networks:networks",),
    backends=None,
    config={"rollout_length": 8, "num_epochs": 1, "num_minibatches": 1},
)


def test_the_libraries_are_those_of_the_networks() -> None:
    assert with_backends(CUSTOM).backends == ("haiku", "linen", "equinox")


def test_what_cannot_be_translated_is_left_out_and_the_rest_runs() -> None:
    excluded = check(with_backends(CUSTOM)).excluded
    assert {backend for _, backend in excluded} == {"equinox"}
    assert {rung for rung, _ in excluded} == {"weights", "leaf_order", "canonical"}
    assert all("architectures differ" in message for message in excluded.values())


def test_networks_with_nothing_in_common_are_refused() -> None:
    with pytest.raises(TriglotError, match=r"no network can start from the weights of haiku\. "):
        check(replace(CUSTOM, backends=("haiku", "equinox")))


def test_parameters_are_guessed_and_travel_both_ways() -> None:
    agents = {
        name: build_agent(with_backends(CUSTOM), ENV, name, rung_named("canonical"))
        for name in ("haiku", "linen")
    }
    reference, network = agents["haiku"].network, agents["linen"].network
    names = shared_names(network, reference)
    assert "paired by shape and order" in names.guessed
    params = network.init(jax.random.key(0)).params
    named = names.encode(params)
    assert named.keys() == {
        f"{layer}/{part}" for layer in ("hidden", "policy", "critic") for part in ("kernel", "bias")
    }
    back = names.decode(named)
    jax.tree.map(np.testing.assert_array_equal, back, params)


def test_a_mapping_replaces_the_guess(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    path.write_text('{"linen": {"Dense/0": "hidden", "Dense/1": "critic", "Dense/2": "policy"}}')
    mapping = read_mapping(path)["linen"]
    agents = {
        name: build_agent(with_backends(CUSTOM), ENV, name, rung_named("weights"))
        for name in ("haiku", "linen")
    }
    names = shared_names(agents["linen"].network, agents["haiku"].network, mapping)
    assert names.guessed == ""
    params = agents["linen"].network.init(jax.random.key(0)).params
    np.testing.assert_array_equal(names.encode(params)["hidden/kernel"].shape[-1], 8)
    jax.tree.map(np.testing.assert_array_equal, names.decode(names.encode(params)), params)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "is not JSON"), ('{"linen": ["a"]}', "must hold"), (None, "No such file")],
)
def test_a_wrong_mapping_is_refused(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(TriglotError, match=message):
        read_mapping(path)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (("my_networks:one",), "must be a dictionary from library to network"),
        (("my_networks:wrong",), "haiku must be a Network or a dictionary of them"),
        (("my_networks:one", "my_networks:one"), "LIBRARY=package.module:object each"),
        (("hiaku=my_networks:one",), "did you mean 'haiku'"),
    ],
)
def test_wrong_networks_are_refused(network: tuple[str, ...], message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        with_backends(replace(CUSTOM, network=network))
