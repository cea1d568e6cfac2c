"""Handle Ctrl-C gracefully."""

import signal
import sys
from types import FrameType


class Interrupt:
    """A context in which the first Ctrl-C sets a flag and the second one interrupts.

    Attributes:
      pressed: whether Ctrl-C was pressed.
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
        print("\nStopping after this chunk; press Ctrl-C again to stop at once.", file=sys.stderr)
