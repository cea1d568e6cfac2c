"""Ctrl-C that lets work come to a good end."""

import signal
import sys
from types import FrameType


class Interrupt:
    """Within its block, the first Ctrl-C is only noted, and the second stops at once.

    Attributes:
      pressed: whether there was one.
    """

    def __init__(self) -> None:
        self.pressed = False

    def __enter__(self) -> "Interrupt":
        self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        print("\nStopping after this chunk; Ctrl-C again stops at once.", file=sys.stderr)
