"""A process that runs one job.

It reads the task as a line of JSON. Further lines give it a turn (`go`), or ask it to save a
checkpoint and end (`stop`); the end of its input, hence the death of its parent, ends it. It writes
`WAITING` whenever it waits for a turn; its last line of output is the `Outcome`.
"""

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import IO, NoReturn

from filelock import FileLock, Timeout

from ...core.errors import TriglotError
from ...shared.machine.cores import one_core
from ...shared.machine.interrupt import SIGNALS
from .job import Outcome, RunningJob, Task, append_to, call

# The job's last process may need this long to end, or a network file system to notice its death.
LOCK_SECONDS = 300.0
WAITING = "waiting"


def main() -> NoReturn:
    """Run the job that the parent sends."""
    # A cluster signals all processes; the parent asks the job to stop.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # What libraries print does not mix with the outcome.
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    has_one_core, task = request["one_core"], Task(**request["task"])
    job, ending = RunningJob(append_to(task.events)), threading.Lock()
    job.wait = lambda: print(WAITING, file=outcomes, flush=True)

    def end(outcome: Outcome) -> NoReturn:
        with ending:
            print(json.dumps(asdict(outcome)), file=outcomes, flush=True)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # the thread still reads

    def listen(lines: IO[str]) -> None:
        for line in lines:
            if line == "go\n":
                job.go()
                continue
            job.interrupt.number = signal.SIGINT
            if not job.saves:
                end(Outcome("stopped"))
        os._exit(0)

    threading.Thread(target=listen, args=(sys.stdin,), daemon=True).start()
    try:
        with _alone(task.lock), one_core() if has_one_core else nullcontext():
            outcome = call(task, job)
        end(outcome)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


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


if __name__ == "__main__":
    main()
