"""What runs jobs, and what a job is on its way to another process or machine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

Event: TypeAlias = dict[str, Any]  # a phase and the share that is done, or a text to print


@dataclass(frozen=True, kw_only=True)
class Task:
    """A job as plain data.

    Attributes:
      name: of the job's folder.
      label: shown to the user.
      function: `package.module:function`, called with the arguments and a `RunningJob`.
      arguments: JSON values.
      folder: absolute path of the files that the running job writes for the command.
      size: share of the whole, in any unit.
    """

    name: str
    label: str
    function: str
    arguments: Mapping[str, Any]
    folder: str
    size: float = 1.0

    @property
    def events(self) -> Path:
        """The file of what it reports, one JSON object per line."""
        return Path(self.folder) / f"{self.name}.jsonl"

    @property
    def log(self) -> Path:
        """The file of what it prints."""
        return Path(self.folder) / f"{self.name}.log"

    @property
    def lock(self) -> Path:
        """The lock that the process of this job holds."""
        return Path(self.folder) / f"{self.name}.lock"


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
      end: done; stopped, with a checkpoint; failed, with an error that it reports; or died.
      message: why it failed or died.
      phase: what it was doing.
    """

    end: Literal["done", "stopped", "failed", "died"]
    message: str = ""
    phase: str = ""

    @property
    def is_lost(self) -> bool:
        """Whether it ended without a result, and not because it was asked to."""
        return self.end in ("failed", "died")


class Handle(Protocol):
    """A job that was given to an executor."""

    def poll(self) -> Outcome | None:
        """Return how it ended; None while it waits or runs."""
        ...

    def go(self) -> None:
        """Let it pass the next place where it waits for its turn."""
        ...

    def stop(self) -> None:
        """Let it save a checkpoint, if it has something to save, and end; do not wait for that."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class Starter(Protocol):
    """Starts jobs.

    Attributes:
      at_once: the most jobs that run at the same time.
      ahead: how many more may begin and then wait for their turn.
    """

    @property
    def at_once(self) -> int: ...

    @property
    def ahead(self) -> int: ...

    def start(self, task: Task, show: Callable[[Event], None]) -> Handle:
        """Start a job, or let it wait for a free core.

        Args:
          task: the job.
          show: takes what the job reports, if it runs in this process; others write `task.events`.
        """
        ...


class Executor(Starter, Protocol):
    """Runs jobs; results depend on how many cores each has, and not on where it runs.

    Attributes:
      bytes_per_job: the memory that each of them may use.
      title: describes it.
    """

    @property
    def bytes_per_job(self) -> int: ...

    @property
    def title(self) -> str: ...

    def prepare(self, out: Path) -> None:
        """Check that all machines can work in a folder; it need not exist.

        Raises:
          TriglotError: if a machine cannot read it.
        """
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
