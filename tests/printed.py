"""What a command printed, without the line breaks of a narrow terminal."""

import pytest


def unwrapped(capsys: pytest.CaptureFixture[str]) -> str:
    """Read standard output as one line."""
    return " ".join(capsys.readouterr().out.split())
