"""The recipes in Python run cell by cell, in an empty folder; the notebook has the same cells."""

import re
import sys
from pathlib import Path

import nbformat
import pytest

from docs.site.recipes import NOTEBOOK, PAGE, notebook
from tests.project.documents import FENCE, files, programs

MAX_WORDS = 1500  # of prose


def test_the_page_is_short() -> None:
    assert len(FENCE.sub("", PAGE.read_text()).split()) <= MAX_WORDS


@pytest.mark.packaging
@pytest.mark.library_promotion("a documented program may promote, as it does for a user")
def test_its_cells_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("haiku", "keras", "torch", "gymnasium", "equinox"):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in files(PAGE).items():
        (tmp_path / name).write_text(text)
        monkeypatch.delitem(sys.modules, Path(name).stem, raising=False)
    names = {"__name__": "recipes"}
    for number, cell in enumerate(programs(PAGE), 1):
        short = re.sub(r"total_steps=[\d_]+", "total_steps=600", cell)
        exec(compile(short, f"cell {number} of {PAGE.name}", "exec"), names)
    assert (tmp_path / "curves.png").exists() and (tmp_path / "line.gif").exists()


def test_the_notebook_has_the_cells_of_the_page() -> None:
    def cells(one: nbformat.NotebookNode) -> list[str]:
        return [cell.source for cell in one.cells]

    assert cells(nbformat.read(NOTEBOOK, as_version=4)) == cells(notebook()), (
        "the page changed: python -m docs.site.recipes"
    )
