"""A child process that answers each line of input with a line of JSON.

A peer's own interpreter imports this too, so it needs the standard library only.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
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

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the program."""
        with self._process:
            self._process.kill()

    @property
    def closed(self) -> bool:
        """Whether the program has ended."""
        return self._process.poll() is not None

    def ask(self, request: Any, timeout: float | None = None) -> Any:
        """Send a request as JSON and wait for the reply.

        Args:
          request: any JSON.
          timeout: seconds to wait for it; None waits as long as the program runs.

        Raises:
          Ended: if the program ends instead.
          TimeoutError: if it does not reply in time; it is still working.
        """
        assert self._process.stdin is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._ended() from None
        return self.reply(timeout)

    def reply(self, timeout: float | None = None) -> Any:
        """Wait for a reply; see `ask`."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            raise TimeoutError
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return json.loads(line)

    def _ended(self) -> Ended:
        return Ended(f"{self._name} ended early; see above.")


def serve(
    answer: Callable[[Any], Any],
    *,
    hello: Callable[[], Any] | None = None,
    default: Callable[[Any], Any] | None = None,
) -> None:
    """Be a child: answer each line of input until it ends; what is printed goes to standard error.

    Args:
      answer: gives the reply to a request.
      hello: gives the first reply, before any request.
      default: converts what JSON has not, as in `json.dumps`.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(content: Any) -> None:
        print(json.dumps(content, default=default), file=replies, flush=True)

    if hello is not None:
        reply(hello())
    for line in sys.stdin:
        reply(answer(json.loads(line)))
