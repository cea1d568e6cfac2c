"""Quick compilation of programs whose bits do not matter."""

import functools
from collections.abc import Callable
from typing import Any

import jax

# A third of the time of compilation, at about the same speed of small programs on CPU.
QUICK = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_use_fusion_emitters": False,
}


def quick_jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function with little optimization; `options` are `jax.jit`'s."""
    return jax.jit(function, compiler_options=_known_options(), **options)


@functools.cache
def _known_options() -> dict[str, Any]:
    """Return the options if this version of XLA knows them, and nothing otherwise."""
    try:
        jax.jit(lambda: 0, compiler_options=QUICK).lower().compile()
    except Exception:
        return {}
    return QUICK
