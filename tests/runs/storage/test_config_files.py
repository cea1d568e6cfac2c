"""`--config FILE`: what a file says, what wins over it, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triglot.cli import main as cli
from triglot.compare.options import CompareOptions
from triglot.core.errors import TriglotError
from triglot.runs.options import TrainOptions
from triglot.runs.plan import prepare, with_defaults

COMMAND = """
algorithm = "ppo"
env = "probe:two-step"
num_seeds = 2
learning_rate = 1e-3

[config]
hidden_sizes = [8, 8]
clip_value = false
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.toml").write_text(COMMAND)


def printed(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["train", *words.split(), "--print-config"]) == 0
    return capsys.readouterr().out


def options(words: str, of: type = TrainOptions) -> Any:
    command = "train" if of is TrainOptions else "compare"
    return cli._parse_with_algorithm([command, *words.split()])


def test_a_file_gives_the_whole_command() -> None:
    read = options("--config settings.toml")
    assert (read.algorithm, read.env, read.num_seeds) == ("ppo", "probe:two-step", 2)
    assert (read.config.hidden_sizes, read.config.clip_value) == ((8, 8), False)
    assert read.hyper.learning_rate == 1e-3
    assert read.config.num_envs is None, "the default of what the file does not name"


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--config settings.toml --num-seeds 3", "num_seeds", 3),
        ("--num_seeds=3 --config=settings.toml", "num_seeds", 3),
        ("ppo probe:reach --config settings.toml", "env", "probe:reach"),
        ("dqn probe:reach --config flat.toml", "algorithm", "dqn"),
        ("--config settings.toml --hidden-sizes 4", "hidden_sizes", (4,)),
        ("--config settings.toml --clip-value", "clip_value", True),
        ("--config settings.toml --learning-rate 0.5", "learning_rate", 0.5),
    ],
)
def test_the_command_wins(words: str, name: str, value: Any) -> None:
    Path("flat.toml").write_text('algorithm = "ppo"\nseed = 1')
    read = options(words)
    found = next(vars(one)[name] for one in (read, read.config, read.hyper) if name in vars(one))
    assert found == value


@pytest.mark.parametrize(
    "words",
    [
        "ppo probe:two-step",
        "ppo probe:reach --no-normalize-advantage --value-clip-range inf --seed 7",
        "dqn gridworld:3x3 --hidden-sizes 4 4 --n-step 3 --double",
        "q_learning gridworld:3x3 --backend table --method sarsa",
    ],
)
def test_what_is_printed_can_be_read(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(words, capsys)
    Path("printed.toml").write_text(text)
    assert printed("--config printed.toml", capsys) == text
    read = options("--config printed.toml")
    assert read.no_preset, "all numbers are in the file"
    assert replace(read, no_preset=False) == with_defaults(options(words))


def test_the_options_of_a_run_can_be_used_again(capsys: pytest.CaptureFixture[str]) -> None:
    rate = "--learning-rate linear(0.5,0)"
    given = options(f"--config settings.toml --total-steps 5000 --out run {rate}")
    prepare(given).write_config([])
    again = options("--config run/config.json")
    whole = with_defaults(given)
    assert (again.config, again.hyper) == (whole.config, whole.hyper)
    assert not again.hyper.learning_rate.counts, "the length of the new run counts"
    assert again.out is None
    compared = options("--config run/config.json --backends haiku linen", CompareOptions)
    assert compared.total_steps == 5000 and compared.arithmetic == "canonical"
    assert compared.config == whole.config


def test_a_run_of_somebody_else_does_not_run_its_code() -> None:
    prepare(options("--config settings.toml --out run")).write_config([])
    path = Path("run/config.json")
    content = json.loads(path.read_text()) | {"optimizer": "theirs:optimizer"}
    path.write_text(json.dumps(content))
    Path("theirs.py").write_text("raise SystemExit('it ran')")
    message = "run names code, theirs:optimizer, .* write its options in the command"
    with pytest.raises(TriglotError, match=message):
        options("--config run/config.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("algorithm = ", "settings.toml is not valid TOML"),
        ("algorithm = 3", "algorithm in settings.toml must be a name, got 3"),
        ("seed = 1", "settings.toml has no algorithm"),
        (f"{COMMAND}\nclip_valu = 1", "unknown option 'clip_valu' in settings.toml; did you mean"),
        (f"{COMMAND}\n[model]\nx = 1", r"has a table \[model\]; its tables are config and hyper"),
        ("config = 3", r"config in settings.toml must be a table, \[config\], got 3"),
        (f"{COMMAND}\n[hyper]\nlearning_rate = 1", "has learning_rate twice"),
        (COMMAND.replace("2", "'two'"), "num_seeds in settings.toml: .*integer, got 'two'"),
        (COMMAND.replace("8, 8", "[8]"), r"hidden_sizes .* must be a list.*\[\[8\]\]"),
    ],
)
def test_a_bad_file_is_refused(content: str, message: str) -> None:
    Path("settings.toml").write_text(content)
    with pytest.raises(TriglotError, match=message):
        options("--config settings.toml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--config", "--config"),
        ("--config --seed 1", "--config"),
        ("--config=", "--config"),
        ("--config none.toml", "--config none.toml: No such file or directory"),
        ("--config other.json", "give a TOML file, or the config.json of a run"),
        ("--config a.toml --config b.toml", "--config is given twice, as a.toml and b.toml"),
    ],
)
def test_a_bad_option_is_refused(words: str, message: str) -> None:
    Path("other.json").write_text("{}")
    with pytest.raises(TriglotError, match=message):
        options(words)


def test_other_commands_read_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("list.toml").write_text('suite = "gridworld"')
    assert cli.main(["list", "--config", "list.toml"]) == 0
    assert "gridworld:8x8" in capsys.readouterr().out


def test_the_help_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "ppo", "--help"]) == 0
    assert "--config FILE" in capsys.readouterr().out
