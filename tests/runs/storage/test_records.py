"""The records of a run: what damage is answered with, and the state that they tell."""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from triglot.cli.main import main
from triglot.core.errors import TriglotError
from triglot.runs.monitoring.listing import list_runs
from triglot.runs.options import RunsOptions
from triglot.runs.storage.logs import _identity
from triglot.runs.storage.records import (
    BEST,
    PROGRESS,
    SUMMARY,
    locked,
    recorded_progress,
    state_of,
)
from triglot.shared.machine.files import HOLDER

# A command that reads each record of a run, and the fields that it needs.
READERS = {
    "config.json": ("evaluate", ["schema", "command", "env", "num_updates", "config"]),
    SUMMARY: ("watch", ["num_updates", "interrupted", "diverged", "evaluation", "reached"]),
    PROGRESS: ("resume", ["num_updates"]),
    BEST: ("watch", ["num_updates", "return_mean"]),
    HOLDER: ("watch", ["pid", "host", "since", "started"]),
}
DAMAGE = {
    "empty": lambda text: b"",
    "truncated": lambda text: text[: len(text) // 2],
    "binary": lambda text: b"\x00\xff\xfe" + text,
    "a list": lambda text: b"[1, 2]",
    "a number": lambda text: b"3",
    "deep": lambda text: b"[" * 100_000,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run that has every record."""
    out = tmp_path_factory.mktemp("runs") / "run"
    words = "q_learning gridworld:2x2 --backend table --total-steps 16 --num-envs 1 --no-preset "
    words += "--rollout-length 8 --eval-every 8 --eval-episodes 2"
    assert main(["train", *words.split(), "--out", str(out)]) == 0
    # As a program leaves it that was killed.
    facts = {"pid": 1, "host": platform.node(), "since": "2026-01-01 00:00:00", "started": 0.0}
    (out / HOLDER).write_text(json.dumps(facts))
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "200")
    return shutil.copytree(finished, tmp_path / "run")


def refused(words: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must refuse a damaged file in one sentence."""
    capsys.readouterr()
    assert main(words) == 2
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if "error" in line]
    assert len(lines) == 1 and name in lines[0] and "Traceback" not in error
    return lines[0]


@pytest.mark.covering(2)
@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_record_is_refused(
    name: str, how: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / name
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    assert f"{path} is damaged: " in refused([READERS[name][0], str(run)], name, capsys)


@pytest.mark.parametrize(("name", "field"), [(n, f) for n, (_, fs) in READERS.items() for f in fs])
def test_a_record_without_a_field_or_with_another_type_is_refused(
    name: str, field: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, words = run / name, [READERS[name][0], str(run)]
    content = json.loads(path.read_text())
    if field not in ("schema", "command"):  # one of both is enough
        path.write_text(json.dumps({n: v for n, v in content.items() if n != field}))
        assert f"it has no {field}." in refused(words, name, capsys)
    if field != "command":  # it is not read
        path.write_text(json.dumps(content | {field: [None]}))
        assert "[None]" in refused(words, name, capsys)


@pytest.mark.parametrize("name", [SUMMARY, PROGRESS, BEST, HOLDER])
def test_a_missing_record_says_that_there_was_none(name: str, run: Path) -> None:
    (run / name).unlink()
    assert main(["watch", str(run)]) == 0
    assert state_of(run) == ("killed" if name == SUMMARY else "finished")


def test_a_missing_config_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "config.json").unlink()
    assert "is not a triglot run directory" in refused(["watch", str(run)], "config", capsys)


def test_a_list_of_runs_marks_a_damaged_one(run: Path) -> None:
    (run / SUMMARY).write_text("{")
    assert " damaged " in list_runs(RunsOptions(folder=run.parent))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"id": 3}', "\x00"])
def test_a_damaged_identity_of_a_log_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "wandb.json"
    first = _identity(path)
    assert _identity(path) == first
    path.write_text(text)
    with pytest.raises(TriglotError, match=r"wandb.json is damaged: .* starts another run\.$"):
        _identity(path)


@pytest.mark.parametrize("content", [b"", b"seed = ", b"\x00\xff", b"[1, 2]", b"seed = []"])
def test_a_damaged_config_file_is_refused(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(content)
    part = [] if content == b"" else ["ppo", "probe:two-step"]  # an empty file names none
    refused(["train", *part, "--config", str(path)], "", capsys)


def test_a_damaged_holder_does_not_hide_that_a_run_is_in_use(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with locked(run):
        (run / HOLDER).write_text("{")
        error = refused(["resume", str(run)], "run", capsys)
    assert "is in use by another program: wait" in error


HOLD = """
import sys, time
from pathlib import Path
from triglot.runs.storage.records import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def other_program(run: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a program that writes the run."""
    command = [sys.executable, "-c", HOLD, str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def shown_states(run: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Read the state of a run that `triglot runs` and `triglot watch` show."""
    lines = list_runs(RunsOptions(folder=run.parent)).splitlines()
    (row,) = (line for line in lines if "gridworld" in line)
    (run / "metrics.jsonl").unlink(missing_ok=True)
    state = state_of(run)
    if state != "running":  # `watch` would wait
        capsys.readouterr()
        assert main(["watch", str(run)]) == 0
        assert f": {state}, before its first update" in " ".join(capsys.readouterr().out.split())
    return [row.split()[1], state]


def test_a_run_is_running_while_another_program_holds_its_lock(
    run: Path, other_program: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    assert shown_states(run, capsys) == ["running", "running"]
    after = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    assert after == {name: time for name, time in before.items() if name != "metrics.jsonl"}
    other_program.kill()
    other_program.wait()
    assert shown_states(run, capsys) == ["finished", "finished"]
    (run / SUMMARY).unlink()
    assert shown_states(run, capsys) == ["killed", "killed"]


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, "finished"),
        ({"interrupted": True}, "interrupted"),
        ({"diverged": "a parameter is NaN"}, "diverged"),
        ({"reached": {"return": 1.0}}, "stopped"),
        ({"num_updates": 1}, "killed"),  # after it was resumed
    ],
)
def test_the_state_of_a_run_that_nobody_writes(
    change: dict[str, Any], state: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((run / SUMMARY).read_text())
    (run / SUMMARY).write_text(json.dumps(content | change))
    assert recorded_progress(run) == 2
    assert shown_states(run, capsys) == [state, state]


def test_a_run_of_another_machine_is_running_until_its_summary(run: Path) -> None:
    facts = {"pid": os.getpid(), "host": f"not-{platform.node()}", "since": "", "started": 0.0}
    (run / HOLDER).write_text(json.dumps(facts))
    later = time.time() + 5
    os.utime(run / HOLDER, (later, later))
    assert state_of(run) == "running"
    os.utime(run / SUMMARY, (later, later))
    assert state_of(run) == "finished"
    os.utime(run / SUMMARY, (later - 9, later - 9))
    (run / HOLDER).write_text(json.dumps(facts | {"host": platform.node()}))
    assert state_of(run) == "finished"  # the program died, and may have changed nothing
