"""Libraries of extras that are not in `all`, where they are installed."""

from importlib.util import find_spec

TORCH = ("torch",) if find_spec("torchax") else ()
"""The backend of PyTorch, for tests of all backends."""
