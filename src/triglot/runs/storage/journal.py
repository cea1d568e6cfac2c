"""Write a run's metrics line by line, so that an interruption loses nothing."""

import functools
import itertools
import json
import math
import os
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from ...core.errors import TriglotError, counted, writing
from ...core.records import JSON, JSONDict
from ...shared.machine.files import COUNT, plain, replacing
from ...shared.statistics.curves import finite_mean
from .logs import Logs

METRICS = "metrics.jsonl"
MAX_LINE = 1 << 24  # bytes of a line; longer ones are damaged
TAIL = 1 << 18  # bytes at the end of the file, of which the last line is read
RECENT = 0.05  # of the updates so far, whose training episodes the shown return averages
RECENTLY = f"last {RECENT:.0%} of updates"
COUNTERS = ("update", "env_steps")


class MetricsChanged(TriglotError):
    """Another program changed or removed the metrics while they were written."""


@dataclass
class Journal:
    """Appends a run's metrics to `metrics.jsonl`; of them, only the returns are kept in memory.

    Nobody else may change the file or replace the folder meanwhile, which would lose metrics.

    Attributes:
      folder: the run directory.
      steps_per_update: environment steps per seed.
      every: only each `every`-th update is written, and all of them to `logs`.
      logs: where all metrics go too, or None.
      num_updates: updates done so far.
      returns: of each line in the file, the mean over seeds; NaN where no episode ended.
    """

    folder: Path
    steps_per_update: int
    every: int = 1
    logs: Logs | None = None
    num_updates: int = field(default=0, init=False)
    returns: "array[float]" = field(default_factory=lambda: array("f"), init=False)
    _size: int = field(default=0, init=False)  # of the file, in bytes
    _place: tuple[int, int] = field(init=False)  # the folder's device and inode

    def __post_init__(self) -> None:
        self._place = _place(self.folder)

    def resume_after(self, num_updates: int, first: int = 0) -> list[int]:
        """Keep the lines of the first `num_updates` updates, and delete all others.

        Args:
          num_updates: updates that are done.
          first: updates of an earlier training, whose lines are not in this file.

        Returns:
          The updates whose lines are missing or damaged.
        """
        path = self.folder / METRICS
        written = range(self.every, num_updates + 1, self.every)
        missing = {update for update in written if update > first}
        tail = _Columns()  # of the point that the logs have begun
        begun = num_updates + 1 if self.logs is None else self.logs.begun_after(num_updates)
        with replacing(path) as unfinished, unfinished.open("xb") as file:
            for line in _lines(path):
                if line.update in missing:
                    missing.remove(line.update)
                    file.write(line.text)
                    self.returns.append(
                        float(finite_mean(np.array(line.metrics["episode_return"])))
                    )
                    if line.update > begun:
                        tail.add(line)
        self.num_updates, self._size = num_updates, path.stat().st_size
        if self.logs is not None:
            self.logs.resume_after(num_updates, tail.metrics() if tail.env_steps else {})
        return sorted(missing)

    def check_folder(self) -> None:
        """Check that the folder is the one in which the training began.

        Raises:
          TriglotError: if it was removed, moved or replaced: nothing is written into another one.
        """
        try:
            same = _place(self.folder) == self._place
        except FileNotFoundError:
            same = False
        if not same:
            raise TriglotError(
                f"{self.folder} was removed, moved or replaced during the training, which has "
                f"stopped after {counted(self.num_updates, 'update')}. A folder that was moved "
                "continues at its new place: triglot resume FOLDER."
            )

    def add_chunk(self, metrics: Mapping[str, np.ndarray]) -> None:
        """Append one line per update: its number, its environment steps and each seed's metrics.

        Raises:
          MetricsChanged: if the file is not as it was left; these updates are counted.
          CannotWrite: if the disk is full, or the folder is read-only.
          TriglotError: if the folder is gone.
        """
        self.check_folder()
        returns, path = finite_mean(metrics["episode_return"].T), self.folder / METRICS
        count = len(returns)
        with writing(path), path.open("ab") as file:
            try:
                self._check_size(file)
            except MetricsChanged:
                self.num_updates += count
                raise
            for index in range(count):
                self.num_updates += 1
                if self.num_updates % self.every:
                    continue
                line = {
                    "update": self.num_updates,
                    "env_steps": self.num_updates * self.steps_per_update,
                    **{name: values[:, index] for name, values in metrics.items()},
                }
                text = f"{json.dumps(plain(line), allow_nan=False)}\n".encode()
                self._size += file.write(text)
                self.returns.append(returns[index])
            file.flush()
            self._check_size(file)
        if self.logs is not None:
            self.logs.add_chunk(metrics)

    def _check_size(self, file: BinaryIO) -> None:
        """Raise MetricsChanged if the file has not the bytes that were written."""
        size = os.fstat(file.fileno()).st_size
        if size != self._size:
            raise MetricsChanged(
                f"another program changed {self.folder / METRICS} during the training: it has "
                f"{size:,} bytes, and {self._size:,} were written."
            )

    @property
    def env_steps(self) -> int:
        """Environment steps per seed so far."""
        return self.num_updates * self.steps_per_update


