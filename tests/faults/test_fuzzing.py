"""Files that nobody wrote end in a sentence, or are read."""

from pathlib import Path

import pytest

from tests.faults.fuzzing import PARSERS, fuzz

pytestmark = pytest.mark.packaging


@pytest.mark.parametrize("name", PARSERS)
def test_a_damaged_file_is_read_or_refused(name: str, run: Path) -> None:
    assert fuzz(name, run, examples=60) > 0
