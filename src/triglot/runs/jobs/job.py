"""A job: plain data on its way to another process or machine, and its own side there."""

import importlib
import json
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ...core.errors import TriglotError
from ...core.records import JSON
from ...shared.machine.interrupt import Interrupt, Signalled

REPORT_SECONDS = 0.3  # between reports of progress

# A phase and the share that is done, a text to print, or the seconds that the job takes.
Event: TypeAlias = JSON


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
    arguments: JSON
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


class RunningJob:
    """What the function of a job gets besides its arguments.

    Attributes:
      interrupt: whether the job should save a checkpoint and raise `Signalled`.
      saves: whether it does so; else a stop ends its process at once.
      total: what `advance` adds up to.
      phase: what the job does.
    """

    def __init__(self, report: Callable[[Event], None], interrupt: Interrupt | None = None) -> None:
        """Begin.

        Args:
          report: takes what the user should see.
          interrupt: of this process; None for one that the parent sets, and no signal.
        """
        self._report = report
        self.interrupt = interrupt or Interrupt()
        self.saves, self.total, self.phase = False, 0.0, ""
        self.wait: Callable[[], None] = lambda: None  # called before the job waits for its turn
        self._done, self._reported = 0.0, 0.0
        self._turns: queue.SimpleQueue[None] = queue.SimpleQueue()

    def enter(self, phase: str) -> None:
        """Show what is being done."""
        self.phase = phase
        self._show()

    def advance(self, amount: float) -> None:
        """Add to what is done, of `total`."""
        self._done += amount
        if time.monotonic() - self._reported >= REPORT_SECONDS:
            self._show()

    def say(self, text: str) -> None:
        """Print a text above the bars."""
        self._report({"text": text})

    def estimate(self, seconds: float, basis: str) -> None:
        """Report how long the whole job takes, such as `basis="the first 30 updates"`."""
        self._report({"seconds": seconds, "basis": basis})

    def go(self) -> None:
        """Give the job a turn."""
        self._turns.put(None)

    @property
    def has_turn(self) -> bool:
        """Whether `wait_for_turn` returns at once."""
        return not self._turns.empty()

    def wait_for_turn(self) -> None:
        """Wait until the parent lets this job go on, once for each call."""
        self.wait()
        self._turns.get()

    def _show(self) -> None:
        self._reported = time.monotonic()
        share = min(self._done / self.total, 1.0) if self.total else 0.0
        self._report({"phase": self.phase, "share": share})


def append_to(path: Path) -> Callable[[Event], None]:
    """Return a function that appends events to a file, as lines of JSON."""

    def append(event: Event) -> None:
        # Opened each time, so that a network file system shows other machines what is written.
        with path.open("a") as file:
            file.write(json.dumps(event) + "\n")

    return append


def call(task: Task, job: RunningJob) -> Outcome:
    """Call a job's function, and say how it ended."""
    module, _, name = task.function.partition(":")
    try:
        function: Any = getattr(importlib.import_module(module), name)
        function(task.arguments, job)
    except Signalled:
        return Outcome("stopped")
    except TriglotError as error:
        return Outcome("failed", str(error), job.phase)
    return Outcome("done")
