"""Standard streams of the command line that may be closed, full, or a pipe without a reader."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from ...core.errors import TriglotError


class OutputError(TriglotError):
    """Standard output cannot be written."""


@contextmanager
def forgiving_stderr() -> Iterator[None]:
    """Ignore failed writes to standard error: a progress bar must not end a training.

    Closed descriptors are opened on the null device, because the next file opened would get their
    number, and whatever a library writes to them.
    """
    stream = sys.stderr
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    with open(os.devnull, "w") as nowhere:
        sys.stderr = _Guarded(nowhere if stream is None else stream, lambda error: None)
        try:
            yield
        finally:
            sys.stderr = stream


@contextmanager
def checked_stdout() -> Iterator[None]:
    """Report failed writes to standard output, also those that wait in its buffer.

    Raises:
      OutputError: if it is closed, or cannot be written.
      BrokenPipeError: if it is a pipe whose reader, such as `head`, ended.
    """
    stream = sys.stdout
    if stream is None:
        raise OutputError("standard output is closed: redirect it to a file, or with `>/dev/null`.")
    if isinstance(stream, io.TextIOWrapper):
        # A name with letters that the encoding lacks must not end a training.
        stream.reconfigure(errors="backslashreplace")
    sys.stdout = _Guarded(stream, _raise)
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = stream


def _raise(error: OSError) -> None:
    if isinstance(error, BrokenPipeError):
        raise error
    raise OutputError(f"standard output cannot be written: {error.strerror or error}.") from None


class _Guarded:
    """A text stream whose failed writes are handled by a function."""

    def __init__(self, stream: TextIO, on_error: Callable[[OSError], None]) -> None:
        self._stream, self._on_error = stream, on_error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def _attempt(self, function: Callable[[], object]) -> None:
        try:
            function()
        except OSError as error:
            # What is still in the buffer would fail again when Python exits.
            with suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self._stream.fileno())
                os.close(null)
            self._on_error(error)
