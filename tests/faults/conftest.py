"""A finished run to damage; each test gets a copy."""

import shutil
from pathlib import Path

import pytest

from tests.faults.attacked import SMALL
from triglot.cli.main import main


@pytest.fixture(scope="module")  # with the compiler options of the tests that resume it
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("faults") / "run"
    assert main([*SMALL.split(), "--out", str(out)]) == 0
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")
