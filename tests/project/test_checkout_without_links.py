"""A checkout without symbolic links, as on Windows, fails with one clear sentence."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import triglot


@pytest.mark.packaging
def test_text_files_in_place_of_links_are_explained(tmp_path: Path) -> None:
    package = tmp_path / "triglot"
    package.mkdir()
    for file in Path(triglot.__file__).parent.glob("*.py"):
        shutil.copy(file, package)
    (package / "core").write_text("../core")
    command = [sys.executable, "-c", "import triglot.core.agent"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError: ")
    assert "git config core.symlinks true" in last and "wheel with pip" in last
