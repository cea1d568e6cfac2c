"""Run `triglot` and end it by SIGKILL at its n-th write into a folder.

python -m tests.faults.killed_at_write FOLDER N COMMAND ... ; with N = 0 it counts the writes.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

# Python's audit events for what changes a folder: https://docs.python.org/3/library/audit_events
CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate")
WRITING = os.O_WRONLY | os.O_RDWR


def main() -> int:
    folder, limit = Path(sys.argv[1]).absolute(), int(sys.argv[2])
    count = 0

    def writes(event: str, args: tuple[Any, ...]) -> bool:
        written = event == "open" and isinstance(args[2], int) and args[2] & WRITING
        if not written and event not in CHANGES:
            return False
        path = args[0]
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return Path(os.fsdecode(path)).absolute().is_relative_to(folder)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        if writes(event, args):
            count += 1
            if count == limit:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.argv[1:] = sys.argv[3:]
    sys.addaudithook(hook)
    from triglot.__main__ import main as run

    code = run()
    print(f"writes: {count}")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
