"""The committed reports are whole, small, and have the commands that made them."""

import html
import json
import re
import shlex
from pathlib import Path

import pytest

from tests.shared.pages.test_report import References
from triglot.cli import main as cli
from triglot.compare.assemble import SCHEMA
from triglot.shared.pages.thinning import MAX_BYTES

REPORTS = Path(__file__).parents[2] / "docs" / "reports"
PAGES = sorted((REPORTS / "pages").iterdir())
FOLDERS = sorted(path for path in REPORTS.iterdir() if path.is_dir() and path.name != "pages")
MAX_PAGE = 2_000_000
A_MACHINES_PATH = re.compile(r"[ (\"](/tmp|/work|/home|/root)/")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_report_is_whole_and_small(folder: Path) -> None:
    assert sorted(p.name for p in folder.iterdir()) == ["comparison.json", "curves.png"]
    result = json.loads((folder / "comparison.json").read_text())
    assert result["schema"] == SCHEMA and result["verdict"]["level"]
    assert result["full_command"].startswith(f"triglot compare {result['algorithm']} ")
    assert f"--out {folder.name}" in result["full_command"]
    assert result["command"] in (REPORTS / "README.md").read_text().replace(" \\\n    ", " ")
    assert all(path.stat().st_size < MAX_BYTES for path in folder.iterdir())
    assert not A_MACHINES_PATH.search((folder / "comparison.json").read_text())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_preset_changes_the_command_of_a_report(folder: Path) -> None:
    command = json.loads((folder / "comparison.json").read_text())["full_command"]
    words = shlex.split(command)[1:]
    read, without = (cli._parse_with_algorithm([*words, *more]) for more in ([], ["--no-preset"]))
    assert (read.config, read.hyper) == (without.config, without.hyper)
    assert read.total_steps == without.total_steps


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_a_page_loads_nothing_and_has_its_command(file: Path) -> None:
    text = file.read_text()
    assert file.stat().st_size < MAX_PAGE
    page = References(text)
    assert not [one for one in page.found if not one.startswith(("data:", "#"))]
    assert not A_MACHINES_PATH.search(text)
    command = html.unescape(re.findall(r'<code id="command">(.*?)</code>', text)[0])
    assert command in (REPORTS / "README.md").read_text().replace(" \\\n    ", " ")


def test_there_are_reports() -> None:
    assert FOLDERS
    assert [page.stem for page in PAGES] == ["cartpole-ppo", "cartpole-sweep"]
