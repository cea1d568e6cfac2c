"""A sweep logs each setting to Weights & Biases and TensorBoard, with the words of `--wandb`."""

from pathlib import Path

import numpy as np
import pytest

from tests.printed import unwrapped
from tests.runs.storage import fake_wandb
from tests.sweep.small import options
from triglot.cli import main as cli
from triglot.core.errors import TriglotError
from triglot.sweep import SweepOptions
from triglot.sweep import sweep as sweep_in_python
from triglot.sweep.run import sweep

pytestmark = pytest.mark.packaging
COMMAND = ["sweep", "q_learning", "gridworld:3x3", "--over", "learning_rate=0.1,0.5"]


def test_each_setting_is_a_run_of_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = fake_wandb.install(monkeypatch)
    chosen = options(
        tmp_path / "rates",
        over=("learning_rate=0.1,0.5",),
        log=("wandb", "tensorboard"),
        wandb=("project=maze", "entity=lab"),
    )
    code, result = sweep(chosen)
    assert code == 0 and result is not None and len(runs) == 2
    settings = sorted(result["settings"], key=lambda one: one["setting"])
    for run, setting in zip(runs, settings, strict=True):
        named = {name: run.arguments[name] for name in ("project", "entity", "group", "resume")}
        assert named == {"project": "maze", "entity": "lab", "group": "rates", "resume": "allow"}
        assert (
            run.arguments["config"]["hyper"]["learning_rate"] == setting["values"]["learning_rate"]
        )
        assert run.finished and run.points[-1]["env_steps"] == setting["steps"]
        greedy = [run.points[-1][f"seed_{seed}/eval_return"] for seed in range(2)]
        np.testing.assert_array_equal(greedy, setting["returns"])
        assert any("episode_return" in point for point in run.points)
        written = tmp_path / f"rates/logs/setting-{setting['setting']}/tensorboard"
        assert list(written.rglob("events.*"))
    sweep(chosen)  # everything is done: the same runs of W&B are continued
    assert [run.arguments["id"] for run in runs[2:]] == [run.arguments["id"] for run in runs[:2]]


def test_the_group_is_chosen_or_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = fake_wandb.install(monkeypatch)
    over = ("learning_rate=0.1",)
    sweep(options(tmp_path / "one", over=over, log=("wandb",), wandb=("group=lab-7",)))
    monkeypatch.setenv("WANDB_RUN_GROUP", "from the environment")
    sweep(options(tmp_path / "two", over=over, log=("wandb",)))
    assert runs[0].arguments["group"] == "lab-7" and "group" not in runs[1].arguments


def test_wrong_words_are_refused_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = fake_wandb.install(monkeypatch)
    for given, message in (
        (["--log", "wandb", "--wandb", "id=abc"], "a sweep starts one for each setting"),
        (["--wandb", "project=maze"], "--wandb has no effect without --log wandb"),
        (["--log", "wandb", "--wandb", "projekt=maze"], "did you mean 'project'"),
    ):
        assert cli.main([*COMMAND, *given, "--out", str(tmp_path / "refused")]) == 2
        assert message in unwrapped(capsys, "err")
    with pytest.raises(TriglotError, match="a sweep starts one for each setting"):
        sweep_in_python(
            "q_learning",
            "gridworld:3x3",
            over={"learning_rate": [0.1]},
            options=SweepOptions(log=("wandb",), wandb=("id=abc",), out=tmp_path / "refused"),
        )
    assert not runs and not (tmp_path / "refused").exists()
