"""Show what a command is doing: bars on a terminal, a few plain lines in a file or a pipe."""

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm import tqdm

REFRESH_SECONDS = 0.2
SECONDS_PER_LINE = 30.0  # in a file
SHORT_SECONDS = 10.0  # a phase that is shorter gets no line in a file


_ON_TERMINALS_ONLY: ContextVar[bool] = ContextVar("_ON_TERMINALS_ONLY", default=False)


@contextmanager
def on_terminals_only() -> Iterator[None]:
    """Print no lines into files, pipes and notebooks, where a function of Python is called."""
    token = _ON_TERMINALS_ONLY.set(True)
    try:
        yield
    finally:
        _ON_TERMINALS_ONLY.reset(token)


class Bar(tqdm):
    """A progress bar on standard error, as wide as the terminal; as a context manager, it is
    redrawn while nothing advances it, so that the elapsed time does not stand still.

    In a file or a pipe, which cannot redraw a line, it is a line per description and half minute,
    and a last one unless `leave=False`.

    Args:
      iterable, options: as those of `tqdm.tqdm`.
    """

    def __init__(self, iterable: Iterable[object] | None = None, **options: Any) -> None:
        self._in_file = not sys.stderr.isatty()
        self._silent = self._in_file and _ON_TERMINALS_ONLY.get()
        self._next_seconds, self._shown = 0.0, None
        self._done, self._thread = threading.Event(), None
        width: dict[str, Any] = {"dynamic_ncols": True}
        if self._in_file:
            width = {"smoothing": 0}  # the mean speed
            if "bar_format" in options:
                options["bar_format"] = options["bar_format"].replace("{bar}", "")
            else:
                width["ncols"] = 0  # tqdm's own format without a bar
        super().__init__(iterable, file=sys.stderr, **width, **options)

    def __enter__(self) -> "Bar":
        if not self.disable:
            self._thread = threading.Thread(target=self._redraw, daemon=True)
            self._thread.start()
        return self

    def display(self, msg: str | None = None, pos: int | None = None) -> Any:
        """Draw the bar, or print a line if it is time."""
        if not self._in_file:
            return super().display(msg, pos)
        seconds = self.format_dict["elapsed"]
        is_due = seconds >= self._next_seconds or self.desc != self._shown
        is_known = bool(self.desc) or self.total is not None
        if msg is None and is_due and is_known and seconds >= self.delay:
            self._print_line(seconds)
        return False  # nothing stands on the current line

    def clear(self, nolock: bool = False) -> None:
        """Remove the bar, so that another text can be printed."""
        if not self._in_file:
            super().clear(nolock)

    def close(self) -> None:
        """Remove the bar, or leave its last state."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        if self._in_file and not self.disable:
            if self.leave:
                self._print_line(self.format_dict["elapsed"])
            self.leave = False
        super().close()

    def _redraw(self) -> None:
        while not self._done.wait(REFRESH_SECONDS):
            self.refresh()

    def _print_line(self, seconds: float) -> None:
        if self._silent:
            return
        self._next_seconds, self._shown = seconds + SECONDS_PER_LINE, self.desc
        self.fp.write(f"{self}\n")
        self.fp.flush()


def duration(seconds: float) -> str:
    """Format a duration.

    >>> [duration(seconds) for seconds in (7.2, 130.0, 9000.0)]
    ['7 s', '2 min', '2.5 h']
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Show a name and the elapsed time while the block runs.

    >>> with phase("compiling"):
    ...     pass
    """
    delay = 0.0 if sys.stderr.isatty() else SHORT_SECONDS
    with Bar(desc=name, bar_format="{desc} {elapsed}", leave=False, delay=delay):
        yield


class Steps:
    """A line with what is being done, below lines with what was found."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar

    def begin(self, what: str) -> None:
        """Show what begins."""
        self._bar.set_description_str(what)

    def tell(self, line: str) -> None:
        """Print what was found, with the elapsed time."""
        seconds = self._bar.format_dict["elapsed"]
        self._bar.clear()
        self._bar.fp.write(f"{seconds:5.1f} s  {line}\n")
        self._bar.fp.flush()
        self._bar.refresh()


@contextmanager
def steps() -> Iterator[Steps]:
    """Show the steps of a long command on standard error.

    >>> with steps() as shown:
    ...     shown.begin("comparing")
    """
    with Bar(bar_format="{desc} {elapsed}", leave=False) as bar:
        yield Steps(bar)
