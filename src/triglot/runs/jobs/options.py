"""The options of commands that have a list of jobs."""

import shlex
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Annotated

from ...core.errors import masked
from ..registry.arg import Arg, option_words


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of commands that have a list of independent jobs.

    Attributes:
      executor: sequential, one job after another in this process, with all cores; local, each
        job in a process pinned to one core; ray, each job on one core of a Ray cluster.
      jobs: number of jobs that run at the same time.
      address: HOST:PORT of the Ray cluster.
    """

    executor: Annotated[str | None, Arg("NAME", "local with --jobs, else sequential")] = None
    jobs: Annotated[int | None, Arg("N", "as many as there are cores")] = None
    address: Annotated[str | None, Arg("ADDRESS", "auto, the cluster of this machine")] = None


def continuing(command: str, options: JobOptions, names: Collection[str]) -> str:
    """Add options that change no result, as they were given, to a command that repeats one."""
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name in names and value != field.default:
            command = f"{command} {masked(shlex.join(option_words(field.name, value)))}"
    return command
