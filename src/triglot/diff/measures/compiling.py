"""Quick compilation of programs whose bits do not matter."""

from collections.abc import Callable
from typing import TypeVar

import jax

from ...core.compiling import compiler_options

_Result = TypeVar("_Result")


def quick_jit(
    function: Callable[..., _Result],
    *,
    static_argnums: int | None = None,
    donate_argnums: int | tuple[int, ...] | None = None,
) -> Callable[..., _Result]:
    """Compile a function with little optimization; the options are those of `jax.jit`."""
    return jax.jit(
        function,
        static_argnums=static_argnums,
        donate_argnums=donate_argnums,
        compiler_options=compiler_options(runs_once=True),
    )
