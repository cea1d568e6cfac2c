"""Hundreds of wrong command lines: each is answered in one line, and nothing is written."""

import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from triglot.cli import main as cli
from triglot.runs.options import TrainOptions
from triglot.runs.plan import prepare
from triglot.shared.machine import memory

HERE = Path(__file__).parent
LINES = (HERE / "wrong_commands.txt").read_text().splitlines()
CASES = [line.split(" => ") for line in LINES if line and not line.startswith("#")]
PLACEHOLDERS = {"{long}": "x" * 300, "{null}": "\0", "{run}": "run"}
MAX_PER_MESSAGE = 10


@pytest.fixture(scope="module")
def folder(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a run, a folder that is not empty, a damaged run and custom components."""
    folder = tmp_path_factory.mktemp("wrong")
    for name in ("full/file", "broken/config.json", "taken/my_env/file"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("{")
    (folder / "wrong_parts.py").write_text((HERE / "wrong_parts.py").read_text())
    (folder / "wrong_parts_lazy.py").write_text("def __getattr__(name): raise OSError('closed')\n")
    options = TrainOptions(
        algorithm="ppo", env="gridworld:3x3", backend="table", out=folder / "run"
    )
    prepare(options).write_config([])
    return folder


@pytest.fixture
def before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[Path, int]]:
    """Stand in that folder; return when each file was written."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "my_agent", raising=False)  # of another test
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.setattr(memory, "free", lambda: 20_000_000_000)
    monkeypatch.setattr(cli, "configure", lambda options: None)
    yield written(folder)


def written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def words_of(command: str) -> list[str]:
    words = shlex.split(command)
    for placeholder, text in PLACEHOLDERS.items():
        words = [word.replace(placeholder, text) for word in words]
    return words


@pytest.mark.covering(5)
@pytest.mark.parametrize("command, says", CASES, ids=[command for command, _ in CASES])
def test_a_wrong_command_is_answered_in_one_line(
    command: str,
    says: str,
    folder: Path,
    before: dict[Path, int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(words_of(command)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = [one for one in printed.err.splitlines() if not one.startswith("checking ")]
    assert line.startswith("triglot: error: ") and "─" not in line
    for part in says.split(" | "):
        assert part in line
    assert written(folder) == before


def test_the_file_is_varied() -> None:
    assert len(CASES) >= 250
    assert len({command for command, _ in CASES}) == len(CASES)
    repeated = {says: count for says, count in Counter(says for _, says in CASES).items()}
    assert max(repeated.values()) <= MAX_PER_MESSAGE, repeated
    commands = {command.split()[0] for command, _ in CASES}
    assert set(cli.COMMANDS) <= commands
