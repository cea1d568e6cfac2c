"""Compiler options of the programs that triglot compiles as a whole."""

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core as jex

LEVEL = "xla_backend_optimization_level"
# Of LLVM, whose default is 3. On CPU it takes a third less time, and steps are as fast: loops are
# vectorized at both levels. Roundings are the same, since XLA forbids LLVM to reorder sums.
CPU_LEVEL = 1


def compiler_options() -> dict[str, Any]:
    """Choose the options for JAX's default backend; none where `XLA_FLAGS` sets the level."""
    if jax.default_backend() != "cpu" or LEVEL in os.environ.get("XLA_FLAGS", ""):
        return {}
    return {LEVEL: CPU_LEVEL}


class WholeProgram:
    """`jax.jit` with `compiler_options`; inside another jitted function, without them.

    The options are chosen at the first call, since they depend on the backend, and importing must
    not start it.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        """Take a function and the options of `jax.jit`."""
        functools.update_wrapper(self, function)
        self._function, self._options = function, options

    @functools.cached_property
    def _jitted(self) -> Any:
        return jax.jit(self._function, compiler_options=compiler_options(), **self._options)

    @functools.cached_property
    def _part(self) -> Any:
        return jax.jit(self._function, **self._options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function."""
        # JAX has no other public question for it, and refuses options there.
        under_jit: Any = jex.unsafe_am_i_under_a_jit_DO_NOT_USE  # pyright: ignore[reportPrivateImportUsage]
        inside = under_jit()
        return (self._part if inside else self._jitted)(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
        """Trace for these arguments, which may be abstract; see `jax.jit`."""
        return self._jitted.trace(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """Trace and lower for these arguments; see `jax.jit`."""
        return self._jitted.lower(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the shapes of the result; a later `lower` does not trace again."""
        return self._jitted.eval_shape(*args, **kwargs)

    def num_programs(self) -> int:
        """Count the argument types for which the function was compiled by a call."""
        return self._jitted._cache_size()
