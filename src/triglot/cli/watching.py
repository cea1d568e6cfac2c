"""`triglot diff --watch`: compare again after each edit."""

import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..core import plugins
from ..core.errors import TriglotError, describe
from ..diff.sources import Sources, find_file
from ..diff.watching import edits
from ..runs.registry.loading import is_path, load, search_here
from ..shared.machine.interrupt import raising
from ..shared.terminal.streams import OutputError
from .failures import print_error, reason_of

MAX_NAMES = 4  # of files, in one line


def watch(texts: Sequence[str], compare: Callable[[], object]) -> int:
    """Compare at once, and again after each edit, until Ctrl-C.

    An error is printed in one line, and the next edit is waited for.

    Args:
      texts: what names the user's modules, such as `package.module:object`.
      compare: loads the modules, compares and prints.

    Returns:
      The exit code, 0.

    Raises:
      TriglotError: if there is no file to watch.
    """
    search_here()
    modules = [_module_of(text) for text in texts]
    if not any(map(find_file, modules)):
        raise TriglotError(
            "--watch needs a network or a loss in a file of yours, such as my_port:net: leave it "
            "out."
        )
    sources = Sources(modules)
    with raising() as check_signals:

        def sleep(seconds: float) -> None:
            check_signals()
            time.sleep(seconds)

        try:
            for written in edits(sources, sleep):
                if written:
                    print(f"\n{_named(written)} changed", file=sys.stderr)
                began = time.perf_counter()
                _compare(compare)
                seconds = time.perf_counter() - began
                watched = f"{seconds:.1f} s; watching {_named(sources.paths)}, Ctrl-C ends"
                print(watched, file=sys.stderr, flush=True)
                gc.collect()  # of compiled programs, which form cycles with what they belong to
        except KeyboardInterrupt:
            return 0
    raise AssertionError("edits end by Ctrl-C only")


def _compare(compare: Callable[[], object]) -> None:
    """Compare, and print what went wrong."""
    try:
        compare()
        sys.stdout.flush()
    except (OutputError, BrokenPipeError):
        raise
    except (Exception, SystemExit) as error:
        print_error(reason_of(error) or describe(error))


def _module_of(text: str) -> str:
    """Name the module of an object, or of the component of an installed package.

    Raises:
      TriglotError: if there is none.
    """
    plugin = plugins.find("network", text)
    module = (text if plugin is None else plugin.path).partition(":")[0]
    if plugin is None and not (is_path(text) and find_file(module)):
        load("network", text)  # which says what is wrong with it
    return module


def _named(paths: Sequence[Path]) -> str:
    """List files as they are seen from the current folder."""
    names = [os.path.relpath(path) for path in paths]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
