"""Libraries of extras that are not in `all`, where they are installed."""

from importlib.util import find_spec

import pytest

from triglot.backends.libraries import LIBRARIES
from triglot.runs.registry.environments import SUITES
from triglot.shared.machine.version import package_version

TORCH = ("torch",) if find_spec("torchax") else ()
"""The backend of PyTorch, for tests of all backends."""
BACKENDS = tuple(
    name
    for name, library in LIBRARIES.items()
    if library.lift is not None and (name != "torch" or TORCH)  # `table` has no modules
)
"""The network libraries of the registry that are installed."""


def skip_missing(backend: str) -> None:
    """Skip a test of a library that is not installed."""
    if backend == "torch" and not TORCH:
        pytest.skip("torchax is not installed: triglot[torch]")


def is_missing(suite: str) -> bool:
    """Check whether the library of a suite is not installed; `gridworld` and `probe` have none."""
    library = SUITES[suite].library
    return library is not None and package_version(library) is None


def skip_missing_suite(env: str) -> None:
    """Skip a test of an environment whose suite is not installed."""
    suite = env.partition(":")[0]
    if is_missing(suite):
        pytest.skip(f"{suite} is not installed")
