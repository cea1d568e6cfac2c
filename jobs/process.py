"""The parent's handle on the process of a job."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from .executor import Outcome, Task

NUM_ERROR_LINES = 12
WORKER = "triglot.jobs.worker"
# One thread: how XLA splits a sum over threads decides its last bits.
ONE_THREAD = {"NPROC": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class JobProcess:
    """A process that runs one job; it ends with its parent."""

    def __init__(
        self, task: Task, environment: Mapping[str, str] = {}, path: Sequence[str] = ()
    ) -> None:
        """Start it.

        Args:
          task: the job.
          environment: variables besides this process's own.
          path: folders where its modules are searched first.
        """
        self.task = task
        # It searches this process's folders too, whatever changed them.
        searched = os.pathsep.join([*path, *(each for each in sys.path if each)])
        with task.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **environment, **ONE_THREAD, "PYTHONPATH": searched},
                start_new_session=True,  # Ctrl-C goes to the parent only
            )
        self._send(json.dumps(asdict(task)))

    def poll(self) -> Outcome | None:
        """Return how the job ended; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        assert self._process.stdout is not None
        lines = self._process.stdout.read().splitlines()
        if lines:
            return Outcome(**json.loads(lines[-1]))
        printed = self.task.log.read_text(errors="replace")
        return Outcome("died", cause_of_death("its process died", code, printed))

    def stop(self) -> None:
        """Ask it to save a checkpoint and end."""
        self._send("stop")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                stream.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:  # it died; `poll` says why
            pass


def cause_of_death(what: str, code: int, printed: str) -> str:
    """Describe how a process died.

    Args:
      what: happened, such as `its process died`.
      code: of its exit, or the negative number of a signal.
      printed: its error output, of which the last lines are shown.
    """
    ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    if code == -9:  # SIGKILL, which Windows does not have
        ending += ", probably killed for lack of memory"
    lines = printed.splitlines()[-NUM_ERROR_LINES:]
    output = "\n  ".join(["Last lines of its error output:", *lines])
    return f"{what} ({ending}). {output if lines else 'It printed no error.'}"
