"""The README's Python runs, with fewer steps and two of the libraries; its commands are parsed."""

import re
import shlex
from pathlib import Path

import pytest

from triglot.experiments import cli
from triglot.experiments.options import CompareOptions, SweepOptions, TrainOptions
from triglot.experiments.runs.plan import prepare
from triglot.experiments.sweep.plan import make_plan

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_the_readme_runs(index: int, capsys: pytest.CaptureFixture[str]) -> None:
    block, cuts = re.subn(r"total_steps=[\d_]+", "total_steps=1024", BLOCKS[index])
    assert cuts == 1
    block = block.replace('"haiku", "linen", "nnx", "equinox"', '"nnx", "equinox"')
    exec(compile(block, f"README block {index}", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out


def test_the_example_equals_the_readmes() -> None:
    example = (ROOT / "examples" / "swap_the_library.py").read_text()
    assert example.partition("\n\n")[2] == BLOCKS[0]


LINES = (ROOT / "README.md").read_text().replace("\\\n", " ").splitlines()
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for line in LINES
    if line.startswith(("triglot train", "triglot compare", "triglot sweep"))
    and "my_agent" not in line
]


PRINTED = [words for words in COMMANDS if ">" in words]  # each into the file after it
STARTED = [words for words in COMMANDS if ">" not in words]


@pytest.mark.parametrize("words", STARTED, ids=" ".join)
def test_its_commands_can_start(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    for command in PRINTED:
        assert cli.main(command[: command.index(">")]) == 0
        Path(command[-1]).write_text(capsys.readouterr().out)
    kinds = {"train": TrainOptions, "compare": CompareOptions, "sweep": SweepOptions}
    kind = kinds[words[0]]
    written = words.index("--out") + 1 if "--out" in words else len(words) + 1
    given = [*words[: written - 1], "--out", str(tmp_path / "run"), *words[written + 1 :]]
    options = cli._parse_with_algorithm(kind, given)
    if kind is TrainOptions:
        printed = prepare(options).announcement()
        assert "nothing will be learned" not in printed
    if kind is SweepOptions:
        assert make_plan(options).groups


def test_a_training_without_a_gradient_step_is_announced(tmp_path: Path) -> None:
    words = ["train", "dqn", "probe:two-step", "--total-steps", "640", "--out", str(tmp_path / "x")]
    printed = prepare(cli._parse_with_algorithm(TrainOptions, words)).announcement()
    assert "learning starts after 10,000 steps (--learning-starts) and the run has 640" in printed
