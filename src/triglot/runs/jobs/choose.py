"""Choose what runs the jobs of a command, and how many cores and devices each has."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import jax

from ...core.errors import TriglotError, unknown
from ...core.hyper import check_count
from ...core.records import JSON
from ...shared.machine.cores import free_cores
from .cluster import RayExecutor, connect
from .ledger import other_options
from .local import LocalExecutor
from .options import JobOptions

# Runs jobs; results depend on how many cores each has, and not on where it runs.
Executor: TypeAlias = LocalExecutor | RayExecutor
SEQUENTIAL, LOCAL, RAY = "sequential", "local", "ray"
EXECUTORS = (SEQUENTIAL, LOCAL, RAY)
# Facts of a folder: the cores of each job, which decide the last bits, and its devices.
CORES, ONE, ALL = "cores_per_job", "one", "all"
DEVICES = "devices"


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


def choose_executor(
    options: JobOptions,
    what: str,
    begun: JSON | None,
    custom: Callable[[], Iterable[str]],
    *,
    default: str = SEQUENTIAL,
) -> Executor | None:
    """Build what the options name, or what the folder was begun with.

    Args:
      options: of the command.
      what: is in its folder, such as `sweep`.
      begun: the facts of the folder; None for a new one.
      custom: names the custom components; see `custom_files`.
      default: the executor for a new folder, if no option names one.

    Returns:
      The executor; None to run one job after the other with all cores.

    Raises:
      TriglotError: if options contradict each other or the folder, there is no cluster, Ray is not
        installed, or this machine uses a GPU.
    """
    name = chosen(options)
    if begun is not None:
        name = name or (LOCAL if begun[CORES] == ONE else SEQUENTIAL)
        if begun[CORES] != (ALL if name == SEQUENTIAL else ONE):
            other = LOCAL if begun[CORES] == ONE else SEQUENTIAL
            raise TriglotError(
                f"the folder holds a {what} with {begun[CORES]} core{'s' * (begun[CORES] == ALL)} "
                "for each job, which decides the last bits of its results: continue it with "
                f"--executor {other}, or choose another --out."
            )
    name = name or default
    if name == SEQUENTIAL:
        return None
    if name == RAY:
        return connect(options.address, options.jobs, custom())
    if not on_cpu():
        raise TriglotError(
            f"--executor local runs each job on one CPU core, and JAX uses {jax.devices()[0]}: "
            "choose --executor sequential, or set JAX_PLATFORMS=cpu."
        )
    return LocalExecutor(num_local(replace(options, executor=LOCAL)))


def choose_devices(
    num_devices: int | None,
    out: Path | None,
    what: str,
    begun: JSON | None,
    executor: Executor | None,
    default: Callable[[], int],
) -> int:
    """Choose among how many devices each job is divided at most.

    Args:
      num_devices: what an option says; None says nothing.
      out: the command's folder.
      what: is in it, such as `sweep`.
      begun: the facts of the folder; None for a new one.
      executor: what runs the jobs, each on one core; None for all cores.
      default: counts the devices of a new folder.

    Raises:
      TriglotError: if options contradict each other or the folder.
    """
    if num_devices is not None:
        check_count("devices", num_devices)
    if executor is not None:
        if num_devices not in (None, 1):
            raise TriglotError(
                f"--devices {num_devices} divides a job among devices, and each has one core here "
                f"({executor.title}): leave out --devices, or --jobs and --executor."
            )
        return 1
    if begun is None:
        return default() if num_devices is None else num_devices
    if out is not None and num_devices not in (None, begun[DEVICES]):
        raise other_options(out, what, DEVICES, begun[DEVICES], num_devices)
    return begun[DEVICES]


def on_cpu() -> bool:
    """Whether JAX computes on the CPU."""
    return jax.default_backend() == "cpu"
