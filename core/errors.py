"""Errors that say what was given, what was expected and how to mend it."""

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class TriglotError(ValueError):
    """A mistake in what the user gave; the command line prints it without a traceback."""


class MissingExtra(TriglotError, ImportError):
    """An optional library is not installed."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional library, or say in one line how to install it.

    Args:
      module: import name, e.g. `"haiku"`.
      extra: the extra of triglot that brings it, e.g. `"haiku"`.

    Returns:
      The imported module.

    Raises:
      MissingExtra: if the library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtra(
            f"{module} is not installed: run `pip install 'triglot[{extra}]'`."
        ) from None


def unknown(kind: str, given: str, choices: Iterable[str]) -> TriglotError:
    """Build the error for a name that is none of the choices, with the nearest one.

    >>> unknown("backend", "hiku", ["haiku", "linen"])
    TriglotError("unknown backend 'hiku'; did you mean 'haiku'? Choices: haiku, linen.")
    """
    names = sorted(choices)
    near = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return TriglotError(f"unknown {kind} {given!r}{hint} Choices: {', '.join(names)}.")
