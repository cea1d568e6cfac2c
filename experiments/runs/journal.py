"""The files a training leaves in its folder, written so that an interruption loses nothing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import TriglotError, writing
from .files import plain, write_json

if TYPE_CHECKING:
    from .logs import Logs

METRICS = "metrics.jsonl"
COUNTERS = ("update", "env_steps")


class Journal:
    """Writes a training's metrics line by line, and keeps them for its summary.

    Attributes:
      folder: where everything goes.
      history: the metrics of each chunk, `[S, updates]` by name.
    """

    def __init__(self, folder: Path, steps_per_update: int, logs: "Logs | None" = None) -> None:
        """Begin, for metrics that go to `logs` too."""
        self.folder = folder
        self._logs = logs
        self.history: list[Mapping[str, np.ndarray]] = []
        self._steps_per_update = steps_per_update
        self._num_updates = 0

    def go_on_after(self, num_updates: int) -> None:
        """Read back the lines of the first `num_updates` updates, and drop any after them.

        Raises:
          TriglotError: if some of these lines are missing.
        """
        path = self.folder / METRICS
        kept = _lines(path)[:num_updates]
        if len(kept) < num_updates:
            raise TriglotError(
                f"{path} holds {len(kept)} updates, and the checkpoint was written after "
                f"{num_updates}: its lines were removed, so the run cannot go on."
            )
        unfinished = path.with_suffix(".unfinished")
        with writing(self.folder):
            unfinished.write_text("".join(kept))
            unfinished.replace(path)
        if kept:
            self.history = [_parsed(kept)[1]]
        self._num_updates = num_updates
        if self._logs is not None:
            self._logs.go_on_after(num_updates, self.metrics)

    def add_chunk(self, metrics: Mapping[str, np.ndarray]) -> None:
        """Append a line per update: its number, its environment steps and each seed's metrics.

        Raises:
          CannotWrite: if the disk is full, or the folder is gone or read-only.
        """
        self.history.append(metrics)
        with writing(self.folder / METRICS), (self.folder / METRICS).open("a") as file:
            for index in range(next(iter(metrics.values())).shape[1]):
                self._num_updates += 1
                line = {
                    "update": self._num_updates,
                    "env_steps": self._num_updates * self._steps_per_update,
                    **{name: values[:, index] for name, values in metrics.items()},
                }
                file.write(json.dumps(plain(line), allow_nan=False) + "\n")
        if self._logs is not None:
            self._logs.add_chunk(metrics)

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
        write_json(self.folder / name, content)


def read_config(run: Path) -> dict[str, Any]:
    """Read what a training wrote down when it began.

    Raises:
      TriglotError: if the folder is no training's.
    """
    try:
        config = json.loads((run / "config.json").read_text())
        config["command"]
    except (OSError, ValueError, KeyError, TypeError):
        raise TriglotError(
            f"{run} is no training's folder: it has no config.json that says what was begun."
        ) from None
    return config


def read_metrics(folder: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Read what a training has logged so far.

    Returns:
      Environment steps per seed after each update, `[U]`, and each metric `[S, U]`.

    Raises:
      TriglotError: if the folder holds no metrics.
    """
    lines = _lines(folder / METRICS)
    if not lines:
        raise TriglotError(f"{folder} holds no metrics: it has no {METRICS} with a whole line.")
    return _parsed(lines)


def _lines(path: Path) -> list[str]:
    texts = path.read_text().splitlines(keepends=True) if path.exists() else []
    # A program that was killed, or still runs, may have left half a line at the end.
    return [text for text in texts if text.endswith("\n")]


def _parsed(lines: Sequence[str]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    parsed = [json.loads(text) for text in lines]
    names = [name for name in parsed[0] if name not in COUNTERS]
    env_steps = np.array([line["env_steps"] for line in parsed])
    return env_steps, {n: np.array([line[n] for line in parsed], np.float32).T for n in names}
