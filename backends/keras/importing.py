"""Import Keras on JAX; nothing else of the process or of the user's folders changes."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from ...core.errors import TriglotError, require

KERAS_BACKEND, KERAS_HOME = "KERAS_BACKEND", "KERAS_HOME"


def import_keras() -> ModuleType:
    """Import Keras with JAX as its backend.

    Raises:
      MissingExtra: if Keras is not installed.
      TriglotError: if Keras runs, or would run, on another backend.
    """
    if "keras" not in sys.modules:
        _check_backend(os.environ.setdefault(KERAS_BACKEND, "jax"), f"{KERAS_BACKEND} is")
        with _without_settings_file():
            return require("keras", "keras")
    keras = require("keras", "keras")
    _check_backend(keras.config.backend(), "Keras was imported with the backend")
    return keras


def _check_backend(backend: str, what: str) -> None:
    if backend != "jax":
        raise TriglotError(wrong_backend(what, backend))


def wrong_backend(what: str, backend: str) -> str:
    """Write the message for a backend of Keras that is not JAX."""
    return (
        f"{what} {backend!r}, and triglot trains on JAX: set {KERAS_BACKEND}=jax before Keras is "
        "first imported."
    )


@contextmanager
def _without_settings_file() -> Iterator[None]:
    """Keep Keras from writing its settings to `~/.keras`; a file that is there is read."""
    there = os.path.join(os.path.expanduser("~"), ".keras", "keras.json")
    if KERAS_HOME in os.environ or os.path.exists(there):
        yield
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ[KERAS_HOME] = folder
        try:
            yield
        finally:
            del os.environ[KERAS_HOME]
