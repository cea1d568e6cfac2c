"""The files a training leaves in its folder, written so that an interruption loses nothing."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import TriglotError


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


class Journal:
    """Writes a training's metrics line by line, and keeps them for its summary.

    Attributes:
      folder: where everything goes.
      history: the metrics of each chunk, `[S, updates]` by name.
    """

    def __init__(self, folder: Path, steps_per_update: int) -> None:
        self.folder = folder
        self.history: list[Mapping[str, np.ndarray]] = []
        self._steps_per_update = steps_per_update
        self._num_updates = 0

    def go_on_after(self, num_updates: int) -> None:
        """Read back the lines of the first `num_updates` updates, and drop any after them.

        Raises:
          TriglotError: if some of these lines are missing.
        """
        path = self.folder / "metrics.jsonl"
        texts = path.read_text().splitlines(keepends=True) if path.exists() else []
        # A program that was killed may have left half a line at the end.
        kept = [text for text in texts[:num_updates] if text.endswith("\n")]
        if len(kept) < num_updates:
            raise TriglotError(
                f"{path} holds {len(kept)} updates, and the checkpoint was written after "
                f"{num_updates}: its lines were removed, so the run cannot go on."
            )
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text("".join(kept))
        unfinished.replace(path)
        lines = [json.loads(text) for text in kept]
        names = [
            name for name in (lines[0] if lines else {}) if name not in ("update", "env_steps")
        ]
        if lines:
            values = {n: np.array([line[n] for line in lines], np.float32).T for n in names}
            self.history = [values]
        self._num_updates = num_updates

    def add_chunk(self, metrics: Mapping[str, np.ndarray]) -> None:
        """Append a line per update: its number, its environment steps and each seed's metrics."""
        self.history.append(metrics)
        with (self.folder / "metrics.jsonl").open("a") as file:
            for index in range(next(iter(metrics.values())).shape[1]):
                self._num_updates += 1
                line = {
                    "update": self._num_updates,
                    "env_steps": self._num_updates * self._steps_per_update,
                    **{name: values[:, index] for name, values in metrics.items()},
                }
                file.write(json.dumps(plain(line), allow_nan=False) + "\n")

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Join the chunks: `[S, updates]` by name."""
        names = self.history[0] if self.history else {}
        return {name: np.concatenate([m[name] for m in self.history], axis=1) for name in names}

    @property
    def env_steps(self) -> np.ndarray:
        """Count the environment steps per seed after each update, `[updates]`."""
        return np.arange(1, self._num_updates + 1) * self._steps_per_update

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file."""
        text = json.dumps(plain(content), allow_nan=False, indent=2)
        (self.folder / name).write_text(text + "\n")


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
