"""Code of the README and of the site's pages runs, with fewer steps; commands are parsed."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.project.documents import FILES, PAGES, ROOT, commands, name_of, programs
from tests.project.test_commands import EXTRAS
from triglot.cli import main as cli
from triglot.compare.options import CompareOptions
from triglot.runs.options import TrainOptions
from triglot.runs.plan import prepare
from triglot.sweep.options import SweepCommandOptions
from triglot.sweep.plan import make_plan

pytestmark = pytest.mark.packaging

BLOCKS = programs(PAGES[0])


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_the_readme_runs(
    index: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    block, cuts = re.subn(r"total_steps=(\d)00_000", r"total_steps=\g<1>024", BLOCKS[index])
    assert cuts
    block = block.replace('"haiku", "linen", "nnx", "equinox"', '"nnx", "equinox"')
    exec(compile(block, f"README block {index}", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out


def test_the_example_equals_the_readmes() -> None:
    example = (ROOT / "examples" / "swap_the_library.py").read_text()
    assert example.partition("\n\n")[2] == BLOCKS[0]


PROGRAMS = {
    f"{name_of(page)}-{index}": text
    for page in PAGES[1:]
    if page.name != "python.md"  # its cells need each other, see tests/project/test_recipes.py
    for index, text in enumerate(programs(page))
}
COMMANDS = [
    words
    for page in PAGES
    for words in commands(page, "train", "compare", "sweep")
    if "my_agent:MyAgent" not in words
]
COMMANDS = [shlex.split(line) for line in dict.fromkeys(map(shlex.join, COMMANDS))]  # each once


COVERED = "docs/guide/swap.md-0"  # nearly the README's first program
QUICK = [pytest.param(n, marks=pytest.mark.slow if n == COVERED else ()) for n in PROGRAMS]


@pytest.mark.covering(2)
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.library_promotion("a documented program may promote, as it does for a user")
def test_the_programs_of_pages_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program = re.sub(r"total_steps=[\d_]+", shorter, PROGRAMS[name])
    program = re.sub(r"exploit_every=\d+", "exploit_every=1", program)
    exec(compile(program, name, "exec"), {"__name__": "page"})
    assert capsys.readouterr().out


def shorter(found: re.Match[str]) -> str:
    """Cut a number of steps; a training that is extended stays longer than before."""
    return f"total_steps={2048 if int(found[0].partition('=')[2]) > 100_000 else 1024}"


PRINTED = [words for words in COMMANDS if ">" in words]  # each into the file after it
STARTED = [words for words in COMMANDS if ">" not in words]


@pytest.mark.covering(9)
@pytest.mark.parametrize("words", STARTED, ids=" ".join)
def test_its_commands_can_start(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for extra, package in EXTRAS.items():
        if any(extra in word for word in words):
            pytest.importorskip(package, reason=f"{package} is not installed")
    if any("opponent=runs/" in word for word in words):
        pytest.skip("plays against a run, which tests/project/test_short_commands.py trains before")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.syspath_prepend(tmp_path)
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
        monkeypatch.delitem(sys.modules, Path(file).stem, raising=False)
    for command in PRINTED:
        assert cli.main(command[: command.index(">")]) == 0
        Path(command[-1]).write_text(capsys.readouterr().out)
    kinds = {"train": TrainOptions, "compare": CompareOptions, "sweep": SweepCommandOptions}
    kind = kinds[words[0]]
    written = words.index("--out") + 1 if "--out" in words else len(words) + 1
    given = [*words[: written - 1], "--out", str(tmp_path / "run"), *words[written + 1 :]]
    options = cli._parse_with_algorithm(given)
    if kind is TrainOptions and options.devices in (None, 1):  # this process has one
        printed = prepare(options).announcement()
        assert "nothing will be learned" not in printed
    if kind is SweepCommandOptions:
        assert make_plan(options).groups


def test_a_training_without_a_gradient_step_is_announced(tmp_path: Path) -> None:
    words = ["train", "dqn", "probe:two-step", "--total-steps", "640", "--out", str(tmp_path / "x")]
    printed = prepare(cli._parse_with_algorithm(words)).announcement()
    assert "learning starts after 10,000 steps (--learning-starts) and the run has 640" in printed
