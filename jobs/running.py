"""A job's side: reports its progress, waits for its turn, and learns that it should stop."""

import importlib
import json
import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core.errors import TriglotError
from ..machine.interrupt import Interrupt, Signalled
from .executor import Event, Outcome, Task

REPORT_SECONDS = 0.3  # between reports of progress


class RemoteInterrupt(Interrupt):
    """An interrupt that another process sets; signals have no effect on it."""

    def __enter__(self) -> "RemoteInterrupt":
        return self

    def __exit__(self, *error: Any) -> None:
        pass


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
          interrupt: of this process; None for one that the parent sets.
        """
        self._report = report
        self.interrupt = RemoteInterrupt() if interrupt is None else interrupt
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
