"""Loggers in addition to the JSON lines: TensorBoard, and Weights & Biases.

A logger's library is imported when the logger is requested.
"""

import importlib
import importlib.util
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from ...core.errors import (
    TriglotError,
    check_known,
    missing_extra,
    require,
    user_error_context,
    writing,
)
from ...core.records import JSON, Values
from ...shared.machine.files import TEXT, read_record, write_json
from ...shared.statistics.curves import finite_mean

MAX_POINTS = 1000
# Fields of config.json that are hyperparameters, besides those of the algorithm.
CHOSEN = ("algorithm", "env", "backend", "arithmetic", "optimizer", "num_seeds", "seed",
          "total_steps")  # fmt: skip
RETURNS = ("episode_return", "eval_return")
# Arguments of `wandb.init` that `--wandb` takes, and the values of `resume`.
WANDB = ("project", "entity", "group", "id", "resume")
WANDB_RESUME = ("allow", "never", "must", "auto")


class Log(Protocol):
    """A destination of metrics."""

    def add(self, env_steps: int, metrics: Mapping[str, np.ndarray]) -> None:
        """Log one point of every metric.

        Args:
          env_steps: environment steps per seed so far.
          metrics: by name, `[S]`; NaN where there was nothing to measure.
        """

    def add_video(self, env_steps: int, path: Path) -> None:
        """Log a GIF.

        Args:
          env_steps: environment steps per seed so far.
          path: the file, which is deleted afterwards.
        """

    def close(self) -> None:
        """Flush and close."""


