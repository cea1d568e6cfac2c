"""The first operation that differs is found in the libraries' networks, with file and line."""

import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from safetensors.numpy import save_file

import triglot
from triglot.experiments.comparison.jobs import Ledger
from triglot.experiments.comparison.operations import add_operations
from triglot.experiments.comparison.training.session import Session
from triglot.experiments.options import CompareOptions

from .in_process import OPTIONS


def a_pair(*backends: str, cause: str) -> dict[str, Any]:
    """Make as much of a pair as is read."""
    return {
        "backends": list(backends),
        "causes": [{"name": cause, "where": "", "evidence": ""}],
        "first_difference": {"update": 1, "leaf": "w"},
    }


def with_weights(options: CompareOptions, folder: Path) -> Ledger:
    """Write the first library's weights."""
    ledger = Ledger(folder)
    save_file(Session(options, options.libraries[0]).init().arrays, ledger.weights(0))
    return ledger


def test_a_rounding_difference_has_a_place(tmp_path: Path) -> None:
    options = replace(OPTIONS, backends=("haiku", "equinox"), num_seeds=1)
    pair = a_pair("haiku", "equinox", cause="summation_order")
    add_operations(options, with_weights(options, tmp_path), [pair])
    operation = pair["first_difference"]["operation"]
    assert operation["one"]["source"].startswith("haiku/")
    assert operation["other"]["source"].startswith("equinox/")
    assert 0 < operation["max_abs"] < 1e-6
    assert len(pair["causes"]) == 1


def test_a_pair_that_differs_elsewhere_has_no_operation(tmp_path: Path) -> None:
    pair = a_pair("haiku", "equinox", cause="optimizer")
    options = replace(OPTIONS, backends=("haiku", "equinox"), num_seeds=1)
    add_operations(options, with_weights(options, tmp_path), [pair])
    assert pair["first_difference"]["operation"] is None


class Own(nn.Module):
    """A custom network with a choice of activation."""

    activation: Any

    @nn.compact
    def __call__(self, obs: jax.Array) -> Any:
        features = self.activation(nn.Dense(8)(obs))
        return {"logits": nn.Dense(2)(features), "value": nn.Dense(1)(features)[:, 0]}


def networks(obs_spec: Any, action_spec: Any) -> dict[str, Any]:
    """Build two networks with different activations; the second stands for another library."""
    del action_spec
    tanh, relu = Own(jnp.tanh), Own(jax.nn.relu)
    return {
        "linen": triglot.from_linen(tanh, obs_spec),
        "haiku": replace(triglot.from_linen(relu, obs_spec), backend="haiku"),
    }


def test_the_cause_in_custom_networks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("my_networks")
    module.networks = networks
    monkeypatch.setitem(sys.modules, "my_networks", module)
    config = {"rollout_length": 8, "num_epochs": 1, "num_minibatches": 1}
    options = replace(
        OPTIONS,
        backends=("linen", "haiku"),
        network=("my_networks:networks",),
        num_seeds=1,
        config=config,
    )
    pair = a_pair("linen", "haiku", cause="network")
    add_operations(options, with_weights(options, tmp_path), [pair])
    assert [cause["name"] for cause in pair["causes"]] == ["network", "activation"]
    assert Path(__file__).name in pair["first_difference"]["operation"]["one"]["source"]
