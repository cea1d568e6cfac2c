"""`triglot diff`: exit codes, the JSON file, and mistakes in one sentence."""

import json
from pathlib import Path

import pytest

from triglot.cli import main as cli

NETWORKS = """
import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp

def haiku_net(x):
    return hk.nets.MLP([8, 2], activation=jnp.tanh)(x)

def equinox_net(key):
    return eqx.nn.MLP(4, 2, 8, 1, activation=jnp.tanh, key=key)

def relu_net(key):
    return eqx.nn.MLP(4, 2, 8, 1, activation=jax.nn.relu, key=key)

def embedded(x, index):
    return hk.Linear(2)(x) + hk.Embed(10, 2)(index)

class Embedded(nn.Module):
    @nn.compact
    def __call__(self, x, index):
        return nn.Dense(2)(x) + nn.Embed(10, 2)(index)

class ActorCritic(nn.Module):
    @nn.compact
    def __call__(self, x):
        actor, critic = x, x
        for _ in range(2):
            actor = jnp.tanh(nn.Dense(64)(actor))
        for _ in range(2):
            critic = jnp.tanh(nn.Dense(64)(critic))
        return {"logits": nn.Dense(2)(actor), "value": nn.Dense(1)(critic)[:, 0]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with a file of networks, and keep no compiled programs."""
    (tmp_path / "diffed_networks.py").write_text(NETWORKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)
    return tmp_path


def diff(one: str, other: str, *options: str) -> int:
    return cli.main(["diff", f"diffed_networks:{one}", f"diffed_networks:{other}", *options])


def test_equivalent_networks_exit_with_0_and_write_json(folder: Path) -> None:
    assert diff("haiku_net", "equinox_net", "--obs-shape", "4", "--json", "found.json") == 0
    found = json.loads((folder / "found.json").read_text())
    assert found["verdict"] in ("identical", "equivalent")
    assert found["max_abs_difference"] < 1e-6
    assert found["first_difference"] is None
    assert [cause["name"] for cause in found["causes"]] == ["initializer"]


def test_different_networks_exit_with_1_and_say_why(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--obs-shape", "4", "--json", "found.json", "--mapping")
    pairs = ("mlp/linear_0=layers/0", "mlp/linear_1=layers/1")
    assert diff("haiku_net", "relu_net", *options, *pairs) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("different: ")
    assert max(map(len, printed.splitlines())) <= 80
    found = json.loads((folder / "found.json").read_text())
    assert "activation" in [cause["name"] for cause in found["causes"]]
    assert found["parameters"]["mapping"] == "stated"
    assert "diffed_networks.py" in found["first_difference"]["one"]["source"]


@pytest.mark.slow
def test_several_inputs_have_dtypes() -> None:
    assert diff("embedded", "Embedded", "--inputs", "float32:4", "int32::0..9") == 0


@pytest.mark.slow
def test_a_network_of_the_zoo_is_compared_with_an_own_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["diff", "zoo:haiku", "diffed_networks:ActorCritic", "--env", "gymnax:CartPole-v1"]
    assert cli.main(words) == 0
    assert "guessed by order of use" in capsys.readouterr().out


@pytest.mark.slow
def test_a_page_is_written(folder: Path) -> None:
    page = folder / "page.html"
    assert diff("haiku_net", "relu_net", "--obs-shape", "4", "--html", str(page)) == 1
    text = page.read_text()
    assert "activation" in text and 'class="module different"' in text
    assert "diffed_networks.py" in text
