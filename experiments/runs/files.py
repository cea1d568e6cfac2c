"""Folders and JSON files, written whole or not at all."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import TriglotError, writing


def check_free(folder: Path) -> None:
    """Refuse a folder that holds something.

    Raises:
      TriglotError: if it does, or is no folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise TriglotError(
            f"{folder} already holds something, and nothing is overwritten: choose another folder."
        )


def make_folder(folder: Path) -> None:
    """Make a folder, or take an empty one.

    Raises:
      TriglotError: if it holds something, or cannot be made.
    """
    try:
        check_free(folder)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TriglotError(f"the folder {folder} cannot be used: {error.strerror}.") from None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, whole or not at all.

    Raises:
      CannotWrite: if the disk is full, or the folder is gone or read-only.
    """
    unfinished = path.with_name(f".unfinished-{path.name}")
    with writing(path):
        unfinished.write_text(json.dumps(plain(content), allow_nan=False, indent=2) + "\n")
        unfinished.replace(path)


def plain(value: Any) -> Any:
    """Turn a value into what strict JSON takes: NaN becomes null, an infinity a string.

    >>> plain({"loss": np.float32([0.1, np.nan, np.inf])})
    {'loss': [0.1, None, 'inf']}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(child) for name, child in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(child) for child in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.floating):
        # The shortest text that reads back as the same number of the same width.
        value = float(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value.item() if isinstance(value, np.generic) else value