def _place(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def read_metrics(
    folder: Path, names: Sequence[str] | None = None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Read the metrics of a run, which may still be running; damaged lines are left out.

    Args:
      folder: the run directory.
      names: the metrics to read; None for all.

    Returns:
      Environment steps per seed after each update, `[U]`, and each metric `[S, U]`, float32.

    Raises:
      TriglotError: if the folder has no metrics, or the file cannot be read.
    """
    columns = _Columns(names)
    for line in _lines(folder / METRICS, names):
        columns.add(line)
    if not columns.env_steps:
        raise TriglotError(f"{folder} has no metrics: {METRICS} is missing or empty.")
    return np.array(columns.env_steps), columns.metrics()


def recent_mean(values: np.ndarray) -> float:
    """Average the last `RECENT` of the finite values `[U]`, at least one; NaN if there are none.

    >>> recent_mean(np.array([*range(38), np.nan, 8.0, 10.0, np.nan]))
    9.0
    """
    finite = values[np.isfinite(values)]
    return float(finite_mean(finite[-max(1, round(RECENT * len(finite))) :]))


def last_metrics(folder: Path) -> JSON:
    """Read the last whole line of a run's metrics, without the lines before it.

    Args:
      folder: the run directory.

    Returns:
      The environment steps so far, and each metric `[S]`; empty if there is none.
    """
    path = folder / METRICS
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read().splitlines()
    except OSError:
        return {}
    whole = (line for text in reversed(lines) if (line := _parsed(text)) is not None)
    last = next(whole, None)  # the one after it is being written
    return {} if last is None else {"env_steps": last.env_steps, **last.metrics}


class _Line(NamedTuple):
    """One sound line: its bytes, its counters, and its metrics `[S]` by name."""

    text: bytes
    update: int
    env_steps: int
    metrics: dict[str, list[float]]


class _Columns:
    """Collects lines into arrays of 4 bytes a number, fewer than in the file."""

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self.env_steps = array("q")
        self._names = names
        self._columns: dict[str, array[float]] = {}
        self._num_seeds = 0

    def add(self, line: _Line) -> None:
        self._num_seeds = len(next(iter(line.metrics.values())))
        self.env_steps.append(line.env_steps)
        for name, values in line.metrics.items():
            if self._names is None or name in self._names:
                self._columns.setdefault(name, array("f")).extend(values)

    def metrics(self) -> dict[str, np.ndarray]:
        return {
            name: np.frombuffer(values, np.float32).reshape(-1, self._num_seeds).T
            for name, values in self._columns.items()
        }


def _lines(path: Path, names: Sequence[str] | None = None) -> Iterator[_Line]:
    """Read the sound lines in ascending order of updates; of `names` only, which is faster.

    A line is damaged if it is incomplete (the program was killed, or is still running), is not
    JSON, repeats an update, or has other metrics, seeds or steps per update than most lines.
    """
    last = 0
    try:
        with path.open("rb") as file:
            texts = iter(lambda: file.readline(MAX_LINE), b"")
            read = _parsed if names is None else functools.partial(_picked, names=names)
            parsed = (read(text) for text in texts if text.endswith(b"\n"))
            lines = (line for line in parsed if line is not None)
            first = list(itertools.islice(lines, 9))
            usual = Counter(map(_shape, first)).most_common(1)
            for line in itertools.chain(first, lines):
                if line.update > last and _shape(line) == usual[0][0]:
                    last = line.update
                    yield line
    except FileNotFoundError:
        return
    except OSError as error:
        raise TriglotError(f"{path} cannot be read: {error.strerror}.") from None


def _shape(line: _Line) -> tuple[object, ...]:
    names_and_seeds = tuple((name, len(values)) for name, values in line.metrics.items())
    return (line.env_steps / line.update, *names_and_seeds)


_START = re.compile(rb'{"update": ([1-9][0-9]{0,17}), "env_steps": ([0-9]{1,18}), ')


def _picked(text: bytes, names: Sequence[str]) -> _Line | None:
    """Read some metrics of a line as `Journal` writes it; parse any other line as JSON.

    A million lines of ten metrics take 3 s, and as JSON 50.
    """
    start = _START.match(text)
    if start is not None and text.endswith(b"]}\n"):
        metrics = {}
        for name in names:
            label = b'"%s": [' % name.encode()
            at = text.find(label)
            if at < 0:
                continue
            values = text[at + len(label) : text.find(b"]", at)].replace(b"null", b"nan")
            try:
                metrics[name] = [float(value.strip(b' "')) for value in values.split(b",")]
            except ValueError:
                return _parsed(text)
            if math.inf in metrics[name]:  # written as text, or too large an integer
                return _parsed(text)
        if metrics:
            return _Line(text, int(start[1]), int(start[2]), metrics)
    return _parsed(text)


def _parsed(text: bytes) -> _Line | None:
    try:
        content: JSONDict = json.loads(text)
        update, env_steps = (content.pop(name) for name in COUNTERS)
        metrics = {
            name: [float("nan") if value is None else float(value) for value in values]
            for name, values in content.items()
        }
        sound = COUNT.accepts(update) and COUNT.accepts(env_steps) and update > 0 and metrics
        seeds = {len(values) for values in metrics.values()}
        sound = sound and len(seeds) == 1 and seeds != {0}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    return _Line(text, update, env_steps, metrics) if sound else None
