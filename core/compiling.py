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
    """Choose the options for JAX's default backend; none where another setting has the level."""
    stated = LEVEL in os.environ.get("XLA_FLAGS", "") or jax.config.read(
        "jax_disable_most_optimizations"
    )
    return {} if stated or jax.default_backend() != "cpu" else {LEVEL: CPU_LEVEL}


class WholeProgram:
    """`jax.jit` with `compiler_options`; inside another jitted function, without them.

    The options are chosen at each call, since they depend on the backend, and importing must not
    start it.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        """Take a function and the options of `jax.jit`."""
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._programs: dict[tuple[tuple[str, Any], ...], Any] = {}

    @property
    def _jitted(self) -> Any:
        return self._with(compiler_options())

    def _with(self, chosen: dict[str, Any]) -> Any:
        key = tuple(chosen.items())
        if key not in self._programs:
            how = {"compiler_options": chosen} if chosen else {}
            self._programs[key] = jax.jit(self._function, **how, **self._options)
        return self._programs[key]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function."""
        # JAX has no other public question for it, and refuses options there.
        inside = jex.unsafe_am_i_under_a_jit_DO_NOT_USE  # pyright: ignore[reportPrivateImportUsage]
        return self._with({} if inside() else compiler_options())(*args, **kwargs)

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
        return sum(program._cache_size() for program in self._programs.values())
