"""Give jobs to an executor, and wait for them."""

import json
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import writing
from ..machine.interrupt import Interrupt
from .executor import RUNNING, Executor, Handle, Outcome, Task
from .view import View

POLL_SECONDS = 0.1


@dataclass
class _Attempt:
    task: Task
    handle: Handle
    position: int = field(default=0)  # in the file of events

    def events(self) -> Iterator[dict[str, Any]]:
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


def running_folder(jobs: Path) -> Path:
    """Return the folder of what running jobs report, inside a folder of jobs."""
    return jobs.resolve() / RUNNING


def run_tasks(
    executor: Executor, tasks: Sequence[Task], view: View, interrupt: Interrupt
) -> dict[str, Outcome]:
    """Run jobs; one that fails does not stop the others.

    Args:
      executor: runs them.
      tasks: all in one folder, which is created and deleted.
      view: shows them.
      interrupt: when it is set, running jobs save their checkpoints, and no other begins.

    Returns:
      How each job ended that began, by name.

    Raises:
      CannotWrite: if the disk is full, or the folder is read-only.
    """
    waiting, running, outcomes = deque(tasks), dict[str, _Attempt](), dict[str, Outcome]()
    if not tasks:
        return {}
    folder = Path(tasks[0].folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for old in (*folder.glob("*.jsonl"), *folder.glob("*.log")):  # a killed command's
            old.unlink()
    stopping = False
    try:
        while waiting or running:
            if interrupt.pressed and not stopping:
                stopping = True
                waiting.clear()
                for attempt in running.values():
                    attempt.handle.stop()
            while waiting and len(running) < executor.at_once:
                task = waiting.popleft()
                running[task.name] = _Attempt(task, executor.start(task))
            for name, attempt in list(running.items()):
                outcome = attempt.handle.poll()  # before its last events are read
                for event in attempt.events():
                    if "text" in event:
                        view.say(event["text"])
                    else:
                        view.update(name, event["phase"], event["share"])
                if outcome is not None:
                    attempt.handle.kill()
                    del running[name]
                    outcomes[name] = outcome
                    view.end(name, done=outcome.end == "done")
                    if outcome.end in ("failed", "died"):
                        view.say(f"{attempt.task.label}: {outcome.message}")
            view.draw(sum(attempt.position > 0 for attempt in running.values()))
            time.sleep(POLL_SECONDS)
    finally:
        for attempt in running.values():
            attempt.handle.kill()
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.is_dir() and not any(folder.parent.iterdir()):
            folder.parent.rmdir()
    return outcomes
