"""`triglot export` on a run: the files of each format, and what is refused."""

import sys
from pathlib import Path

import numpy as np
import pytest

import triglot
from triglot.cli import main as cli
from triglot.export.written import FORMATS

pytestmark = pytest.mark.packaging

NETWORK = """
import equinox as eqx, jax

class Both(eqx.Module):
    logits: eqx.nn.Linear
    value: eqx.nn.Linear

    def __init__(self, key):
        self.logits = eqx.nn.Linear(1, 2, key=key)
        self.value = eqx.nn.Linear(1, "scalar", key=key)

    def __call__(self, obs):
        return {"logits": self.logits(obs), "value": self.value(obs)}

def network(obs_spec, action_spec):
    import triglot
    return triglot.from_equinox(Both)
"""
TRAIN = "train ppo probe:two-step --num-envs 2 --rollout-length 4 --total-steps 16 --num-seeds 2"
TRAIN += " --eval-episodes 0 --hidden-sizes 4"
FILES = {
    "safetensors": {"weights.safetensors"},
    "stablehlo": {"policy.stablehlo", "load.py"},
    "onnx": {"policy.onnx", "load.py"},
    **{name: {"model.py", "weights.npz"} for name in ("haiku", "flax", "nnx", "equinox")},
    "keras": {"model.py", "weights.npz"},
    "torch": {"model.py", "weights.safetensors"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    assert cli.main([*TRAIN.split(), "--out", str(out)]) == 0
    return out


@pytest.mark.covering(8)
@pytest.mark.parametrize("form", FORMATS)
def test_each_format_writes_its_files(
    form: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if form == "onnx":
        pytest.importorskip("jax2onnx", reason="jax2onnx is not installed: triglot[onnx]")
    if form == "torch":
        pytest.importorskip("torch", reason="the extra torch is not installed")
    out, words = tmp_path / "new" / form, ["export", str(run), "--format", form]
    assert cli.main([*words, "--seed-index", "1", "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == FILES[form]
    printed = capsys.readouterr().out
    assert "ppo on probe:two-step after 2 updates, seed 1 of 2." in printed
    assert f"in {out}: {', '.join(sorted(FILES[form]))}" in printed
    assert cli.main([*words, "--out", str(out)]) == 2  # is not overwritten
    assert "exists and is not empty" in capsys.readouterr().err


def test_the_chosen_seed_is_exported(run: Path, tmp_path: Path) -> None:
    from safetensors import safe_open

    out = tmp_path / "out"
    words = ["export", str(run), "--format", "safetensors", "--seed-index", "1"]
    assert cli.main([*words, "--out", str(out)]) == 0
    params = triglot.load_run(run).agent_states.learner.variables.params
    with safe_open(out / "weights.safetensors", "np") as file:
        facts = file.metadata()
        assert (facts["algorithm"], facts["backend"], facts["seed_index"]) == ("ppo", "linen", "1")
        found = file.get_tensor("actor/torso/0/kernel")
    np.testing.assert_array_equal(found, params["actor"]["torso/0/kernel"][1])


@pytest.mark.parametrize(
    "words, says",
    [
        ("--format nnx --seed-index 2", "less than the run's number of seeds, 2; got 2"),
        ("--format onx", "unknown format 'onx'; did you mean 'onnx'"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    words: str, says: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["export", str(run), *words.split(), "--out", str(out)]) == 2
    assert says in capsys.readouterr().err
    assert not out.exists()


def test_a_custom_network_leaves_as_a_policy_or_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_export_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    out, words = tmp_path / "run", TRAIN.replace(" --hidden-sizes 4", "").split()
    assert cli.main([*words, "--network", "own_export_network:network", "--out", str(out)]) == 0
    for form in ("equinox", "safetensors", "stablehlo"):
        code = cli.main(["export", str(out), "--format", form, "--out", str(tmp_path / form)])
        assert code == (2 if form == "equinox" else 0)
    assert "has custom networks, and a plain equinox model is" in capsys.readouterr().err
    assert cli.main(["resume", str(out), "--backend", "nnx"]) == 2
    assert "which are written in one library: --backend nnx cannot" in capsys.readouterr().err


def test_without_jax2onnx_it_says_how_to_install_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    out = tmp_path / "out"
    assert cli.main(["export", str(run), "--format", "onnx", "--out", str(out)]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "jax2onnx is not installed: run `pip install 'triglot[onnx]'`" in error
    assert not out.exists()
