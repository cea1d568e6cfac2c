"""Runs in wrapped environments: their options are kept; levels are evaluated on others too."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triglot
from tests.printed import unwrapped
from triglot.cli import main as cli
from triglot.core.wrappers.levels import Levels
from triglot.runs.storage.config import read_config
from triglot.runs.storage.journal import Journal

SMALL = "--rollout-length 8 --num-envs 2 --num-epochs 1 --num-minibatches 1 --hidden-sizes 4"
HOW = [*SMALL.split(), "--num-seeds", "2", "--total-steps", "112"]
# The return is that of the one level, -1 or 1; on other levels both are equally likely.
ONE_LEVEL = "probe:obs-reward,levels=1"
WRAPPED = (
    "probe:two-step,levels=4,level_sampling=learning_progress,sticky_actions=0.5,time_limit=5,"
    "frame_stack=2"
)


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on one level, with evaluations."""
    out = tmp_path_factory.mktemp("runs") / "levels"
    words = ["train", "ppo", ONE_LEVEL, *HOW, "--eval-every", "48", "--eval-episodes", "64"]
    assert cli.main([*words, "--out", str(out)]) == 0
    return out


def check_gap(found: dict[str, Any], episodes: int) -> None:
    unseen = found["unseen_levels"]
    assert found["return_min"] == found["return_max"] == found["return_mean"]
    assert (unseen["return_min"], unseen["return_max"]) == (-1, 1)
    assert unseen["return_mean"] == pytest.approx(0, abs=4 / (2 * episodes) ** 0.5)
    assert found["generalization_gap"] == found["return_mean"] - unseen["return_mean"]
    assert unseen["episodes_per_seed"] == found["episodes_per_seed"] == episodes


@pytest.mark.slow
def test_a_training_ends_with_both_returns(run: Path) -> None:
    check_gap(read(run / "summary.json")["evaluation"], 64)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line for line in lines if None not in line["eval_return"]]
    assert [line["update"] for line in evaluated] == [3, 6]
    assert all(np.abs(line["eval_return"]).tolist() == [1, 1] for line in evaluated)
    assert all(np.abs(line["eval_return_unseen"]).max() < 0.6 for line in evaluated)


@pytest.mark.slow
def test_evaluate_prints_both_returns_and_the_gap(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", str(run), "--episodes", "40"]) == 0
    found, told = read(run / "evaluation.json"), unwrapped(capsys)
    check_gap(found, 40)
    assert "on unseen levels: greedy return" in told and "generalization gap:" in told
    assert cli.main(["evaluate", str(run), "--episodes", "4", "--env", "probe:obs-reward"]) == 0
    assert "generalization gap" not in unwrapped(capsys)
    assert "unseen_levels" not in read(run / "evaluation.json")


@pytest.mark.slow
def test_a_wrapped_run_keeps_its_options_and_continues_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped, add_chunk = tmp_path / "whole", tmp_path / "stopped", Journal.add_chunk
    words = ["train", "ppo", WRAPPED, *HOW, "--eval-every", "48", "--eval-episodes", "2"]

    def add_and_press(journal: Journal, metrics: dict[str, np.ndarray]) -> None:
        add_chunk(journal, metrics)
        os.kill(os.getpid(), signal.SIGINT)

    assert cli.main([*words, "--out", str(whole)]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "add_chunk", add_and_press)
        assert cli.main([*words, "--out", str(stopped)]) == 130
    assert read_config(stopped)["env"] == WRAPPED
    assert cli.main(["resume", str(stopped)]) == 0
    assert (stopped / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    env: Any = triglot.load_run(stopped).env
    assert env == triglot.make_env(WRAPPED)
    assert env.env.env.env == Levels(triglot.make_env("probe:two-step"), 4, 0, "learning_progress")


@pytest.mark.parametrize("option", ["sticky_actions=2", "frame_stak=2", "levels=0"])
def test_a_wrong_option_ends_the_command_before_anything(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "never"
    assert cli.main(["train", "ppo", f"probe:two-step,{option}", "--out", str(out)]) == 2
    assert option.partition("=")[0] in capsys.readouterr().err and not out.exists()
