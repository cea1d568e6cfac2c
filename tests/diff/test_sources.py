"""Which of a user's modules are imported again after an edit."""

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from triglot.diff.sources import Sources
from triglot.diff.watching import edits

FILES = {
    "port_a.py": "import json\n\nimport middle_a\n\ndef net():\n    return middle_a.value()\n",
    "middle_a.py": "def value():\n    from parts_a import layer\n    return layer.SIZE\n",
    "parts_a/__init__.py": "",
    "parts_a/layer.py": "from .sizes import SIZE\n",
    "parts_a/sizes.py": "SIZE = 1\n",
    "other_a.py": "import numpy\n\nVALUE = numpy.ones(3)\n",
}
ROOTS = ("port_a", "other_a")
Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a file of the modules, each time with a new time."""
    monkeypatch.syspath_prepend(tmp_path)
    seconds = time.time() - 1000

    def write(name: str, text: str) -> None:
        nonlocal seconds
        seconds += 2
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (seconds, seconds))

    before = set(sys.modules)
    for name, text in FILES.items():
        write(name, text)
    yield write
    for name in set(sys.modules) - before:
        if name.partition(".")[0].endswith("_a"):
            del sys.modules[name]


@pytest.fixture
def sources(write: Write) -> Sources:
    sources = Sources(ROOTS)
    sources.forget()
    return sources


def imported(name: str) -> Any:
    return importlib.import_module(name)


def names(paths: Any) -> list[str]:
    return sorted(path.name for path in paths)


def test_all_files_are_watched_that_modules_import(sources: Sources) -> None:
    files = ["__init__.py", "layer.py", "middle_a.py", "other_a.py", "port_a.py", "sizes.py"]
    assert names(sources.paths) == files
    assert sources.changed() == []


def test_an_edit_of_an_import_of_imports_reaches_the_network(
    sources: Sources, write: Write
) -> None:
    assert imported("port_a").net() == 1
    other = imported("other_a")
    write("parts_a/sizes.py", "SIZE = 2\n")
    assert names(sources.changed()) == ["sizes.py"]
    assert sources.forget() == {"port_a", "middle_a", "parts_a.layer", "parts_a.sizes"}
    assert imported("port_a").net() == 2
    assert imported("other_a") is other
    assert sources.changed() == []


def test_what_an_edit_deletes_is_gone(sources: Sources, write: Write) -> None:
    imported("port_a")
    write("port_a.py", "import middle_a\n")
    sources.forget()
    assert not hasattr(imported("port_a"), "net")


def test_bytecode_of_the_same_second_and_size_is_not_read(
    tmp_path: Path, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "parts_a/sizes.py"
    before = path.stat()
    assert imported("port_a").net() == 1
    path.write_text("SIZE = 3\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1000))
    sources.forget()
    assert imported("port_a").net() == 3


def test_a_file_that_is_deleted_is_waited_for(
    tmp_path: Path, sources: Sources, write: Write
) -> None:
    imported("port_a").net()
    (tmp_path / "middle_a.py").unlink()
    assert sources.changed() == []
    write("middle_a.py", FILES["middle_a.py"].replace("layer.SIZE", "7"))
    assert names(sources.changed()) == ["middle_a.py"]
    sources.forget()
    assert imported("port_a").net() == 7


def test_a_deleted_import_is_not_kept_when_another_file_changes(
    tmp_path: Path, sources: Sources, write: Write
) -> None:
    imported("port_a").net()
    (tmp_path / "middle_a.py").unlink()
    write("other_a.py", "VALUE = 1\n")
    sources.forget()
    with pytest.raises(ModuleNotFoundError, match="middle_a"):
        imported("port_a")


def test_a_missing_import_is_waited_for(sources: Sources, write: Write) -> None:
    write("port_a.py", "import missing_a\n\nnet = missing_a.net\n")
    sources.forget()
    with pytest.raises(ModuleNotFoundError):
        imported("port_a")
    sources.add_imported(time.time_ns())
    assert sources.changed() == []
    write("missing_a.py", "net = 5\n")
    assert names(sources.changed()) == ["missing_a.py"]
    sources.forget()
    assert imported("port_a").net == 5


def test_a_module_that_no_import_statement_names_is_found(sources: Sources, write: Write) -> None:
    write("hidden_a.py", "net = 1\n")
    write("port_a.py", "import importlib\n\nnet = importlib.import_module('hidden_a').net\n")
    sources.forget()
    began = time.time_ns()
    assert imported("port_a").net == 1
    sources.add_imported(began)
    assert "hidden_a.py" in names(sources.paths)
    write("hidden_a.py", "net = 2\n")
    assert names(sources.changed()) == ["hidden_a.py"]
    assert {"hidden_a", "port_a"} <= sources.forget()
    assert imported("port_a").net == 2


def test_a_file_that_is_written_during_the_comparison_is_compared_again(
    sources: Sources, write: Write
) -> None:
    began = time.time_ns()
    imported("port_a").net()
    write("parts_a/sizes.py", "SIZE = 2\n")
    sources.add_imported(began)
    assert names(sources.changed()) == ["sizes.py"]


def test_edits_end_with_files_that_do_not_change_any_more(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor deletes the file, writes half of it and then all."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    text = "def net():\n    return 3\n"
    path = tmp_path / "port_a.py"
    steps = [path.unlink, lambda: write("port_a.py", text[:11]), lambda: write("port_a.py", text)]
    waits = 0

    def sleep(seconds: float) -> None:
        nonlocal waits
        waits += 1
        if waits <= len(steps):
            steps[waits - 1]()

    results = []
    for written in edits(Sources(ROOTS), sleep):
        results.append((names(written), imported("port_a").net()))
        if len(results) == 2:
            break
    assert results == [([], 1), (["port_a.py"], 3)]
    assert waits == 4
    assert not sys.dont_write_bytecode
