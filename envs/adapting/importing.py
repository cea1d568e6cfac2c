"""Libraries without what they load, print or change needlessly."""

import builtins
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def unused(*modules: str) -> Iterator[None]:
    """Let a library import modules that it does not need here; they are neither found nor loaded.

    Modules that are imported already stay.
    """
    absent = {name: ModuleType(name) for name in modules if name not in sys.modules}
    for name, module in absent.items():
        sys.modules[name] = module
        above, _, last = name.rpartition(".")
        if above in absent:
            setattr(absent[above], last, module)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


@contextmanager
def without_warning(message: str = "") -> Iterator[None]:
    """Hide a library's warnings that begin with a message, a regular expression; or all."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message)
        yield


@contextmanager
def outside_notebook() -> Iterator[None]:
    """Let a library be imported in a notebook as outside of one.

    Some change how notebooks show figures, and tqdm warns about a missing progress bar widget.
    """
    in_ipython = builtins.__dict__.pop("__IPYTHON__", None)
    try:
        with without_warning("IProgress not found"):
            yield
    finally:
        if in_ipython is not None:
            builtins.__dict__["__IPYTHON__"] = in_ipython
