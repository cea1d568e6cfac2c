"""What a command printed, without the line breaks of a narrow terminal."""

from typing import Literal

import pytest


def unwrapped(capsys: pytest.CaptureFixture[str], stream: Literal["out", "err"] = "out") -> str:
    """Read standard output or standard error as one line."""
    return " ".join(getattr(capsys.readouterr(), stream).split())
