"""`triglot train --init-from`: another run's weights, whole or by name, seed by seed or one."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import triglot
from tests.printed import unwrapped
from triglot.cli import main as cli
from triglot.runs import train
from triglot.runs.load import named_weights, run_of, stats_of

PPO = "train ppo probe:two-step --num-envs 2 --rollout-length 4 --num-minibatches 2"
PPO += " --hidden-sizes 5 --eval-episodes 0 --checkpoint-seconds 0 --total-steps 16"
REACH = PPO.replace("two-step", "reach")


def run(words: str, out: Path, *more: object) -> int:
    return cli.main([*words.split(), "--out", str(out), *map(str, more)])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train two seeds with Haiku, in its own structure."""
    out = tmp_path_factory.mktemp("runs") / "source"
    assert run(PPO, out, "--num-seeds", 2, "--backend", "haiku", "--arithmetic", "native") == 0
    return out


@pytest.fixture(scope="module")
def normalized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train one seed with normalized observations."""
    out = tmp_path_factory.mktemp("runs") / "normalized"
    assert run(REACH, out) == 0
    return out


@pytest.fixture
def first_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a training before its first update."""
    ended: Any = lambda plan, chunks, state, **_: (state, None, False)  # noqa: E731
    monkeypatch.setattr(train, "_train_in_chunks", ended)
    monkeypatch.setattr("triglot.core.loop.trainer.CompiledProgram.compile", lambda *_: None)


def weights(folder: Path, seed_index: int) -> dict[str, np.ndarray]:
    return named_weights(run_of(folder), seed_index)


