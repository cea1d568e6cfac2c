"""Show in a terminal what a command is doing before and after its progress bar."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from .wrapping import bar_width

REFRESH_SECONDS = 0.2


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Show a name and the elapsed time while the block runs; nothing if stderr is no terminal.

    >>> with phase("compiling"):
    ...     pass
    """
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    with tqdm(
        desc=name,
        bar_format="{desc} {elapsed}",
        leave=False,
        file=sys.stderr,
        **bar_width(sys.stderr),
    ) as line:

        def refresh() -> None:
            while not done.wait(REFRESH_SECONDS):
                line.refresh()

        thread = threading.Thread(target=refresh, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
