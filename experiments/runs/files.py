"""Create folders, and write JSON files atomically."""

import json
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import TriglotError, writing


def check_free(folder: Path) -> None:
    """Reject a folder that is not empty.

    Raises:
      TriglotError: if it is not empty, not a folder, or cannot be read.
    """
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise TriglotError(f"{folder} cannot be used: {error.strerror}.") from None
    if taken:
        raise TriglotError(
            f"{folder} exists and is not empty, and would be overwritten: choose another folder."
        )


def make_folder(folder: Path) -> None:
    """Create a folder; an empty one may exist.

    Raises:
      TriglotError: if it is not empty, or cannot be created.
    """
    try:
        check_free(folder)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TriglotError(f"cannot create the folder {folder}: {error.strerror}.") from None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    unfinished = path.with_name(f".unfinished-{path.name}")
    with writing(path):
        unfinished.write_text(json.dumps(plain(content), allow_nan=False, indent=2) + "\n")
        unfinished.replace(path)


def plain(value: Any) -> Any:
    """Convert a value to strict JSON: NaN becomes null, infinities and enums become strings.

    >>> plain({"loss": np.float32([0.1, np.nan, np.inf])})
    {'loss': [0.1, None, 'inf']}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(child) for name, child in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(child) for child in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.floating):
        # The shortest text that parses to the same number at this precision.
        value = float(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value.item() if isinstance(value, np.generic) else value
