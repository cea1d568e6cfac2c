"""The options of commands that have a list of jobs."""

import shlex
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Annotated, Any

from ..registry.arg import Arg


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of commands that have a list of independent jobs.

    Attributes:
      executor: sequential, one job after the other in this process, with all cores; local, each
        job in a process pinned to one core; ray, each job on one core of a Ray cluster.
      jobs: how many jobs run at the same time.
      address: HOST:PORT of the Ray cluster.
    """

    executor: Annotated[str | None, Arg("NAME", "local with --jobs, else sequential")] = None
    jobs: Annotated[int | None, Arg("N", "as many as there are cores")] = None
    address: Annotated[str | None, Arg("ADDRESS", "auto, the cluster of this machine")] = None


def option_words(name: str, value: Any) -> list[str]:
    """Format an option as the words of a command line."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", *map(str, value if isinstance(value, list | tuple) else [value])]


def continuing(command: str, options: JobOptions, names: Collection[str]) -> str:
    """Add options that change no result, as they were given, to a command that repeats one."""
    for one in fields(options):
        value = getattr(options, one.name)
        if one.name in names and value != one.default:
            command = f"{command} {shlex.join(option_words(one.name, value))}"
    return command
