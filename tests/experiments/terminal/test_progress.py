"""The line that says what a command is doing."""

import io
import time

import pytest

from triglot.experiments.cli import main
from triglot.experiments.terminal import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_phase_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.01)
    with progress.phase("compiling"):
        time.sleep(0.2)
        shown = stream.getvalue()
    assert shown.count("compiling") > 2  # also while the block runs
    assert stream.getvalue().rpartition("compiling")[2].strip(" \r:0") == ""  # then it is cleared


def test_a_file_gets_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())
    with progress.phase("compiling"):
        pass
    assert stream.getvalue() == ""


def test_an_error_goes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    with pytest.raises(ValueError, match="inside"), progress.phase("compiling"):
        raise ValueError("inside")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--version"], "triglot 0."),
        (["help"], "usage: triglot"),
        (["help", "runs"], "usage: triglot runs"),
    ],
)
def test_version_and_help(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out.startswith(expected)
