"""A job's side: reports its progress, and learns that it should stop."""

import json
import time
from pathlib import Path
from typing import Any

from ..machine.interrupt import Interrupt

REPORT_SECONDS = 0.3  # between reports of progress


class RemoteInterrupt(Interrupt):
    """An interrupt that another process sets; signals have no effect on it."""

    def __enter__(self) -> "RemoteInterrupt":
        return self

    def __exit__(self, *error: Any) -> None:
        pass


class ReportedBar:
    """Stands in for a tqdm bar, and writes what it would show to a file.

    Attributes:
      total: what `update` adds up to.
      n: how much is done.
      label: of the job.
      phase: what the job does.
    """

    def __init__(self, events: Path) -> None:
        self.events = events
        self.total: float = 0.0
        self.n: float = 0.0
        self.label = self.phase = ""
        self._written = 0.0

    def update(self, amount: float) -> None:
        """Add to what is done."""
        self.n += amount
        if time.monotonic() - self._written >= REPORT_SECONDS:
            self._report()

    def set_description_str(self, text: str) -> None:
        """Show `label: phase`."""
        self.label, _, self.phase = text.rpartition(": ")
        self._report()

    def write(self, text: str) -> None:
        """Print a text above the bars."""
        self._append({"text": text})

    def _report(self) -> None:
        self._written = time.monotonic()
        share = min(self.n / self.total, 1.0) if self.total else 0.0
        self._append({"phase": self.phase, "share": share})

    def _append(self, event: dict[str, Any]) -> None:
        # Opened each time, so that a network file system shows other machines what is written.
        with self.events.open("a") as file:
            file.write(json.dumps(event) + "\n")


class RunningJob:
    """What the function of a job gets besides its arguments.

    Attributes:
      bar: shows the job's progress to the user.
      interrupt: whether the job should save a checkpoint and raise `Signalled`.
    """

    def __init__(self, events: Path) -> None:
        self.bar = ReportedBar(events)
        self.interrupt = RemoteInterrupt()
