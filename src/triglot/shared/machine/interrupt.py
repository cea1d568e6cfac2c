"""Handle Ctrl-C and the signals by which clusters and terminals end a program."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

# SIGTERM: a cluster preempts or `kill`; SIGHUP: the terminal closed (not on Windows).
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Signalled(KeyboardInterrupt):
    """A signal of `SIGNALS` ended the program.

    Attributes:
      number: the signal's.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Interrupt:
    """A context in which the first signal sets a flag and a second one ends the program at once.

    Attributes:
      number: the number of the signal that came, or None.
    """

    number: int | None = None

    @property
    def pressed(self) -> bool:
        """Whether a signal came."""
        return self.number is not None

    def check(self) -> None:
        """Raise `Signalled` if a signal came."""
        if self.number is not None:
            raise Signalled(self.number)

    def __enter__(self) -> "Interrupt":
        self._handling = _handling(self._handle)
        self._handling.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._handling.__exit__(*error)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        # A handler in Python would wait for the end of a compilation.
        for handled in SIGNALS:
            signal.signal(handled, signal.SIG_DFL)
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        text = f"\n{name}: stopping after this chunk; a second signal stops at once.\n"
        with suppress(OSError, RuntimeError, AttributeError):  # closed, or in the middle of a write
            sys.stderr.write(text)


@contextmanager
def raising() -> Iterator[Callable[[], None]]:
    """A context in which signals raise `Signalled`, so that cleaning up is not skipped.

    Yields:
      A function that raises it again: Python ignores an exception that is raised in a destructor,
      such as in the middle of a search for garbage.
    """
    numbers: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        numbers.append(number)
        raise Signalled(number)

    def check() -> None:
        if numbers:
            raise Signalled(numbers[-1])

    with _handling(handle):
        yield check


@contextmanager
def _handling(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Set a handler, except for ignored signals (`nohup`) and outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
