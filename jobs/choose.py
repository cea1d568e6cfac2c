"""Choose the executor that the options of a command name."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import jax

from ..core.errors import TriglotError, unknown
from ..core.hyper import check_count
from ..machine.cores import free_cores
from .executor import Executor
from .local import LocalExecutor
from .options import JobOptions

SEQUENTIAL, LOCAL, RAY = "sequential", "local", "ray"
EXECUTORS = (SEQUENTIAL, LOCAL, RAY)


def chosen(options: JobOptions) -> str | None:
    """Return the executor's name; None if no option names one.

    Raises:
      TriglotError: if options contradict each other.
    """
    name = options.executor
    if name is not None and name not in EXECUTORS:
        raise unknown("executor", name, EXECUTORS)
    if options.jobs is not None:
        check_count("jobs", options.jobs)
    if options.address is not None and name != RAY:
        raise TriglotError(
            f"--address {options.address} needs --executor ray: add it, or leave the address out."
        )
    if options.jobs is not None and name == SEQUENTIAL:
        raise TriglotError(
            f"--jobs {options.jobs} has no effect with --executor sequential, which runs one job "
            "after the other: leave one of them out."
        )
    return LOCAL if name is None and options.jobs is not None else name


def num_local(options: JobOptions) -> int:
    """Return how many jobs run at the same time on this machine, if options say so; else 1."""
    if chosen(options) != LOCAL:
        return 1
    return options.jobs or len(free_cores())


def make_executor(
    name: str, options: JobOptions, modules: Callable[[], Mapping[str, Path]]
) -> Executor | None:
    """Build an executor; None runs one job after the other in this process.

    Args:
      name: of `EXECUTORS`.
      options: its options.
      modules: finds the files of custom code, by their path relative to a folder on `sys.path`.

    Raises:
      TriglotError: if there is no cluster, Ray is not installed, or this machine uses a GPU.
    """
    if name == SEQUENTIAL:
        return None
    if name == RAY:
        from .cluster import connect

        return connect(options.address, options.jobs, modules())
    if not on_cpu():
        raise TriglotError(
            f"--executor local runs each job on one CPU core, and JAX uses {jax.devices()[0]}: "
            "choose --executor sequential, or set JAX_PLATFORMS=cpu."
        )
    return LocalExecutor(num_local(replace(options, executor=LOCAL)))


def on_cpu() -> bool:
    """Whether JAX computes on the CPU."""
    return jax.default_backend() == "cpu"
