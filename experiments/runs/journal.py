"""Write a run's metrics line by line, so that an interruption loses nothing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...core.errors import TriglotError, writing
from .files import plain
from .logs import Logs

METRICS = "metrics.jsonl"
COUNTERS = ("update", "env_steps")


class Journal:
    """Appends a run's metrics to `metrics.jsonl`, and keeps them for its summary.

    Attributes:
      folder: the run directory.
      history: the metrics of each chunk, `[S, updates]` by name.
    """

    def __init__(self, folder: Path, steps_per_update: int, logs: Logs | None = None) -> None:
        """Start a journal whose metrics also go to `logs`."""
        self.folder = folder
        self._logs = logs
        self.history: list[Mapping[str, np.ndarray]] = []
        self._steps_per_update = steps_per_update
        self._num_updates = 0

    def resume_after(self, num_updates: int) -> None:
        """Read the lines of the first `num_updates` updates, and delete later ones.

        Raises:
          TriglotError: if lines are missing.
        """
        path = self.folder / METRICS
        kept = _lines(path)[:num_updates]
        if len(kept) < num_updates:
            raise TriglotError(
                f"{path} has {len(kept)} updates, but the checkpoint was written after "
                f"{num_updates}: restore the missing lines, or train again."
            )
        unfinished = path.with_suffix(".unfinished")
        with writing(self.folder):
            unfinished.write_text("".join(kept))
            unfinished.replace(path)
        if kept:
            self.history = [_parsed(kept)[1]]
        self._num_updates = num_updates
        if self._logs is not None:
            self._logs.resume_after(num_updates, self.metrics)

    def add_chunk(self, metrics: Mapping[str, np.ndarray]) -> None:
        """Append one line per update: its number, its environment steps and each seed's metrics.

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
        """Environment steps per seed after each update, `[updates]`."""
        return np.arange(1, self._num_updates + 1) * self._steps_per_update


def read_metrics(folder: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Read the metrics of a run, which may still be running.

    Returns:
      Environment steps per seed after each update, `[U]`, and each metric `[S, U]`.

    Raises:
      TriglotError: if the folder has no metrics.
    """
    lines = _lines(folder / METRICS)
    if not lines:
        raise TriglotError(f"{folder} has no metrics: {METRICS} is missing or empty.")
    return _parsed(lines)


def _lines(path: Path) -> list[str]:
    texts = path.read_text().splitlines(keepends=True) if path.exists() else []
    # The last line may be incomplete if the program was killed or is still running.
    return [text for text in texts if text.endswith("\n")]


def _parsed(lines: Sequence[str]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    parsed = [json.loads(text) for text in lines]
    names = [name for name in parsed[0] if name not in COUNTERS]
    env_steps = np.array([line["env_steps"] for line in parsed])
    return env_steps, {n: np.array([line[n] for line in parsed], np.float32).T for n in names}
