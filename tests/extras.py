"""Libraries of extras that are not in `all`, where they are installed."""

from importlib.util import find_spec

import pytest

TORCH = ("torch",) if find_spec("torchax") else ()
"""The backend of PyTorch, for tests of all backends."""


def skip_missing(backend: str) -> None:
    """Skip a test of a library that is not installed."""
    if backend == "torch" and not TORCH:
        pytest.skip("torchax is not installed: triglot[torch]")