@pytest.mark.slow
@pytest.mark.parametrize(
    "num_seeds, index, expected",
    [(2, None, [0, 1]), (3, 1, [1, 1, 1])],
    ids=["seed by seed", "one for all"],
)
@pytest.mark.usefixtures("first_state")
def test_all_weights_are_taken_in_another_library(
    num_seeds: int, index: int | None, expected: list[int], source: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    more = [] if index is None else ["--init-seed-index", index]
    out = tmp_path / "run"
    assert run(PPO, out, "--num-seeds", num_seeds, "--init-from", source, *more) == 0
    assert f"starts from {source} after 2 updates: 8 of 8 parameters" in unwrapped(capsys)
    for seed, there in enumerate(expected):
        found, wanted = weights(out, seed), weights(source, there)
        assert found.keys() == wanted.keys()
        for name in wanted:
            np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
    config = json.loads((out / "config.json").read_text())
    assert config["init_from"] == str(source) and config["init_seed_index"] == index


@pytest.mark.usefixtures("first_state")
def test_some_weights_are_taken_by_name_into_other_heads(source: Path, tmp_path: Path) -> None:
    out, names = tmp_path / "run", ["--init-names", "actor/torso/*", "critic/*"]
    assert run(REACH, out, "--num-seeds", 2, "--init-from", source, *names) == 0
    found, wanted = weights(out, 1), weights(source, 1)
    for name in ("actor/torso/0/kernel", "critic/head/value/bias", "critic/torso/0/bias"):
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
    assert found["actor/head/mean/kernel"].shape == (5, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("first_state")
def test_targets_and_statistics_follow(normalized: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(REACH, out, "--init-from", normalized, "--num-seeds", 2) == 0
    there, here = (stats_of(triglot.load_run(path).agent_states) for path in (normalized, out))
    assert there is not None and here is not None and float(there.count[0]) == 16
    for name in ("mean", "variance", "count"):
        wanted = np.repeat(getattr(there, name), 2, axis=0)
        np.testing.assert_array_equal(getattr(here, name), wanted, err_msg=name)
    replay = "--buffer-size 64 --learning-starts 8 --batch-size 4 --num-envs 2 --hidden-sizes 5"
    dqn = f"train dqn probe:two-step --total-steps 16 --eval-episodes 0 {replay}"
    assert run(dqn, tmp_path / "one") == 0
    assert run(dqn, tmp_path / "two", "--init-from", tmp_path / "one", "--seed", "7") == 0
    one, two = (triglot.load_run(tmp_path / name).agent_states for name in ("one", "two"))
    wanted: Any = one.learner.variables.params
    assert wanted.keys() == two.target.params.keys()
    for part, arrays in wanted.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(two.target.params[part][name], array)
            np.testing.assert_array_equal(two.learner.variables.params[part][name], array)


@pytest.mark.slow
def test_a_run_stopped_at_once_continues_from_the_same_weights(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source may change: what a training started from is its checkpoint 0."""
    copy, whole, stopped = tmp_path / "copy", tmp_path / "whole", tmp_path / "stopped"
    shutil.copytree(source, copy)
    more = ["--num-seeds", 2, "--init-from", copy]
    assert run(PPO, whole, *more) == 0
    with monkeypatch.context() as patch:
        patch.setattr(train, "run", lambda *_: SimpleNamespace(exit_code=130))
        assert run(PPO, stopped, *more) == 130
    shutil.rmtree(copy)
    assert cli.main(["resume", str(stopped)]) == 0
    assert (stopped / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()


@pytest.mark.covering(2)
@pytest.mark.parametrize(
    "more, says",
    [
        ("--num-seeds 3 --init-from SOURCE", "has 2 seeds and this training 3: give the one"),
        ("--init-from SOURCE --init-seed-index 2", "less than the number of seeds of"),
        ("--init-from SOURCE --init-seed-index -1", "init_seed_index must be at least 0"),
        ("--init-from nowhere", "nowhere is not a triglot run directory"),
        ("--init-names torso/*", "--init-names needs a run: --init-from FOLDER"),
        ("--init-seed-index 0", "--init-seed-index needs a run"),
        ("--num-seeds 2 --init-from SOURCE --init-names torzo/*", "matches --init-names 'torzo/*'"),
        (
            "--num-seeds 2 --init-from SOURCE --hidden-sizes 6",
            "does not fit: actor/head/logits/kernel is [5, 2] there and [6, 2] here; actor/torso",
        ),
        ("--num-seeds 2 --init-from SOURCE --shared-torso", "actor/head/logits/bias is [2] there"),
        (
            "--num-seeds 2 --init-from SOURCE --normalize-obs True",
            "observations are not normalized there and normalized here",
        ),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_written(
    more: str, says: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = PPO.replace(" --hidden-sizes 5", "") if "--hidden-sizes" in more else PPO
    assert run(command, tmp_path / "run", *more.replace("SOURCE", str(source)).split()) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


STACKED = """
import flax.linen as nn
import triglot


class Body(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return nn.tanh(nn.Dense(5)(x)), None


class Layers(nn.Module):
    scanned: bool

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(5, name="embed")(x)
        if self.scanned:
            scan = nn.scan(
                Body, variable_axes={"params": 0}, split_rngs={"params": True}, length=2
            )
            x, _ = scan(name="layers")(x, None)
        else:
            for index in range(2):
                x, _ = Body(name=f"layers_{index}")(x, None)
        value = nn.Dense(1, name="value")(x)[..., 0]
        return {"logits": nn.Dense(2, name="logits")(x), "value": value}


def separate(obs_spec, action_spec):
    return triglot.from_linen(Layers(False), obs_spec)


def stacked(obs_spec, action_spec):
    return triglot.from_linen(Layers(True), obs_spec)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("first_state")
def test_separate_layers_start_a_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_stacked_network.py").write_text(STACKED)
    monkeypatch.syspath_prepend(tmp_path)
    words, networks = PPO.replace(" --hidden-sizes 5", ""), "own_stacked_network"
    one, other = tmp_path / "one", tmp_path / "other"
    assert run(words, one, "--network", f"{networks}:separate") == 0
    start = ["--init-from", one, "--network", f"{networks}:stacked"]
    assert run(words, other, *start) == 0
    found, wanted = weights(other, 0), weights(one, 0)
    assert found.keys() == wanted.keys() and "layers/1/Dense/0/kernel" in found
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
    names = ["--init-names", "layers_1/*", "embed/kernel"]
    assert run(words, tmp_path / "some", *start, *names) == 0
    assert "3 of 10 parameters" in unwrapped(capsys)
