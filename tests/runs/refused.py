"""What a command must do with a user's mistake."""

from pathlib import Path

import pytest


def assert_refused(code: int, words: str, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Expect exit code 2, a sentence with `words` instead of a traceback, and no folder."""
    assert code == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert words in printed and "Traceback" not in printed
    assert not out.exists()
