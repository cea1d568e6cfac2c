"""`make` installs by .ci/install.py: the line of progress, and what it prints if pip fails."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.project.documents import ROOT

SCRIPT = ROOT / ".ci" / "install.py"
PRINTED = """\
Obtaining file:///home/user/triglot
  Installing build dependencies: started
Collecting jax==0.11.2
  Downloading jax-0.11.2-py3-none-any.whl.metadata (13 kB)
  Downloading jax-0.11.2-py3-none-any.whl (3.1 MB)
Downloading absl_py-2.5.1-py3-none-any.whl (900 kB)
"""
# A project without requirements, whose build needs none either: nothing is downloaded.
TOY = '[build-system]\nrequires = []\nbuild-backend = "toy"\nbackend-path = ["."]\n'
BACKEND = """
import zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    facts = "Metadata-Version: 2.1\\nName: toy\\nVersion: 1.0\\nProvides-Extra: all\\n"
    wheel = "Wheel-Version: 1.0\\nGenerator: toy\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    with zipfile.ZipFile(f"{folder}/toy-1.0-py3-none-any.whl", "w") as archive:
        for name, text in {"METADATA": facts, "WHEEL": wheel, "RECORD": ""}.items():
            archive.writestr(f"toy-1.0.dist-info/{name}", text)
    return "toy-1.0-py3-none-any.whl"
"""


def test_the_progress_follows_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    assert spec is not None and spec.loader is not None
    install: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(install)
    monkeypatch.chdir(tmp_path)
    packages = tmp_path / ".venv" / "lib" / "python3.12" / "site-packages"
    (packages / "pip-24.0.dist-info").mkdir(parents=True)
    progress = install.Progress()
    for line in PRINTED.splitlines():
        progress.read(line)
    assert str(progress) == "downloads: 4 MB jax"
    progress.read("Installing collected packages: absl-py, jax, triglot")
    (packages / "absl_py-2.5.1.dist-info").mkdir()
    assert str(progress) == "downloaded 4 MB; installs: 1 of 3 packages"


@pytest.mark.packaging
def test_it_installs_and_reports_a_failure(tmp_path: Path) -> None:
    for name, text in {"pyproject.toml": TOY, "toy.py": BACKEND, "constraints.txt": ""}.items():
        (tmp_path / name).write_text(text)

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, SCRIPT, "all"],
            cwd=tmp_path,
            env=os.environ | {"PIP_NO_INDEX": "1"},
            capture_output=True,
            text=True,
        )

    done = run()
    assert done.returncode == 0, done.stderr
    assert "Successfully installed toy-1.0" in (tmp_path / ".venv" / "install.log").read_text()
    assert "\r" not in done.stdout and " installs: " in done.stdout
    (tmp_path / "toy.py").write_text("raise ValueError('broken backend')")
    failed = run()
    assert failed.returncode == 1 and "broken backend" in failed.stderr
    assert ".venv/install.log" in failed.stderr


def test_flags_that_xla_does_not_know_leave_nothing() -> None:
    # XLA takes a space for the name of a file of flags, and ends the process.
    command = ["make", "-n", "test", "BIN=/nowhere", f"PYTHON={sys.executable}"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    flags = re.findall(r'XLA_FLAGS="([^"]*)"', shown)
    assert flags and all(value in ("", "$XLA_FLAGS") for value in flags), flags
