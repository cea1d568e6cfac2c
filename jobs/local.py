"""Jobs in processes of this machine."""

from dataclasses import dataclass
from pathlib import Path

from ..machine import memory
from .executor import Task
from .process import JobProcess


@dataclass(frozen=True)
class LocalExecutor:
    """Runs each job in a new process, pinned to one core.

    Attributes:
      at_once: how many run at the same time.
    """

    at_once: int

    @property
    def bytes_per_job(self) -> int:
        """The share of the free memory."""
        return memory.free() // self.at_once

    @property
    def title(self) -> str:
        """Describe it."""
        return f"{self.at_once} local process{'' if self.at_once == 1 else 'es'}"

    def prepare(self, out: Path) -> None:
        """Do nothing: the processes see this machine's files."""

    def start(self, task: Task) -> JobProcess:
        """Start a job."""
        return JobProcess(task)

    def close(self) -> None:
        """Do nothing: the processes have ended."""
