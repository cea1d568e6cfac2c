"""Run the command line: `triglot`, or `python -m triglot`."""

import gc
import os
import signal
import sys
import warnings
from pathlib import Path

from .core.garbage import collect_rarely

OURS = str(Path(__file__).parent)
_formatwarning = warnings.formatwarning


def format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Format a warning of triglot without its place in the code, and others as Python does."""
    if filename.startswith(OURS):
        return f"triglot: warning: {message}\n"
    return _formatwarning(message, category, filename, lineno, line)


def main() -> int:
    """Run a command and return its exit code."""
    warnings.formatwarning = format_warning
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C during an import would print its traceback. Commands with something to save or
        # clean up set a handler of their own.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    collect_rarely()
    from .cli.main import main as run

    try:
        return run()
    finally:
        gc.freeze()


if __name__ == "__main__":
    # `python -m` searches the current folder first, where a file may have the name of a library.
    if sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    raise SystemExit(main())
