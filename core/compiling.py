"""Compiler options of the programs that triglot compiles as a whole."""

import functools
import os
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import jax

from .types import PyTree

ArgsT = ParamSpec("ArgsT")
ResultT = TypeVar("ResultT")

# Of LLVM, whose default is 3. On CPU it takes up to a third less time, and most steps are as fast:
# loops are vectorized at both levels. Level 0 saves more, but changes all initial weights.
CPU_OPTIONS: dict[str, int] = {"xla_backend_optimization_level": 1}
# With simple fusions, a program compiles in about half of the time, and runs up to twice as long.
# JAX 0.10's XLA knows the option, that of 0.11 does not.
RUNS_ONCE_OPTIONS: dict[str, int] = {"xla_cpu_use_fusion_emitters": False}


def compiler_options(*, runs_once: bool = False) -> dict[str, int]:
    """Choose the options for JAX's default backend, without those that `XLA_FLAGS` states.

    Args:
      runs_once: whether the time of compiling matters more than that of running.
    """
    if jax.config.read("jax_disable_most_optimizations") or jax.default_backend() != "cpu":
        return {}
    flags = os.environ.get("XLA_FLAGS", "")
    options = CPU_OPTIONS | (known_options(**RUNS_ONCE_OPTIONS) if runs_once else {})
    return {name: value for name, value in options.items() if name not in flags}


def known_options(**options: int) -> dict[str, int]:
    """Leave out the options that this version of XLA does not know."""
    return {name: value for name, value in options.items() if _is_known(name, value)}


@functools.cache
def _is_known(name: str, value: int) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except Exception:
        return False
    return True


class WholeProgram(Generic[ArgsT, ResultT]):
    """`jax.jit` with `compiler_options`, for callers outside of traced functions.

    JAX accepts options of the outermost program only: functions that are traced themselves call
    `function`. The options are chosen at each call, since they depend on the backend, and importing
    must not start it.

    Attributes:
      function: the function without `jax.jit`.
    """

    def __init__(
        self,
        function: Callable[ArgsT, ResultT],
        *,
        needs_default: Callable[[Any], bool] = lambda first: False,
        runs_once: bool = False,
        **options: Any,
    ) -> None:
        """Take a function and the options of `jax.jit`.

        Args:
          function: what is compiled.
          needs_default: whether a first argument's program is compiled without `compiler_options`.
          runs_once: whether the time of compiling matters more than that of running.
          options: of `jax.jit`.
        """
        functools.update_wrapper(self, function)
        self.function = function
        self._needs_default, self._runs_once, self._options = needs_default, runs_once, options
        self._programs: dict[tuple[tuple[str, int], ...], Any] = {}  # JAX exports no type

    def _jitted(self, first: object) -> Any:
        default = self._needs_default(first)
        chosen = {} if default else compiler_options(runs_once=self._runs_once)
        key = tuple(chosen.items())
        if key not in self._programs:
            self._programs[key] = jax.jit(
                self.function, compiler_options=chosen or None, **self._options
            )
        return self._programs[key]

    def __call__(self, *args: ArgsT.args, **kwargs: ArgsT.kwargs) -> ResultT:
        """Call the compiled function."""
        return self._jitted(args[0])(*args, **kwargs)

    def trace(self, *args: PyTree, **kwargs: object) -> jax.stages.Traced:
        """Trace for these arguments, which may be abstract; see `jax.jit`."""
        return self._jitted(args[0]).trace(*args, **kwargs)

    def lower(self, *args: PyTree, **kwargs: object) -> jax.stages.Lowered:
        """Trace and lower for these arguments; see `jax.jit`."""
        return self._jitted(args[0]).lower(*args, **kwargs)

    def eval_shape(self, *args: PyTree, **kwargs: object) -> PyTree:
        """Compute the shapes of the result; a later `lower` does not trace again."""
        return self._jitted(args[0]).eval_shape(*args, **kwargs)

    def num_programs(self) -> int:
        """Count the argument types for which the function was compiled by a call."""
        return sum(program._cache_size() for program in self._programs.values())


def whole_program(
    **options: Any,
) -> Callable[[Callable[ArgsT, ResultT]], WholeProgram[ArgsT, ResultT]]:
    """Make a decorator that compiles a function as a `WholeProgram`, with its options."""
    return lambda function: WholeProgram(function, **options)
