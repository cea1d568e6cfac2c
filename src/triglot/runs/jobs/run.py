"""Run a list of jobs: give them to an executor in order, show their progress, and wait for them."""

import json
import math
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core.errors import writing
from ...shared.machine.interrupt import Interrupt
from ...shared.terminal.progress import Bar, duration
from ...shared.terminal.wrapping import wrapped
from .choose import Executor
from .cluster import RayJob
from .job import Event, Outcome, Task
from .local import Ended, HereExecutor, JobProcess

POLL_SECONDS = 0.1
WHOLE_BAR = "{desc:<40.40}{bar} {percentage:3.0f}% [{elapsed}<{remaining}]"
JOB_BAR = "  {desc:<38.38}{bar} {percentage:3.0f}%"
REFRESH_SECONDS = 0.5  # of the bars


@dataclass
class _Attempt:
    task: Task
    handle: JobProcess | RayJob | Ended
    position: int = 0  # in the file of events
    has_turn: bool = False

    def events(self) -> Iterator[Event]:
        """Read what the job has reported since the last call."""
        try:
            with self.task.events.open("rb") as file:
                file.seek(self.position)
                content = file.read()
        except FileNotFoundError:  # it has reported nothing
            return
        complete = content[: content.rfind(b"\n") + 1]
        self.position += len(complete)
        for line in complete.splitlines():
            yield json.loads(line)


def run_tasks(
    executor: Executor | HereExecutor,
    tasks: Sequence[Task],
    interrupt: Interrupt,
    *,
    done: float = 0.0,
    total: float | None = None,
) -> dict[str, Outcome]:
    """Run jobs; one that fails does not stop the others.

    Args:
      executor: runs them.
      tasks: all in one folder, which is created and deleted.
      interrupt: when it is set, running jobs save their checkpoints, and no other begins.
      done: size of what was done before.
      total: size of the whole; None for that of the tasks.

    Returns:
      How each job ended that began, by name.

    Raises:
      CannotWrite: if the disk is full, or the folder is read-only.
    """
    if not tasks or interrupt.pressed:
        return {}
    folder = Path(tasks[0].folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for old in (*folder.glob("*.jsonl"), *folder.glob("*.log")):  # a killed command's
            old.unlink()
    try:
        with View(tasks, done, total, at_once=executor.at_once) as view:
            return _run(executor, tasks, interrupt, view)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            folder.parent.rmdir()


def _run(
    executor: Executor | HereExecutor, tasks: Sequence[Task], interrupt: Interrupt, view: "View"
) -> dict[str, Outcome]:
    waiting, running, outcomes = deque(tasks), dict[str, _Attempt](), dict[str, Outcome]()
    stopping = False
    try:
        while waiting or running:
            if interrupt.pressed and not stopping:
                stopping = True
                waiting.clear()
                for attempt in running.values():
                    attempt.handle.stop()
            while waiting and len(running) < executor.at_once + executor.ahead:
                task = waiting.popleft()
                handle = executor.start(task, lambda event, task=task: view.show(task.name, event))
                running[task.name] = _Attempt(task, handle)
                if interrupt.pressed:  # while a job ran in this process
                    break
            for attempt in list(running.values())[: executor.at_once]:
                if not attempt.has_turn:
                    attempt.has_turn = True
                    attempt.handle.go()
            for name, attempt in list(running.items()):
                outcome = attempt.handle.poll()  # before its last events are read
                for event in attempt.events():
                    view.show(name, event)
                if outcome is not None:
                    attempt.handle.kill()
                    del running[name]
                    phase = outcome.phase or view.phases.get(name, "")
                    outcomes[name] = replace(outcome, phase=phase) if outcome.is_lost else outcome
                    view.end(name, done=outcome.end == "done")
                    if outcome.is_lost:
                        view.say(f"{attempt.task.label}: {outcome.message}")
            view.draw(sum(attempt.position > 0 for attempt in running.values()))
            if running:
                time.sleep(POLL_SECONDS)
        return outcomes
    finally:
        for attempt in running.values():
            attempt.handle.kill()


class View:
    """Shows jobs that run at the same time; use it as a context manager.

    Attributes:
      phases: what each job did last, by name.
    """

    def __init__(
        self, tasks: Sequence[Task], done: float, total: float | None, *, at_once: int
    ) -> None:
        """Begin.

        Args:
          tasks: what will run.
          done: size of what was done before.
          total: size of the whole; None for that of the tasks.
          at_once: how many jobs run at a time; with one, one bar shows what it does.
        """
        self.phases: dict[str, str] = {}
        self._num_tasks, self._num_done = len(tasks), 0
        self._sizes = {task.name: task.size for task in tasks}
        self._labels = {task.name: task.label for task in tasks}
        self._shares = dict.fromkeys(self._sizes, 0.0)
        self._before, self._at_once = done, at_once
        self._has_estimate = False
        self._total = sum(self._sizes.values()) if total is None else total
        self._whole = Bar(bar_format=WHOLE_BAR, leave=False)
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
        if "seconds" in event:
            self._estimate(name, event)
            return
        self.phases[name], self._shares[name] = event["phase"], event["share"]
        if self._at_once == 1:
            self.draw(1)
        elif sys.stderr.isatty():
            if name not in self._bars:
                self._bars[name] = Bar(total=1.0, bar_format=JOB_BAR, leave=False)
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

    def _estimate(self, name: str, event: Event) -> None:
        """Print how long all jobs take, once: after the first job that estimates its time."""
        if self._has_estimate:
            return
        self._has_estimate = True
        jobs = sum(self._sizes.values()) / self._sizes[name]
        rounds = math.ceil(jobs / self._at_once)
        job_duration = duration(event["seconds"])
        self.say(
            f"about {duration(rounds * event['seconds'])} in all, about {job_duration} for each "
            f"(estimated from {event['basis']} of {self._labels[name]})"
        )

    def draw(self, num_running: int) -> None:
        """Show the whole."""
        done = sum(self._sizes[name] * share for name, share in self._shares.items())
        self._whole.n, self._whole.total = min(self._before + done, self._total), self._total
        text = f"{self._num_done} of {self._num_tasks} done, {num_running} running"
        if self._at_once == 1:
            if not self.phases:
                return
            # The next job prepares meanwhile, and may report before the first does.
            name = next(name for name in self._labels if name in self.phases)
            text = f"{self._labels[name]}: {self.phases[name]}"
        now = time.monotonic()
        if text != self._whole.desc or now - self._drawn >= REFRESH_SECONDS:
            self._drawn = now
            self._whole.set_description_str(text)
