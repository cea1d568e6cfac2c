"""Every example of a command's help is a valid command line, and stands at the help's end."""

import shlex

import pytest

from triglot.cli import main as cli
from triglot.cli.examples import EXAMPLES, examples_of
from triglot.cli.options import OPTIONS
from triglot.cli.parsing import CommandLine
from triglot.runs.registry.algorithms import find_algorithm

WITH_ALGORITHM = ("train", "compare", "sweep")
CUSTOM = {"my_file:MyAgent": "ppo"}  # which need not exist


@pytest.mark.parametrize("example", EXAMPLES.split("\n")[1:-1])
def test_an_example_is_valid(example: str) -> None:
    _, command, *words = shlex.split(example.partition(" > ")[0])
    line = CommandLine(command, words)
    if command in WITH_ALGORITHM:
        line.add_algorithm(find_algorithm(CUSTOM.get(words[0], words[0])))
    assert isinstance(line.options(), OPTIONS[command])


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_ends_with_one_to_three_examples(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main([command, "--help"]) == 0
    shown = capsys.readouterr().out.rpartition("examples:\n")[2]
    assert [line.strip() for line in shown.splitlines()] == examples_of(command)
    assert 1 <= len(examples_of(command)) <= 3


def test_many_options_are_in_groups(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["train", "ppo", "--help"]) == 0
    shown = capsys.readouterr().out
    group = shown.partition("evaluation options:")[2].partition("output options:")[0]
    assert "How the agent is evaluated" in group and "--eval-every N" in group
    assert "the best checkpoint is" in group  # of the option's docstring
