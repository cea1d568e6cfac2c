"""A process that runs one job.

It reads the task as a line of JSON. A further line asks it to save a checkpoint and stop; the end
of its input, hence the death of its parent, ends it. Its last line of output is the `Outcome`.
"""

import importlib
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NoReturn

from filelock import FileLock, Timeout

from ..core.errors import TriglotError
from ..machine.cores import one_core
from ..machine.deferred import UNUSED_AT_START, defer
from ..machine.interrupt import SIGNALS, Signalled
from .executor import Outcome, Task
from .running import RunningJob

# The job's last process may need this long to end, or a network file system to notice its death.
LOCK_SECONDS = 300.0


def main() -> NoReturn:
    """Run the job that the parent sends."""
    defer(UNUSED_AT_START)
    # A cluster signals all processes; the parent asks the job to stop.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # What libraries print does not mix with the outcome.
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    task = Task(**json.loads(sys.stdin.readline()))
    job = RunningJob(task.events)
    threading.Thread(target=_listen, args=(job, sys.stdin), daemon=True).start()
    try:
        with _alone(task.lock), one_core():
            outcome = _run(task, job)
        print(json.dumps(asdict(outcome)), file=outcomes, flush=True)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the thread still reads


def _listen(job: RunningJob, lines: IO[str]) -> None:
    for _ in lines:
        job.interrupt.number = signal.SIGINT
    os._exit(0)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process runs the same job, which a lost machine may still do."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout:
        raise TriglotError(
            f"another process has run this job for more than {LOCK_SECONDS:.0f} s: {path}."
        ) from None
    with lock:
        yield


def _run(task: Task, job: RunningJob) -> Outcome:
    module, _, name = task.function.partition(":")
    try:
        function: Any = getattr(importlib.import_module(module), name)
        function(task.arguments, job)
    except Signalled:
        return Outcome("stopped")
    except TriglotError as error:
        return Outcome("failed", str(error), job.bar.phase)
    return Outcome("done")


if __name__ == "__main__":
    main()
