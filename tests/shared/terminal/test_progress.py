"""The line that says what a command is doing."""

import io
import time

import pytest

from triglot.cli.main import main
from triglot.shared.terminal import progress


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


def test_a_bar_that_does_not_advance_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.01)
    with progress.Bar(total=4):
        time.sleep(0.2)
        assert stream.getvalue().count("0/4") > 2


def test_help_is_printed_without_the_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    monkeypatch.setattr("sys.stdout", stream)
    assert main(["train", "ppo", "--help"]) == 0
    shown = stream.getvalue()
    before = shown.partition("usage: ")[0]
    assert "importing" in before and before.endswith("\r")
    assert "\x1b" not in shown


def test_a_terminal_wraps_an_error_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    assert main(["trian"]) == 2
    lines = stream.getvalue().splitlines()
    assert len(lines) > 1 and max(map(len, lines)) <= 60


def test_an_error_in_a_terminal_is_one_without_colors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["version", "--help"]) == 0
    assert "\x1b[" in capsys.readouterr().out
    assert main(["evaluate", "runs/x", "--episodes", "many"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "triglot: error: --episodes: expected an integer, got 'many'."


def test_a_file_gets_a_line_for_a_phase_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(progress, "SHORT_SECONDS", 0.1)
    with progress.phase("building"):
        pass
    with progress.phase("compiling"):
        time.sleep(0.3)
    assert stream.getvalue() == "compiling 00:00\n"


def test_a_file_gets_few_lines_of_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())
    with progress.Bar(total=30, desc="all seeds", mininterval=0) as bar:
        for _ in range(30):
            bar.update()
            bar.set_postfix({"return": 12.5})
            bar.write("an event", file=stream)
    first, *events, last = stream.getvalue().splitlines()
    assert "\r" not in stream.getvalue() and set(events) == {"an event"}
    assert first.startswith("all seeds:   0% 0/30 [")
    assert last.startswith("all seeds: 100% 30/30 [") and last.endswith(", return=12.5]")


def test_a_file_gets_a_line_for_each_description(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())
    with progress.Bar(bar_format="{desc}{bar} {n_fmt}/{total_fmt}", leave=False) as bar:
        bar.total = 4
        for name in ("haiku: train", "haiku: train", "linen: train", "linen: train"):
            bar.set_description_str(name)
            bar.update()
    assert stream.getvalue().splitlines() == ["haiku: train 0/4", "linen: train 2/4"]


def test_a_file_gets_a_line_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.0)
    with progress.Bar(total=3, leave=False) as bar:
        for _ in range(3):
            bar.update()
            bar.refresh()
    shown = [line.partition("[")[0].split()[-1] for line in stream.getvalue().splitlines()]
    assert sorted(set(shown)) == ["0/3", "1/3", "2/3", "3/3"]


def test_a_function_of_python_prints_no_lines_into_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    with progress.on_terminals_only(), progress.Bar(total=2, desc="first") as bar:
        bar.update(1)
        bar.set_description_str("second")
        assert bar.desc == "second"
    assert not file.getvalue()


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
