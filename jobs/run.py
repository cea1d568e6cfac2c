"""Run a list of jobs: give them to an executor in order, show them, and wait for them."""

import json
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.errors import writing
from ..machine.interrupt import Interrupt
from .executor import Event, Handle, Outcome, Starter, Task
from .view import View

POLL_SECONDS = 0.1


@dataclass
class _Attempt:
    task: Task
    handle: Handle
    position: int = 0  # in the file of events
    has_turn: bool = False

    def events(self) -> Iterator[Event]:
        """Read what the job has reported since the last call."""
        try:
            with self.task.events.open("rb") as file:
                file.seek(self.position)
                found = file.read()
        except FileNotFoundError:  # it has reported nothing
            return
        complete = found[: found.rfind(b"\n") + 1]
        self.position += len(complete)
        for line in complete.splitlines():
            yield json.loads(line)


def run_tasks(
    executor: Starter,
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
        with View(tasks, done, total, is_single=executor.at_once == 1) as view:
            return _run(executor, tasks, interrupt, view)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            folder.parent.rmdir()


def _run(
    executor: Starter, tasks: Sequence[Task], interrupt: Interrupt, view: View
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
