"""How often Python searches for cyclic garbage while it imports, traces and compiles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_AFTER = 50_000  # new containers between two searches; Python's default is 700


def collect_rarely() -> None:
    """Search for cyclic garbage less often than Python does by default.

    Imports and tracing create a million objects that stay. Searching them for cycles takes a tenth
    of a start, and most of a second when Python exits.
    """
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Search less often for a while, and then as often as before."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], COLLECT_AFTER) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
