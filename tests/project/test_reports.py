"""The committed reports are whole, small, and have the commands that made them."""

import json
import re
from pathlib import Path

import pytest

from triglot.experiments.comparison.jobs import SCHEMA
from triglot.experiments.report.thinning import MAX_BYTES

REPORTS = Path(__file__).parents[2] / "docs" / "reports"
FOLDERS = sorted(path for path in REPORTS.iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_report_is_whole_and_small(folder: Path) -> None:
    assert sorted(p.name for p in folder.iterdir()) == [
        "comparison.json",
        "curves.png",
        "tables.md",
    ]
    result = json.loads((folder / "comparison.json").read_text())
    assert result["schema"] == SCHEMA and result["verdict"]["level"]
    assert result["full_command"].startswith(f"triglot compare {result['algorithm']} ")
    assert f"--out {folder.name}" in result["full_command"]
    assert result["full_command"] in (REPORTS / "README.md").read_text().replace(" \\\n    ", " ")
    assert all(path.stat().st_size < MAX_BYTES for path in folder.iterdir())
    texts = "".join(path.read_text() for path in folder.glob("*.[jm]*"))
    assert not re.search(r"[ (\"](/tmp|/work|/home|/root)/", texts), "a path of one machine"


def test_there_are_reports() -> None:
    assert FOLDERS
