"""Jobs on this machine: in processes, or in this one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...shared.machine import memory
from ...shared.machine.interrupt import Interrupt, Signalled
from .job import Event, Outcome, RunningJob, Task

NUM_ERROR_LINES = 12
WORKER = "triglot.runs.jobs.worker"
# One thread: how XLA splits a sum over threads decides its last bits.
ONE_THREAD = {"NPROC": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class LocalExecutor:
    """Runs each job in a new process.

    Attributes:
      at_once: how many run at the same time.
      one_core: whether each is pinned to one core; else each has all of them.
      ahead: how many more may begin and then wait for their turn.
    """

    at_once: int
    one_core: bool = True
    ahead: int = 0

    @property
    def bytes_per_job(self) -> int:
        """The share of the free memory."""
        return memory.free() // self.at_once

    @property
    def title(self) -> str:
        """Describe it."""
        return f"{self.at_once} local process{'' if self.at_once == 1 else 'es'}"

    def prepare(self, out: Path) -> None:
        """Do nothing: the processes see this machine's files."""

    def start(self, task: Task, show: Callable[[Event], None]) -> "JobProcess":
        """Start a job."""
        return JobProcess(task, one_core=self.one_core)

    def close(self) -> None:
        """Do nothing: the processes have ended."""


class JobProcess:
    """The parent's handle on a process that runs one job; it ends with its parent."""

    def __init__(
        self,
        task: Task,
        environment: Mapping[str, str] = {},
        path: Sequence[str] = (),
        *,
        one_core: bool = True,
    ) -> None:
        """Start it.

        Args:
          task: the job.
          environment: variables besides this process's own.
          path: folders where its modules are searched first.
          one_core: whether it is pinned to one core.
        """
        self.task = task
        # It searches this process's folders too, whatever changed them.
        searched = os.pathsep.join([*path, *(entry for entry in sys.path if entry)])
        threads = ONE_THREAD if one_core else {}
        with task.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **environment, **threads, "PYTHONPATH": searched},
                start_new_session=True,  # Ctrl-C goes to the parent only
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._send(json.dumps({"one_core": one_core, "task": asdict(task)}))

    def poll(self) -> Outcome | None:
        """Return how the job ended; None while it runs."""
        return None if self._process.poll() is None else self._ended(self._stdout.readlines())

    def wait(self) -> Outcome | None:
        """Wait until the job waits for its turn, None, or has ended."""
        line = self._stdout.readline()
        if not line.startswith(b"{") and line:
            return None
        self._process.wait()
        return self._ended([line])

    def go(self) -> None:
        """Let it pass the next place where it waits for its turn."""
        self._send("go")

    def stop(self) -> None:
        """Ask it to save a checkpoint, if it has something to save, and end."""
        self._send("stop")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        for stream in (self._stdin, self._stdout):
            if not stream.closed:
                stream.close()

    def _send(self, line: str) -> None:
        try:
            self._stdin.write(f"{line}\n".encode())
            self._stdin.flush()
        except BrokenPipeError:  # it died; `poll` says why
            pass

    def _ended(self, lines: Sequence[bytes]) -> Outcome:
        if lines and lines[-1].startswith(b"{"):
            return Outcome(**json.loads(lines[-1]))
        code = self._process.returncode
        ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if code == -9:  # SIGKILL, which Windows does not have
            ending += ", probably killed for lack of memory"
        printed = self.task.log.read_text(errors="replace").splitlines()[-NUM_ERROR_LINES:]
        output = "\n  ".join(["Last lines of its error output:", *printed])
        said = output if printed else "It printed no error."
        return Outcome("died", f"its process died ({ending}). {said}")


@dataclass(frozen=True)
class HereExecutor:
    """Runs one job after the other in this process, with all cores.

    Attributes:
      run: called with each task and its `RunningJob`, instead of the task's function.
      interrupt: whether to stop.
    """

    run: Callable[[Task, RunningJob], None]
    interrupt: Interrupt
    at_once: int = field(default=1, init=False)
    ahead: int = field(default=0, init=False)

    def start(self, task: Task, show: Callable[[Event], None]) -> "Ended":
        """Run a job to its end."""
        try:
            self.run(task, RunningJob(show, self.interrupt))
        except Signalled:
            return Ended(Outcome("stopped"))
        return Ended(Outcome("done"))


@dataclass(frozen=True)
class Ended:
    """A job that has ended."""

    outcome: Outcome

    def poll(self) -> Outcome:
        """Return how it ended."""
        return self.outcome

    def go(self) -> None:
        """Do nothing."""

    stop = kill = go
