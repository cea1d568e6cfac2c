"""Standard streams that are closed or full: an exit code, a sentence, and no training is lost."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import triglot
from triglot.cli.main import main

TINY = "train ppo gridworld:2x2 --backend table --num-envs 1 --rollout-length 2 --num-minibatches 1"
TINY = [*TINY.split(), "--num-epochs", "1", "--total-steps", "64", "--eval-episodes", "0"]
FULL = "standard output cannot be written: No space left on device."


@pytest.mark.covering(2)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
@pytest.mark.parametrize(
    "command, code, says",
    [
        ("list >&-", 2, "triglot: error: standard output is closed: redirect it"),
        ("list >/dev/full", 2, f"triglot: error: {FULL}"),
        ("train ppo --help >/dev/full", 2, f"triglot: error: {FULL}"),
        ("list 2>&- >/dev/null", 0, ""),
        ("list <&- >/dev/null", 0, ""),
        ("trian 2>&-", 2, ""),
        ("trian 2>/dev/full", 2, ""),
        ("trian >&- 2>&-", 2, ""),
        ("list >&- 2>/dev/full", 2, ""),
    ],
)
def test_a_closed_or_full_stream(command: str, code: int, says: str) -> None:
    done = _shell(f'"$PYTHON" -m triglot {command}')
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(says) and done.stderr.count("\n") == bool(says)


def test_a_pipe_without_a_reader_ends_silently() -> None:
    done = _shell('("$PYTHON" -m triglot list; echo "code $?" >&2) | true')
    assert done.stderr == "code 1\n"


def _shell(command: str) -> "subprocess.CompletedProcess[str]":
    root = Path(triglot.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHON": sys.executable}
    return subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True)


class _Full(io.StringIO):
    """A stream on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.slow
def test_a_training_outlives_its_progress_bar(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", _Full())
    out = tmp_path / "run"
    assert main([*TINY, "--out", str(out), "--compilation-cache", str(cache)]) == 0
    assert (out / "summary.json").exists()
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 32


@pytest.mark.slow
def test_results_are_saved_before_they_are_printed(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class FullLater(_Full):
        def write(self, text: str) -> int:
            return super().write(text) if "steps/s" in text else len(text)

    monkeypatch.setattr(sys, "stdout", FullLater())
    out = tmp_path / "run"
    assert main([*TINY, "--out", str(out), "--compilation-cache", str(cache)]) == 2
    assert f"triglot: error: {FULL}\n" in capsys.readouterr().err
    assert (out / "summary.json").exists() and (out / "checkpoints").is_dir()


@pytest.mark.parametrize("columns, widest", [("1", 40), ("100000000", 200), ("x", 80)])
def test_help_fits_a_sane_width(
    columns: str,
    widest: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["list", "--help"]) == 0
    boxes = capsys.readouterr().out.splitlines()[4:]  # below the description, which is not wrapped
    assert 30 < max(map(len, boxes)) <= widest
    assert os.environ["COLUMNS"] == columns
    assert main(["train", "ppo", "probe:two-step", "--num-envs", "x"]) == 2
    expected = "triglot: error: --num-envs: expected an integer, got 'x'."
    assert capsys.readouterr().err.splitlines() == [expected]
