"""A program in a process of its own, which answers each line of input with a line of JSON."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any


class Ended(SystemExit):
    """The program ended before it answered; its own error is on standard error."""


class Child:
    """The running program; as a context manager, it is killed at the end.

    Args:
      name: for messages.
      command: starts it.
      options: of `subprocess.Popen`.
    """

    def __init__(self, name: str, command: Sequence[str | Path], **options: Any) -> None:
        self._name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
        )

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.__exit__(kind, error, traceback)

    def ask(self, text: str) -> Any:
        """Send a line and wait for the reply."""
        assert self._process.stdin is not None
        print(text, file=self._process.stdin, flush=True)
        return self.reply()

    def reply(self) -> Any:
        """Wait for a reply.

        Raises:
          Ended: if the program ends instead.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Ended(f"{self._name} ended early; see above.")
        return json.loads(line)
