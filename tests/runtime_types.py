"""Check annotated array shapes and dtypes whenever a test calls a function."""

from collections.abc import Callable
from typing import Any, get_args

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
    """Return a function with its annotations checked at every call, if they state a shape.

    A function without shapes is left alone: an `agent: Agent` may be any class that happens to fit,
    with fewer members than the Protocol where a test needs no more. So is a dataclass's `__init__`:
    JAX rebuilds pytrees with axis numbers, shapes and batches in place of the annotated arrays.
    """
    if function.__name__ == "__init__":
        return function
    stated = any(map(states_shape, function.__annotations__.values()))
    return _beartype(function) if stated else function


def states_shape(annotation: Any) -> bool:
    """Return whether an annotation contains a type of jaxtyping's."""
    ours = type(annotation).__module__.startswith("jaxtyping")
    return ours or any(map(states_shape, get_args(annotation)))


def install() -> None:
    """Check the modules named above; call this before the first import of triglot."""
    install_import_hook(list(CHECKED), f"{__name__}.{check_function.__name__}")
