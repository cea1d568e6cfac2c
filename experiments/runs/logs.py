"""Logs beside the JSON lines: TensorBoard, and Weights & Biases where it is installed.

A log is a few lines behind one protocol, and its library is imported when the log is asked for.
"""

import importlib.util
import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...core.errors import missing_extra, require, unknown, user_error_context, writing
from ..plots.learning_curves import finite_mean
from .files import write_json

MOST_POINTS = 1000


class Log(Protocol):
    """Somewhere that a training's metrics go."""

    def add(self, env_steps: int, metrics: Mapping[str, np.ndarray]) -> None:
        """Note one point of every metric.

        Args:
          env_steps: environment steps per seed so far.
          metrics: by name, `[S]` of the `S` seeds; NaN where there was nothing to measure.
        """
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


class Logs:
    """Hands on the metrics of every update, at most `MOST_POINTS` points in a whole training.

    A longer training is averaged, a fixed number of updates to a point, so that one that was
    stopped and goes on leaves the same points as one that was not.
    """

    def __init__(self, logs: Iterable[Log], num_updates: int, steps_per_update: int) -> None:
        self._logs = tuple(logs)
        self._updates_per_point = -(-num_updates // MOST_POINTS)
        self._steps_per_update = steps_per_update
        self._num_updates = 0
        self._waiting: dict[str, np.ndarray] = {}

    def go_on_after(self, num_updates: int, metrics: Mapping[str, np.ndarray]) -> None:
        """Take up where another process stopped: `metrics` are `[S, num_updates]`."""
        self._num_updates = num_updates
        start = num_updates - num_updates % self._updates_per_point
        self._waiting = {name: values[:, start:] for name, values in metrics.items()}

    def add_chunk(self, metrics: Mapping[str, np.ndarray]) -> None:
        """Take the metrics `[S, updates]` of the next updates."""
        waiting = {
            name: np.concatenate([self._waiting[name], values], axis=1) if self._waiting else values
            for name, values in metrics.items()
        }
        size = self._updates_per_point
        count = next(iter(waiting.values())).shape[1]
        self._num_updates += next(iter(metrics.values())).shape[1]
        first = self._num_updates - count
        for start in range(0, count - size + 1, size):
            env_steps = (first + start + size) * self._steps_per_update
            window = {name: values[:, start : start + size] for name, values in waiting.items()}
            point = {name: finite_mean(values) for name, values in window.items()}
            for log in self._logs:
                log.add(env_steps, point)
        self._waiting = {
            name: values[:, count - count % size :] for name, values in waiting.items()
        }

    def close(self) -> None:
        """Close all."""
        for log in self._logs:
            log.close()


class TensorBoard:
    """Event files: a curve for each seed, and one for their mean where there are several.

    Args:
      folder: of the training.
      config: unused.
      start: environment steps of the last point that counts; later ones in older files do not.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], start: int) -> None:
        self._make = require("tensorboardX", "tensorboard").SummaryWriter
        self._folder = folder / "tensorboard"
        self._start = start
        self._writers: dict[str, Any] = {}

    def add(self, env_steps: int, metrics: Mapping[str, np.ndarray]) -> None:
        with writing(self._folder):
            for name, values in metrics.items():
                for curve, value in curves(values).items():
                    if np.isfinite(value):
                        self._writer(curve).add_scalar(name, value, env_steps)

    def close(self) -> None:
        with writing(self._folder):
            for writer in self._writers.values():
                writer.close()

    def _writer(self, curve: str) -> Any:
        if curve not in self._writers:
            self._writers[curve] = self._make(
                str(self._folder / curve),
                purge_step=self._start + 1 if self._start else None,
                filename_suffix=f".{self._start}",
            )
        return self._writers[curve]


class WeightsAndBiases:
    """One run of the project `triglot` (or `$WANDB_PROJECT`), named like the folder.

    `$WANDB_MODE=offline` keeps it on this machine, as ever with this library.

    Args:
      folder: of the training; it remembers the run's id, so that a resumed training goes on in it.
      config: written down as the run's configuration.
      start: unused: points that come again are the same.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], start: int) -> None:
        with user_error_context("Weights & Biases cannot begin a run"):
            self._run = require("wandb", "wandb").init(
                project=os.environ.get("WANDB_PROJECT", "triglot"),
                name=folder.resolve().name,
                id=_identity(folder / "wandb.json"),
                resume="allow",
                dir=str(folder),
                config=dict(config),
            )
            # Not the library's own count: that of a resumed training would begin anew.
            self._run.define_metric("*", step_metric="env_steps")

    def add(self, env_steps: int, metrics: Mapping[str, np.ndarray]) -> None:
        point = {
            name if curve == "mean" or len(values) == 1 else f"{curve}/{name}": float(value)
            for name, values in metrics.items()
            for curve, value in curves(values).items()
            if np.isfinite(value)
        }
        with user_error_context("Weights & Biases cannot take a point"):
            self._run.log({"env_steps": env_steps, **point})

    def close(self) -> None:
        with user_error_context("Weights & Biases cannot end its run"):
            self._run.finish()


def _identity(path: Path) -> str:
    if not path.exists():
        write_json(path, {"id": secrets.token_hex(4)})
    return json.loads(path.read_text())["id"]


class _Kind(NamedTuple):
    make: Callable[[Path, Mapping[str, Any], int], Log]
    library: str


LOGS = {
    "tensorboard": _Kind(TensorBoard, "tensorboardX"),
    "wandb": _Kind(WeightsAndBiases, "wandb"),
}


def check(names: Iterable[str]) -> None:
    """Refuse a log that is unknown, or whose library is not installed; nothing is imported.

    Raises:
      TriglotError: saying which.
    """
    for name in names:
        if name not in LOGS:
            raise unknown("log", name, LOGS)
        library = LOGS[name].library
        if importlib.util.find_spec(library) is None:
            raise missing_extra(library, name, f"--log {name}")


def begin(
    names: Iterable[str], folder: Path, config: Mapping[str, Any], num_updates: int, start: int
) -> Logs | None:
    """Begin the logs that a training asks for, or go on with them.

    Args:
      names: of `LOGS`.
      folder: of the training.
      config: what `config.json` holds.
      num_updates: of the whole training.
      start: updates done already.

    Returns:
      None where no log is asked for.
    """
    steps_per_update = config["steps_per_update"]
    made = [LOGS[name].make(folder, config, start * steps_per_update) for name in names]
    return Logs(made, num_updates, steps_per_update) if made else None


def curves(values: np.ndarray) -> dict[str, float]:
    """Name what is shown of a metric `[S]`: each seed, and the mean of several.

    >>> curves(np.array([1.0, 3.0]))
    {'seed_0': 1.0, 'seed_1': 3.0, 'mean': 2.0}
    """
    shown = {f"seed_{seed}": float(value) for seed, value in enumerate(values)}
    return shown | {"mean": float(finite_mean(values))} if len(values) > 1 else shown
