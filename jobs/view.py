"""Show the progress of all jobs: one bar for all, and on a terminal one for each running job."""

import sys
import time
from collections.abc import Sequence
from typing import Any

from ..terminal.progress import Bar
from ..terminal.wrapping import wrapped
from .executor import Event, Task

WHOLE = "{desc:<36.36}{bar} {percentage:3.0f}% [{elapsed}<{remaining}]"
REFRESH_SECONDS = 0.5
ONE = "  {desc:<38.38}{bar} {percentage:3.0f}%"


class View:
    """Shows jobs that run at the same time; use it as a context manager.

    Attributes:
      phases: what each job did last, by name.
    """

    def __init__(
        self, tasks: Sequence[Task], done: float, total: float | None, *, is_single: bool
    ) -> None:
        """Begin.

        Args:
          tasks: what will run.
          done: size of what was done before.
          total: size of the whole; None for that of the tasks.
          is_single: whether one job runs at a time; one bar then shows what it does.
        """
        self.phases: dict[str, str] = {}
        self._num_tasks, self._num_done = len(tasks), 0
        self._sizes = {task.name: task.size for task in tasks}
        self._labels = {task.name: task.label for task in tasks}
        self._shares = dict.fromkeys(self._sizes, 0.0)
        self._before, self._is_single = done, is_single
        self._total = sum(self._sizes.values()) if total is None else total
        self._whole = Bar(bar_format=WHOLE, leave=False)
        self._bars: dict[str, Any] = {}
        self._drawn = 0.0

    def __enter__(self) -> "View":
        self._whole.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for bar in (*self._bars.values(), self._whole):
            bar.close()

    def show(self, name: str, event: Event) -> None:
        """Show what a running job reports."""
        if "text" in event:
            self.say(event["text"])
            return
        self.phases[name], self._shares[name] = event["phase"], event["share"]
        if self._is_single:
            self.draw(1)
        elif sys.stderr.isatty():
            if name not in self._bars:
                self._bars[name] = Bar(total=1.0, bar_format=ONE, leave=False)
            self._bars[name].n = event["share"]
            self._bars[name].set_description_str(f"{self._labels[name]}: {event['phase']}")

    def end(self, name: str, *, done: bool) -> None:
        """Show that a job ended."""
        self.phases.pop(name, None)
        if name in self._bars:
            self._bars.pop(name).close()
        if done:
            self._num_done += 1
            self._shares[name] = 1.0

    def say(self, text: str) -> None:
        """Print a text above the bars."""
        self._whole.write(wrapped(text))

    def draw(self, num_running: int) -> None:
        """Show the whole."""
        done = sum(self._sizes[name] * share for name, share in self._shares.items())
        self._whole.n, self._whole.total = min(self._before + done, self._total), self._total
        text = f"{self._num_done} of {self._num_tasks} done, {num_running} running"
        if self._is_single:
            if not self.phases:
                return
            name, phase = next(iter(self.phases.items()))  # of the job that began first
            text = f"{self._labels[name]}: {phase}"
        now = time.monotonic()
        if text != self._whole.desc or now - self._drawn >= REFRESH_SECONDS:
            self._drawn = now
            self._whole.set_description_str(text)
