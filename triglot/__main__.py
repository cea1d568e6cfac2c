"""Run the command line: `triglot`, or `python -m triglot`."""

import os
import signal
import sys


def main() -> int:
    """Run a command and return its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C during an import would print its traceback. Commands with something to save or
        # clean up set a handler of their own.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .experiments.cli import main as run

    return run()


if __name__ == "__main__":
    # `python -m` searches the current folder first, where a file may have the name of a library.
    if sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    raise SystemExit(main())
