"""The results of one backend in a comparison, and the statistics computed from them."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors.numpy import save_file

from ..statistics import interval95, last_return

Arrays: TypeAlias = dict[str, np.ndarray]
SHARED_FACTS = ("num_updates", "chunk_size", "steps_per_update", "device")  # equal for all backends


@dataclass
class Record:
    """The results so far; it grows while the backend trains.

    Attributes:
      facts: JSON values by name.
      history: the metrics of each chunk, `[S, updates]` by name.
      chunk_seconds: updates and seconds of each chunk.
      dispatch_seconds: times of single calls.
      params: final parameters by canonical name, after training.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    history: list[Arrays] = field(default_factory=list)
    chunk_seconds: list[tuple[int, float]] = field(default_factory=list)
    dispatch_seconds: list[float] = field(default_factory=list)
    params: Arrays = field(default_factory=dict)

    def add_chunk(self, count: int, seconds: float, metrics: Arrays) -> None:
        """Add a chunk of `count` updates."""
        self.chunk_seconds.append((count, seconds))
        self.history.append(metrics)

    @property
    def updates(self) -> int:
        """Updates done."""
        return sum(count for count, _ in self.chunk_seconds)

    @property
    def metrics(self) -> Arrays:
        """Join the chunks: `[S, updates]` by name."""
        names = self.history[0] if self.history else {}
        return {name: np.concatenate([m[name] for m in self.history], axis=1) for name in names}

    def summary(self, num_seeds: int) -> dict[str, Any]:
        """Compute the statistics of the finished training, as JSON values.

        `steps_per_second` counts environment steps of all seeds; it is the median over chunks,
        without the first one if there are others.
        """
        returns = self.facts["final_returns"]
        steady = self.chunk_seconds[1:] or self.chunk_seconds
        steps = self.facts["steps_per_update"] * num_seeds
        return {
            "final_return_mean": statistics.fmean(returns),
            "final_return_interval": interval95(returns),
            "training_return_mean": last_return(self.metrics),
            "steps_per_second": statistics.median(n * steps / seconds for n, seconds in steady),
            "first_chunk_seconds": self.chunk_seconds[0][1],
            "chunk_seconds": self.chunk_seconds,
            "dispatch_microseconds": 1e6 * statistics.median(self.dispatch_seconds),
            **{name: fact for name, fact in self.facts.items() if name not in SHARED_FACTS},
        }


def save_records(out: Path, records: Mapping[str, Record]) -> None:
    """Write all metrics and the final parameters, one file per backend."""
    for name, record in records.items():
        for folder, arrays in (("metrics", record.metrics), ("params", record.params)):
            if arrays:
                (out / folder).mkdir(parents=True, exist_ok=True)
                save_file(arrays, out / folder / f"{name}.safetensors")
