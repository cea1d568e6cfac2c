"""A run folder runs no code that this user did not choose."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import triglot
from triglot.cli.main import main
from triglot.core.errors import TriglotError

pytestmark = pytest.mark.packaging

# A part of the user's own, which says when it is imported.
SOURCE = """
from pathlib import Path

from triglot import make_env

with (Path(__file__).parent / "imported").open("a") as file:
    file.write("x")


def env():
    return make_env("probe:two-step")
"""
COMMANDS = ("resume", "evaluate", "render")


def change(run: Path, **fields: Any) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, **fields}))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "fields",
    [
        {"env": "os:system,command=touch PWNED"},
        {"env": "subprocess:call,args=touch PWNED,shell=True"},
        {"algorithm": "payload:Agent"},
        {"network": ["payload:net"]},
        {"network": ["torso=payload:net"]},
        {"optimizer": "payload:optimizer"},
        {"env": "gymnasium:payload:CartPole-v1"},
        {"env": "gymnasium:GymV26Environment-v0,env_id=payload:X"},
    ],
    ids=str,
)
def test_a_folder_from_elsewhere_runs_nothing(
    command: str,
    fields: dict[str, Any],
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "payload.py").write_text("open('PWNED', 'w')")
    monkeypatch.chdir(here)
    change(run, **fields)
    assert main([command, str(run)]) == 2
    said = capsys.readouterr().err
    assert "names code" in said and "--trust" in said
    assert not (here / "PWNED").exists() and "payload" not in sys.modules
    with pytest.raises(TriglotError, match="names code"):
        triglot.load_run(run)


@pytest.mark.parametrize("text", ["os:system,command=touch PWNED", "subprocess:call,args=ls"])
def test_python_itself_has_no_parts(
    text: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Even a trusted folder, or the command line itself, calls nothing that is not a part."""
    monkeypatch.chdir(tmp_path)
    change(run, env=text)
    assert main(["evaluate", str(run), "--trust"]) == 2
    assert main(["train", "ppo", text]) == 2
    assert capsys.readouterr().err.count("a module of Python itself") == 2
    assert not Path("PWNED").exists()


def test_what_is_imported_from_pythons_own_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reexports.py").write_text("from os import system\nfrom subprocess import call\n")
    monkeypatch.chdir(tmp_path)
    for name in ("system,command=touch PWNED", "call,args=ls"):
        assert main(["train", "ppo", f"reexports:{name}"]) == 2
        assert "a function of Python itself" in capsys.readouterr().err
    assert not Path("PWNED").exists()


TRAIN = (
    "train ppo own_part:env --num-envs 2 --rollout-length 8 --num-minibatches 2 --num-epochs 1 "
    "--hidden-sizes 8 --total-steps 16 --eval-episodes 0"
)


def triglot_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, which has imported nothing before."""
    return subprocess.run(
        [sys.executable, "-m", "triglot", *words], cwd=folder, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a custom environment and a run that was begun there."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_part.py").write_text(SOURCE)
    done = triglot_in(folder, *TRAIN.split(), "--out", "run")
    assert done.returncode == 0, done.stderr
    return folder


def imports(folder: Path) -> int:
    return len((folder / "imported").read_text())


@pytest.mark.slow
def test_who_began_a_run_needs_no_option_until_it_is_moved_or_changed(
    own: Path, tmp_path: Path
) -> None:
    before = imports(own)
    assert triglot_in(own, "evaluate", "run", "--episodes", "1").returncode == 0
    assert imports(own) == before + 1
    moved = shutil.copytree(own / "run", tmp_path / "moved")
    asked = triglot_in(own, "evaluate", str(moved), "--episodes", "1")
    assert asked.returncode == 2 and "names code, own_part:env" in asked.stderr
    assert imports(own) == before + 1
    trusted = triglot_in(own, "evaluate", str(moved), "--episodes", "1", "--trust")
    assert trusted.returncode == 0, trusted.stderr
    assert triglot_in(own, "evaluate", str(moved), "--episodes", "1").returncode == 0
    change(moved, seed=5)
    assert triglot_in(own, "evaluate", str(moved), "--episodes", "1").returncode == 2


def test_a_module_in_the_run_folder_is_never_imported(own: Path, tmp_path: Path) -> None:
    inside = shutil.copytree(own / "run", tmp_path / "inside")
    (inside / "own_part.py").write_text(SOURCE)
    (inside / "pygame.py").write_text(SOURCE)
    (inside / "platformdirs.py").write_text(SOURCE)
    refused = triglot_in(inside, "evaluate", ".", "--trust")
    assert refused.returncode == 2 and "not imported out of the run folder" in refused.stderr
    change(inside, env="probe:two-step")
    assert triglot_in(inside, "evaluate", ".", "--episodes", "1").returncode == 0
    assert not (inside / "imported").exists()


def test_settings_of_a_machine_are_not_read_from_a_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "cache"
    change(run, compilation_cache=str(elsewhere), no_compilation_cache=False)
    assert main(["evaluate", str(run), "--episodes", "1", "--no-compilation-cache"]) == 0
    assert not elsewhere.exists()
    capsys.readouterr()
    change(run, log=["wandb"])
    assert main(["resume", str(run)]) == 2
    assert "names code, --log wandb" in capsys.readouterr().err


def test_a_record_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_part.py").write_text(SOURCE)
    assert main([*TRAIN.split(), "--out", str(tmp_path / "run")]) == 0
    assert "will need --trust" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("num_seeds", "x", "its num_seeds must be a count of at least 1, got 'x'"),
        ("num_seeds", True, "its num_seeds must be a count of at least 1, got True"),
        ("algorithm", 5, "its algorithm must be text, got 5"),
        ("env", None, "its env must be text, got None"),
        ("network", [5], "its network must be a list"),
        ("log", "wandb", "must be a list"),
        ("config", {"hidden_sizes": 8}, "hidden_sizes of PPOConfig must be a list"),
        ("hyper", {"learning_rate": "fast"}, "learning_rate of PPOHyperparams must be a number"),
        ("checkpoint_seconds", [], "checkpoint_seconds of TrainOptions must be a number"),
    ],
)
def test_a_field_of_another_type(
    name: str, value: Any, says: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(run, **{name: value})
    assert main(["resume", str(run)]) == 2
    assert says in capsys.readouterr().err
