"""Text fits the terminal."""

from pathlib import Path

import pytest

from triglot.cli import main as cli
from triglot.shared.terminal.wrapping import COLOR, terminal_width, wrapped

SENTENCE = "  run       trains, and then reports what was learned"


@pytest.mark.parametrize("width", [30, 41, 80])
@pytest.mark.parametrize("text", [SENTENCE, "triglot train ppo --out runs/one", "one two " * 30])
def test_no_line_is_longer_and_no_word_is_lost(text: str, width: int) -> None:
    lines = wrapped(text, width).split("\n")
    assert max(map(len, lines)) <= width
    assert " ".join(lines).replace("\\", "").split() == text.split()


def test_a_line_that_fits_is_kept() -> None:
    text = "  two   columns  and   a third\n\n  - dot"
    assert wrapped(text, 40) == text


def test_the_second_column_continues_below_itself() -> None:
    first, *others = wrapped(SENTENCE, 30).split("\n")
    assert first.index("trains") == 12
    assert others and all(line[:12].isspace() and line[12] != " " for line in others)


def test_a_command_is_broken_before_an_option() -> None:
    lines = wrapped("  triglot train ppo gymnax:CartPole-v1 --num-seeds 4 --out runs/one", 44)
    assert lines.split("\n") == [
        "  triglot train ppo gymnax:CartPole-v1 \\",
        "      --num-seeds 4 --out runs/one",
    ]


def test_a_path_is_not_broken() -> None:
    path = "/".join(["folder"] * 20)
    assert path in wrapped(f"the results are in {path}", 40).split("\n")


@pytest.mark.parametrize(("columns", "width"), [("20", 40), ("80", 80), ("900", 200)])
def test_the_width_is_that_of_the_terminal(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width


HELP = ["--help", *(f"{name} --help" for name in cli.COMMANDS), "train ppo --help"]


@pytest.mark.parametrize("columns", [50, 80])
@pytest.mark.parametrize("command", HELP)
def test_help_fits_the_terminal(
    command: str,
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main(command.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5 and max(map(len, lines)) <= columns


def test_help_in_color_has_the_lines_of_help_without(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert cli.main(["evaluate", "--help"]) == 0
    plain = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert cli.main(["evaluate", "--help"]) == 0
    colored = capsys.readouterr().out
    assert colored != plain
    assert COLOR.sub("", colored) == plain


@pytest.mark.slow
def test_a_training_fits_a_terminal_of_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)
    small = "--num-envs 2 --rollout-length 64 --num-minibatches 1 --num-epochs 1 --hidden-sizes 8"
    command = f"train ppo probe:two-step {small} --total-steps 10_000 --num-seeds 3"
    assert cli.main([*command.split(), "--eval-episodes", "4"]) == 0
    printed = capsys.readouterr()
    assert "rounded up to 10,112" in " ".join(printed.out.split())
    assert "greedy return" in printed.out
    assert "return=" in printed.err and "(last 5%)" in printed.err
    for line in [*printed.out.splitlines(), *printed.err.replace("\r", "\n").splitlines()]:
        assert len(line) <= 80, line
