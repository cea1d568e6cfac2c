"""Custom components in a module of the user."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def own(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Write the test file's `OWN` to a module in the current folder; return its name."""
    name = re.sub(r"\W", "_", f"own_{tmp_path.name}")
    (tmp_path / f"{name}.py").write_text(request.module.OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    yield name
    sys.modules.pop(name, None)
