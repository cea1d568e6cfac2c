"""Wait for edits of the user's modules, and import these again."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .sources import Sources, stamp_of

POLL_SECONDS = 0.1


def edits(
    sources: Sources, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Sequence[Path]]:
    """Yield at once, and again after each edit of a module's file.

    Before each yield, changed modules and all modules that import them are removed from
    `sys.modules`, so that the next import reads their files.

    Args:
      sources: the files of the modules.
      sleep: waits between two looks at the files.

    Yields:
      The files that were written since the last time; at first none.
    """
    changed_files: list[Path] = []
    with _without_bytecode():
        while True:
            sources.forget()
            began = time.time_ns()
            yield changed_files
            sources.add_imported(began)
            while not (changed_files := sources.changed()):
                sleep(POLL_SECONDS)
            _settle(changed_files, sleep)


def _settle(files: Sequence[Path], sleep: Callable[[float], None]) -> None:
    """Wait until files do not change any more, since some editors write them in several steps."""
    before = None
    while before != (stamps := [stamp_of(path) for path in files]) or None in stamps:
        before = stamps
        sleep(POLL_SECONDS)


@contextmanager
def _without_bytecode() -> Iterator[None]:
    """Write no bytecode, which Python takes for current after an edit in the same second."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
