"""`triglot runs`: the table of runs, its states, filters and order."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.printed import unwrapped
from triglot.cli.main import main
from triglot.core.errors import TriglotError
from triglot.runs.monitoring.listing import list_runs
from triglot.runs.options import RunsOptions
from triglot.runs.storage.config import FIELDS, SCHEMA

EVALUATION = {"return_mean": 480.0}
ENDED = {
    "num_updates": 2, "num_steps": 256, "diverged": None, "interrupted": False, "reached": None,
    "evaluation": None,
}  # fmt: skip
# By folder: what summary.json has, updates of the last checkpoint, returns of the last update, and
# the state and return that are shown.
RUNS: dict[str, tuple[dict[str, Any] | None, int, list[float | None], str, str]] = {
    "finished": ({**ENDED, "evaluation": EVALUATION}, 2, [20.0, 22.0], "finished", "480.0"),
    "stopped": ({**ENDED, "interrupted": True}, 2, [20.0, 22.0], "interrupted", "21.0*"),
    "nan": ({**ENDED, "diverged": "NaN"}, 0, [None, 20.0], "diverged", "20.0*"),
    "killed": (None, 0, [None, None], "killed", "-"),
    # It was resumed after its end, and killed then.
    "extended": ({**ENDED, "evaluation": EVALUATION}, 4, [30.0, 30.0], "killed", "480.0"),
}  # fmt: skip


def write_run(folder: Path, name: str) -> None:
    summary, done, returns, *_ = RUNS[name]
    folder.mkdir(parents=True)
    config = {
        **{field: None for field, kind in FIELDS.items() if not kind.optional},
        "schema": SCHEMA,
        "command": "triglot train",
        "num_updates": 2,
        "steps_per_update": 128,
        "num_steps": 256,
        "algorithm": "dqn" if name == "nan" else "ppo",
        "env": "gymnax:CartPole-v1",
        "network": [],
        "backend": "linen",
        "num_seeds": 2,
        "config": {"num_envs": 4},
        "hyper": {"learning_rate": 0.001 if name == "killed" else 0.01},
    }
    (folder / "config.json").write_text(json.dumps(config))
    line = {"update": 2, "env_steps": 256, "episode_return": returns}
    text = json.dumps(line) + "\n" + '{"update": 3, "env_st'
    (folder / "metrics.jsonl").write_text(text)
    (folder / "progress.json").write_text(json.dumps({"num_updates": done}))
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(RUNS):
        write_run(tmp_path / "more" / name, name)
        began = time.time() - 100 * (number + 1)
        os.utime(tmp_path / "more" / name / "config.json", (began, began))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    return Path()


def names(text: str) -> list[str]:
    return [
        Path(line.split()[0]).name for line in text.splitlines()[2:] if line.startswith("more/")
    ]


@pytest.mark.parametrize("name", RUNS)
def test_state_return_and_steps_of_a_run(folder: Path, name: str) -> None:
    text = list_runs(RunsOptions(folder=folder))
    line = next(line for line in text.splitlines() if f"/{name} " in line)
    *_, state, shown = RUNS[name]
    assert line.split()[1] == state
    assert f" {shown} " in line and " 256 " in line and "gymnax:CartPole-v1" in line


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("age", "finished"),
        ("return", "finished"),
        ("run", "extended"),
        ("state", "nan"),
        ("algorithm", "nan"),
    ],
)
def test_runs_are_sorted(folder: Path, sort: str, first: str) -> None:
    found = names(list_runs(RunsOptions(folder=folder, sort=sort)))
    assert found[0] == first and len(found) == len(RUNS)
    if sort == "return":
        assert found[-1] == "killed"  # it has no return


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (("algorithm=dqn",), ["nan"]),
        (("learning_rate=1e-3",), ["killed"]),
        (("state=killed", "num_envs=4"), ["killed", "extended"]),
        (("networks=linen", "seeds=2", "algorithm=dqn"), ["nan"]),
        (("optimizer=adam",), []),  # none was chosen
    ],
)
def test_runs_are_filtered(folder: Path, where: tuple[str, ...], found: list[str]) -> None:
    assert names(list_runs(RunsOptions(folder=folder, where=where))) == found


@pytest.mark.parametrize("width", [60, 80])
def test_the_table_fits_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = list_runs(RunsOptions(folder=folder)).splitlines()
    assert max(map(len, lines)) <= width
    header, shown = lines[0], " ".join(lines[1:]).partition("a wider terminal also shows ")[2]
    assert all(name in header for name in ("run", "state", "age", "return"))
    assert "env" in shown and not any(name in header.split() for name in shown.split(", "))


def test_the_name_that_train_gives_a_run_is_shown_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "runs/ppo-gymnax_CartPole_v1-linen-20261123-174501"
    write_run(folder / name, "killed")
    assert name in list_runs(RunsOptions(folder=folder))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sort": "returns"}, "did you mean 'return'"),
        ({"where": ("algoritm=ppo",)}, "did you mean 'algorithm'"),
        ({"where": ("ppo",)}, "--where takes NAME=VALUE, got 'ppo'"),
        ({"folder": Path("nowhere")}, "nowhere is not a folder"),
    ],
)
def test_what_cannot_be_shown(folder: Path, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TriglotError, match=sentence):
        list_runs(RunsOptions(**{"folder": folder, **change}))


def test_a_folder_without_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path)]) == 0
    assert "no runs in" in unwrapped(capsys)


def test_a_list_needs_no_jax() -> None:
    code = "import sys, triglot.runs.monitoring.listing; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
