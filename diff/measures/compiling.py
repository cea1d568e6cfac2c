"""Quick compilation of programs whose bits do not matter."""

from collections.abc import Callable
from typing import Any

import jax

from ...core.compiling import known_options

# A third of the time of compilation, at about the same speed of small programs on CPU.
QUICK = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_use_fusion_emitters": False,
}


def quick_jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function with little optimization; `options` are `jax.jit`'s."""
    return jax.jit(function, compiler_options=known_options(**QUICK), **options)
