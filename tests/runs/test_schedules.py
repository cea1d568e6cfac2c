"""Schedules on the command line, in files, and when a run is resumed."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

import triglot
from tests.runs.refused import assert_refused
from triglot.cli import main as cli
from triglot.runs.storage.journal import read_metrics

WORDS = "train ppo probe:two-step --num-envs 2 --rollout-length 4 --num-minibatches 2"
TRAIN = [*WORDS.split(), "--hidden-sizes", "4", "--eval-episodes", "0", "--checkpoint-seconds", "0"]
RATE = ["--learning-rate", "linear(0.25, 0)", "--entropy-coef", "piecewise(0: 0.5, 16: 0.25)"]


def run(out: Path, *words: str, updates: int = 4) -> int:
    return cli.main([*TRAIN, "--total-steps", str(8 * updates), "--out", str(out), *words])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "finished"
    assert run(out, *RATE) == 0
    return out


@pytest.mark.slow
def test_a_run_follows_its_schedules_and_keeps_them(finished: Path) -> None:
    _, metrics = read_metrics(finished)
    np.testing.assert_array_equal(metrics["learning_rate"], [[0.25, 0.1875, 0.125, 0.0625]])
    np.testing.assert_array_equal(metrics["entropy_coef"], [[0.5, 0.5, 0.25, 0.25]])
    hyper = json.loads((finished / "config.json").read_text())["hyper"]
    assert hyper["learning_rate"] == "linear(0.25, 0, 4 updates)"
    assert hyper["entropy_coef"] == "piecewise(0: 0.5, 16: 0.25)"


def test_a_file_may_have_a_schedule(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('entropy_coef = "piecewise(0: 0.5, 16: 0.25)"\n[hyper]\nlearning_rate = 0.5\n')
    words = [*TRAIN, "--config", str(file), "--learning-rate", "linear(0.25, 0)", "--print-config"]
    assert cli.main(words) == 0
    printed = capsys.readouterr().out
    assert 'learning_rate = "linear(0.25, 0)"' in printed
    assert 'entropy_coef = "piecewise(0: 0.5, 16: 0.25)"' in printed
    # The config.json of a run: the whole run may have another length now.
    words = ["train", "--config", str(finished / "config.json"), "--print-config"]
    assert cli.main(words) == 0
    assert 'learning_rate = "linear(0.25, 0)"' in capsys.readouterr().out


@pytest.mark.slow
def test_a_resumed_run_keeps_its_schedules(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, spans = tmp_path / "first", "linear(0.25, 0, 4 updates)"
    assert run(out, *RATE, "--learning-rate", spans, updates=2) == 2  # given twice
    assert run(out, "--learning-rate", spans, *RATE[2:], updates=2) == 0
    extend = ["resume", str(out), "--total-steps"]
    assert cli.main([*extend, "40"]) == 2
    assert "the last of which would learn nothing" in capsys.readouterr().err
    assert cli.main([*extend, "32"]) == 0
    whole, resumed = read_metrics(finished)[1], read_metrics(out)[1]
    for name, values in whole.items():
        np.testing.assert_array_equal(values, resumed[name])


WRONG = {
    "--learning-rate liner(3e-4,0)": "unknown schedule 'liner'; did you mean 'linear'?",
    "--learning-rate linear(3e-4)": "has 1 argument, not two or three",
    "--learning-rate linear(3e-4,-1)": "learning_rate must be finite and at least 0, got -1.0 in",
    "--discount linear(0.9,1.1)": "discount must be within [0, 1], got 1.1 in linear(0.9, 1.1)",
    "--learning-rate linear(3e-4,0,-100)": "a span is a number of environment steps above 0",
    "--learning-rate linear(nan,0)": "the numbers of a schedule are finite, got nan",
    "--num-epochs linear(1,4)": "expected an integer, got 'linear(1,4)'",
    "--initial-std linear(1,0.5)": "initial_std is fixed when the training compiles",
    "--stop-at linear(1,0.5)": "--stop-at must be a number, got the schedule",
}


@pytest.mark.parametrize("words", WRONG)
def test_bad_schedules_are_refused_in_a_sentence(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert_refused(run(out, *words.split()), WRONG[words], out, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dqn", "pqn"])
@pytest.mark.parametrize("epsilon", ["0.1", "linear(1, 0.1, 32)"])
def test_a_run_with_an_epsilon_is_continued_and_read(
    algorithm: str, epsilon: str, tmp_path: Path
) -> None:
    own = {
        "dqn": "--batch-size 4 --learning-starts 8",
        "pqn": "--num-minibatches 1 --learning-rate 5e-4",
    }[algorithm]
    words = f"{algorithm} probe:two-step --no-preset --num-envs 2 --hidden-sizes 4 {own}".split()
    words += ["--rollout-length", "4", "--eval-episodes", "2", "--epsilon", epsilon]
    whole, part = tmp_path / "whole", tmp_path / "part"
    for steps, out in (("64", whole), ("32", part)):
        more = ["--total-steps", steps, "--out", str(out), "--no-compilation-cache"]
        assert cli.main(["train", *words, *more]) == 0
    extend = ["resume", str(part), "--total-steps", "64"]
    assert cli.main(extend) == 0
    for run_dir in (whole, part):
        assert cli.main(["evaluate", str(run_dir), "--episodes", "2"]) == 0
        triglot.load_policy(run_dir)
    values = [read_metrics(folder)[1]["epsilon"] for folder in (whole, part)]
    np.testing.assert_array_equal(values[0], values[1])
    assert cli.main(["train", "--config", str(part / "config.json"), "--print-config"]) == 0


@pytest.mark.parametrize(("words", "kept"), [(["--epsilon=0.1"], False), ([], True)])
def test_an_epsilon_replaces_that_of_a_preset(
    words: list[str], kept: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "dqn", "gymnax:CartPole-v1", *words, "--print-config"]) == 0
    printed = tomllib.loads(capsys.readouterr().out)
    assert (printed["hyper"]["epsilon"] == "linear(1, 0.05, 50000 steps)") == kept
    assert ("without epsilon" in printed["preset"]) != kept


def test_a_schedule_replaces_a_presets_decay(capsys: pytest.CaptureFixture[str]) -> None:
    rate = ["--learning-rate", "cosine(1e-3, 0)"]
    words = ["train", "ppo", "gymnax:CartPole-v1", *rate]
    assert cli.main([*words, "--print-config"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["hyper"]["learning_rate"].startswith("cosine")
