"""Compiler options of the programs that triglot compiles as a whole."""

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core as jex

LEVEL = "xla_backend_optimization_level"
# Of LLVM, whose default is 3. On CPU it takes up to a third less time, and most steps are as fast:
# loops are vectorized at both levels.
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

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        needs_default: Callable[[Any], bool] = lambda first: False,
        **options: Any,
    ) -> None:
        """Take a function and the options of `jax.jit`.

        Args:
          function: what is compiled.
          needs_default: whether a first argument's program is compiled without `compiler_options`.
          options: of `jax.jit`.
        """
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._needs_default = needs_default
        self._programs: dict[tuple[tuple[str, Any], ...], Any] = {}

    def _jitted(self, first: Any) -> Any:
        chosen = {} if self._needs_default(first) else compiler_options()
        return self._with(chosen)

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
        return (self._with({}) if inside() else self._jitted(args[0]))(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
        """Trace for these arguments, which may be abstract; see `jax.jit`."""
        return self._jitted(args[0]).trace(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """Trace and lower for these arguments; see `jax.jit`."""
        return self._jitted(args[0]).lower(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the shapes of the result; a later `lower` does not trace again."""
        return self._jitted(args[0]).eval_shape(*args, **kwargs)

    def num_programs(self) -> int:
        """Count the argument types for which the function was compiled by a call."""
        return sum(program._cache_size() for program in self._programs.values())
