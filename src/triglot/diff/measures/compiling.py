"""Quick compilation of programs whose bits do not matter."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax

from ...core.compiling import compiler_options

_Result = TypeVar("_Result")


def quick_jit(function: Callable[..., _Result], **options: int) -> Callable[..., _Result]:
    """Compile a function with little optimization; the options are those of `jax.jit`."""
    jit: Any = jax.jit
    return jit(function, compiler_options=compiler_options(runs_once=True), **options)
