"""Start `triglot` commands as forks of one process that has imported everything but run nothing.

It saves each of hundreds of processes its imports. The process must never run anything of JAX's:
its backend starts threads, which a fork does not have.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Python's audit events for what changes a folder: https://docs.python.org/3/library/audit_events
CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate")
WRITING = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
      code: its exit code, or minus the number of the signal that killed it.
      text: what it printed.
      writes: how many writes into the watched folder it made before.
    """

    code: int
    text: str
    writes: int = 0


def run(
    command: str,
    log: Path,
    *,
    seconds: float | None = None,
    number: int = signal.SIGKILL,
    watched: Path | None = None,
    kill_at: int = 0,
) -> Ended:
    """Run a command in a fork and wait for its end.

    Args:
      command: the words after `triglot`.
      log: a file for what it prints.
      seconds: when to send it the signal `number`; None for never.
      number: a signal.
      watched: the folder whose writes are counted.
      kill_at: the write at which the command kills itself; 0 for never.
    """
    child = os.fork()
    if child == 0:
        _become(lambda: _counting(command, log, watched, kill_at), log)
    if seconds is not None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return _ended(status, log)
            time.sleep(0.005)
        os.kill(child, number)
    return _ended(os.waitpid(child, 0)[1], log)


def compute(function: Callable[[], Any], log: Path) -> Any:
    """Call a function in a fork, and return what it returns, as JSON."""

    def work() -> int:
        log.with_suffix(".json").write_text(json.dumps(function()))
        return 0

    child = os.fork()
    if child == 0:
        _become(work, log)
    ended = _ended(os.waitpid(child, 0)[1], log)
    if ended.code:
        raise RuntimeError(ended.text)
    return json.loads(log.with_suffix(".json").read_text())


def _ended(status: int, log: Path) -> Ended:
    counted = log.with_suffix(".writes")
    writes = int(counted.read_text()) if counted.exists() else 0
    return Ended(os.waitstatus_to_exitcode(status), log.read_text(), writes)


def _become(work: Callable[[], int], log: Path) -> None:
    """Run in the child, which must never return into the parent's code."""
    code = 70
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        code = work()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _counting(command: str, log: Path, watched: Path | None, kill_at: int) -> int:
    from triglot.cli.main import main

    count = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        if watched is not None and _changes(watched, event, args):
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    code = main(command.split())
    log.with_suffix(".writes").write_text(str(count))
    return code


def _changes(folder: Path, event: str, args: tuple[Any, ...]) -> bool:
    written = event == "open" and isinstance(args[2], int) and args[2] & WRITING
    if not written and event not in CHANGES:
        return False
    path = args[0]
    if not isinstance(path, str | bytes | os.PathLike):
        return False
    return Path(os.fsdecode(path)).absolute().is_relative_to(folder)
