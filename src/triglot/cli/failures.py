"""What the command line says of an exception."""

import sys

from ..core.errors import TriglotError, describe
from ..runs import devices
from ..shared.terminal.wrapping import wrapped


def reason_of(error: Exception | SystemExit) -> str | None:
    """Say what the user or the machine can change; None for a bug.

    A machine may lack memory, or the devices asked for.
    """
    text = str(error)
    if isinstance(error, SystemExit):
        return f"custom code ended the program: {describe(error)}."
    if isinstance(error, TriglotError):
        return devices.missing_devices() or text
    if (
        isinstance(error, MemoryError)
        or "RESOURCE_EXHAUSTED" in text
        or (type(error).__name__ == "JaxRuntimeError" and "ut of memory" in text)
    ):
        return f"out of memory: {describe(error)}."
    return devices.missing_devices()


def print_error(reason: str) -> None:
    """Print the sentence of an error on standard error."""
    text = f"triglot: error: {reason}"  # one line, which a terminal wraps between words
    print(wrapped(text) if sys.stderr.isatty() else text, file=sys.stderr)