class Logs:
    """Sends metrics to several logs, at most `MAX_POINTS` points per run.

    Longer runs are averaged over a fixed number of updates per point, so that a resumed run logs
    the same points as an uninterrupted one.
    """

    def __init__(self, logs: Iterable[Log], num_updates: int, steps_per_update: int) -> None:
        self._logs = tuple(logs)
        self._updates_per_point = -(-num_updates // MAX_POINTS)
        self._steps_per_update = steps_per_update
        self._num_updates = 0
        self._pending: list[dict[str, np.ndarray]] = []  # updates of the next point

    def begun_after(self, num_updates: int) -> int:
        """Count the updates before the point that `num_updates` updates have begun."""
        return num_updates - num_updates % self._updates_per_point

    def resume_after(self, num_updates: int, metrics: Mapping[str, np.ndarray]) -> None:
        """Continue after `num_updates` updates.

        Args:
          num_updates: updates done.
          metrics: those of the updates since `begun_after`, `[S, updates]`; lost ones are missing
            from the average of their point.
        """
        self._num_updates = num_updates
        self._pending = _by_update(metrics)

    def add_chunk(self, metrics: Mapping[str, np.ndarray]) -> None:
        """Log the metrics `[S, updates]` of the next updates."""
        for update in _by_update(metrics):
            self._num_updates += 1
            self._pending.append(update)
            if self._num_updates % self._updates_per_point:
                continue
            point = {
                name: finite_mean(np.stack([u[name] for u in self._pending if name in u], axis=1))
                for name in metrics
            }
            for log in self._logs:
                log.add(self._num_updates * self._steps_per_update, point)
            self._pending = []

    def add_video(self, num_updates: int, path: Path) -> None:
        """Log a GIF of an episode that was played after `num_updates` updates."""
        for log in self._logs:
            log.add_video(num_updates * self._steps_per_update, path)

    def close(self) -> None:
        """Close all logs."""
        for log in self._logs:
            log.close()


def _by_update(metrics: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Split metrics `[S, updates]` into those of each update, `[S]`."""
    columns = zip(*(values.T for values in metrics.values()), strict=True)
    return [dict(zip(metrics, column, strict=True)) for column in columns]


class TensorBoard:
    """Writes event files: one curve per seed, and one for their mean if there are several.

    The hyperparameters stand beside the last curve, for the tab HPARAMS, which compares runs.

    Args:
      folder: the run directory.
      config: the run's configuration.
      start: environment steps at which a run resumes; later points in older files are discarded.
    """

    library = "tensorboardX"

    def __init__(self, folder: Path, config: JSON, start: int) -> None:
        self._library = require("tensorboardX", "tensorboard")
        self._folder = folder / "tensorboard"
        self._start = start
        self._writers: dict[str, Any] = {}
        if config and not start:
            self._add_hyperparameters(config)

    def add(self, env_steps: int, metrics: Mapping[str, np.ndarray]) -> None:
        with writing(self._folder):
            for name, values in metrics.items():
                for curve, value in curves(values).items():
                    if np.isfinite(value):
                        self._writer(curve).add_scalar(name, value, env_steps)

    def add_video(self, env_steps: int, path: Path) -> None:
        # As `add_video` of the library writes it, which needs moviepy to make a GIF.
        proto = importlib.import_module("tensorboardX.proto.summary_pb2")
        with Image.open(path) as frames:
            width, height = frames.size
        image = proto.Summary.Image(
            width=width, height=height, colorspace=3, encoded_image_string=path.read_bytes()
        )
        value = proto.Summary.Value(tag="episode", image=image)
        with writing(self._folder):
            writer = self._writer("seed_0").file_writer
            writer.add_summary(proto.Summary(value=[value]), env_steps)

    def _add_hyperparameters(self, config: JSON) -> None:
        summary = importlib.import_module("tensorboardX.summary")
        metrics = dict.fromkeys(RETURNS if config["eval_every"] else RETURNS[:1], 0.0)
        with writing(self._folder):
            writer = self._writer("mean" if config["num_seeds"] > 1 else "seed_0").file_writer
            for part in summary.hparams(hyperparameters(config), metrics):
                writer.add_summary(part)

    def close(self) -> None:
        with writing(self._folder):
            for writer in self._writers.values():
                writer.close()

    def _writer(self, curve: str) -> Any:
        if curve not in self._writers:
            self._writers[curve] = self._library.SummaryWriter(
                str(self._folder / curve),
                purge_step=self._start + 1 if self._start else None,
                filename_suffix=f".{self._start}",
            )
        return self._writers[curve]


class WeightsAndBiases:
    """Logs to one run of the project `triglot` (or `$WANDB_PROJECT`), named like the folder.

    `WANDB_MODE=offline` disables uploads, as usual with this library.

    Args:
      folder: the run directory. It stores the run's id, so that a resumed training continues it.
      config: the run's configuration; its `wandb` has arguments of `wandb.init`.
      start: unused, because repeated points are equal.
    """

    library = "wandb"

    def __init__(self, folder: Path, config: JSON, start: int) -> None:
        chosen = wandb_arguments(config.get("wandb") or ())
        if start and chosen.get("resume") == "never":  # the training began this run of W&B
            chosen["resume"] = "allow"
        arguments = {
            "project": os.environ.get("WANDB_PROJECT", "triglot"),
            "name": folder.resolve().name,
            "resume": os.environ.get("WANDB_RESUME", "allow"),
            "dir": str(folder),
            "config": dict(config),
            **chosen,
        }
        if "id" not in chosen:
            arguments["id"] = _identity(folder / "wandb.json")
        with user_error_context("Weights & Biases failed to start a run"):
            self._run = require("wandb", "wandb").init(**arguments)
            # The library's own step counter would restart at 0 in a resumed run.
            self._run.define_metric("*", step_metric="env_steps")

    def add(self, env_steps: int, metrics: Mapping[str, np.ndarray]) -> None:
        point = {
            name if curve == "mean" or len(values) == 1 else f"{curve}/{name}": float(value)
            for name, values in metrics.items()
            for curve, value in curves(values).items()
            if np.isfinite(value)
        }
        with user_error_context("Weights & Biases failed to log a point"):
            self._run.log({"env_steps": env_steps, **point})

    def add_video(self, env_steps: int, path: Path) -> None:
        video = require("wandb", "wandb").Video
        with user_error_context("Weights & Biases failed to log a video"):
            self._run.log({"env_steps": env_steps, "episode": video(str(path), format="gif")})

    def close(self) -> None:
        with user_error_context("Weights & Biases failed to finish its run"):
            self._run.finish()


def _identity(path: Path) -> str:
    advice = "Delete it: Weights & Biases then starts another run."
    record = read_record(path, {"id": TEXT}, advice)
    if record is None:
        record = {"id": secrets.token_hex(4)}
        write_json(path, record)
    return record["id"]


LOGS = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def wandb_arguments(words: Iterable[str]) -> dict[str, str]:
    """Read the words of `--wandb` as arguments of `wandb.init`.

    >>> wandb_arguments(["project=maze", "group=seeds"])
    {'project': 'maze', 'group': 'seeds'}

    Raises:
      TriglotError: with the word that is not NAME=VALUE, its unknown name or value.
    """
    arguments = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (equals and value):
            raise TriglotError(f"--wandb takes NAME=VALUE, got {word!r}.")
        check_known("argument of --wandb", name, WANDB)
        if name in arguments:
            raise TriglotError(f"--wandb takes {name} once, got {arguments[name]} and {value}.")
        if name == "resume":
            check_known("value of --wandb resume", value, WANDB_RESUME)
        arguments[name] = value
    return arguments


def with_group(words: Iterable[str], name: str) -> tuple[str, ...]:
    """Add a group to the words of `--wandb`, unless they or `$WANDB_RUN_GROUP` name one.

    >>> with_group(["project=maze"], "rates")
    ('project=maze', 'group=rates')
    """
    words = tuple(words)
    if "group" in wandb_arguments(words) or os.environ.get("WANDB_RUN_GROUP"):
        return words
    return (*words, f"group={name}")


def check(names: Sequence[str], wandb: Sequence[str] = ()) -> None:
    """Reject unknown logs and logs whose library is not installed, without importing it.

    Args:
      names: of `--log`.
      wandb: the words of `--wandb`.

    Raises:
      TriglotError: with the name or the word.
    """
    wandb_arguments(wandb)
    if wandb and "wandb" not in names:
        raise TriglotError("--wandb has no effect without --log wandb.")
    for name in names:
        check_known("log", name, LOGS)
        library = LOGS[name].library
        if importlib.util.find_spec(library) is None:
            raise missing_extra(library, name, f"--log {name}")


def start(
    names: Iterable[str], folder: Path, config: JSON, num_updates: int, done: int
) -> Logs | None:
    """Start or continue the requested logs.

    Args:
      names: keys of `LOGS`.
      folder: the run directory.
      config: the contents of `config.json`.
      num_updates: updates of the whole run.
      done: updates done already.

    Returns:
      The logs, or None if `names` is empty.
    """
    steps_per_update = config["steps_per_update"]
    started = [LOGS[name](folder, config, done * steps_per_update) for name in names]
    return Logs(started, num_updates, steps_per_update) if started else None


def hyperparameters(config: JSON) -> Values:
    """Collect what was chosen for a run, as numbers, bools and texts; None is left out.

    Args:
      config: the contents of `config.json`.
    """
    chosen = {name: config[name] for name in CHOSEN} | config["config"] | config["hyper"]
    return {
        name: value if isinstance(value, bool | int | float) else str(value)
        for name, value in chosen.items()
        if value is not None
    }


def curves(values: np.ndarray) -> dict[str, float]:
    """Name the curves of a metric `[S]`: each seed, and the mean if there are several.

    >>> curves(np.array([1.0, 3.0]))
    {'seed_0': 1.0, 'seed_1': 3.0, 'mean': 2.0}
    """
    shown = {f"seed_{seed}": float(value) for seed, value in enumerate(values)}
    return shown | {"mean": float(finite_mean(values))} if len(values) > 1 else shown
