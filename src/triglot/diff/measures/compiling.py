"""Quick compilation of programs whose bits do not matter."""

from collections.abc import Callable
from typing import Any

import jax

from ...core.compiling import compiler_options


def quick_jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function with little optimization; `options` are `jax.jit`'s."""
    return jax.jit(function, compiler_options=compiler_options(runs_once=True), **options)
