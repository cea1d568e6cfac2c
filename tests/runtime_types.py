"""Check annotations, array shapes and dtypes included, whenever a test calls a function."""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

# The modules whose annotations state shapes; checking others costs time and finds little.
CHECKED = (
    "triglot.core.rl",
    "triglot.core.loop.rollout",
    "triglot.core.networks.heads",
)

_beartype: Any = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float


def check_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with its annotations checked at every call.

    A dataclass's `__init__` is left alone: JAX rebuilds pytrees with axis numbers, shapes and
    batches in place of the arrays that the annotations describe.
    """
    return function if function.__name__ == "__init__" else _beartype(function)


def install() -> None:
    """Check the modules named above; call this before the first import of triglot."""
    install_import_hook(list(CHECKED), f"{__name__}.{check_function.__name__}")
