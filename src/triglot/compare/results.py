"""The results of one job: in memory, in its folder, and in a checkpoint of its training."""

import itertools
import json
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from safetensors.numpy import load_file, save_file

from ..core.errors import TriglotError, describe
from ..core.loop.chunks import Chunk
from ..core.records import JSONDict
from ..shared.machine.files import write_json
from ..shared.pages.tables import GAP
from ..shared.statistics import interval95_over_seeds, last_return

Arrays: TypeAlias = dict[str, np.ndarray]
SHARED_FACTS = ("num_updates", "chunk_size", "steps_per_update", "device")  # equal for all backends
FACTS, PROGRAM = "facts.json", "program.txt"
NO_TIME = 1e-9  # seconds; a chunk never takes less


@dataclass
class Record:
    """The results of one training; it grows while the training runs.

    Attributes:
      facts: JSON values by name.
      history: the metrics of each chunk, `[S, updates]` by name.
      chunks: of each chunk its updates, its seconds, the resident bytes after it, and the number of
        the process that ran it.
      snapshots: parameters and outputs `[S, ...]` by name, by updates done.
      probe: the parts of the first update, see `probes`.
      params: final parameters by shared name, after training.
      program: the text of the optimized training program.
      process: the number of the process that trains now, from 0; a job that is continued has
        several.
    """

    facts: JSONDict = field(default_factory=dict)
    history: list[Arrays] = field(default_factory=list)
    chunks: list[JSONDict] = field(default_factory=list)
    snapshots: dict[int, Arrays] = field(default_factory=dict)
    probe: Arrays = field(default_factory=dict)
    params: Arrays = field(default_factory=dict)
    program: str = ""
    process: int = 0

    def add_chunk(self, chunk: Chunk, resident_bytes: int) -> None:
        """Add a chunk, after which the process has so much memory."""
        self.chunks.append(
            {
                "updates": chunk.count,
                "process": self.process,
                "seconds": chunk.seconds,
                "resident_bytes": resident_bytes,
            }
        )
        self.history.append(chunk.metrics)

    @property
    def updates(self) -> int:
        """Updates done."""
        return sum(chunk["updates"] for chunk in self.chunks)

    @property
    def nbytes(self) -> int:
        """The bytes of all metrics and snapshots."""
        kept = (*self.history, *self.snapshots.values())
        return sum(array.nbytes for arrays in kept for array in arrays.values())

    @property
    def metrics(self) -> Arrays:
        """Join the chunks: `[S, updates]` by name."""
        names = self.history[0] if self.history else {}
        return {name: np.concatenate([m[name] for m in self.history], axis=1) for name in names}

    def summary(self, num_seeds: int) -> JSONDict:
        """Compute the statistics of the finished training, as JSON values.

        `steps_per_second` counts environment steps of all seeds; it is the median over chunks,
        without the first one of each process if there are others.
        """
        returns, unseen = self.facts["final_returns"], self.facts.get("final_returns_unseen")
        steady = [chunk for chunks in self._by_process() for chunk in chunks[1:]] or self.chunks
        steps = self.facts["steps_per_update"] * num_seeds
        speeds = [chunk["updates"] * steps / max(chunk["seconds"], NO_TIME) for chunk in steady]
        return {
            "final_return_mean": statistics.fmean(returns),
            "final_return_interval": interval95_over_seeds(returns),
            **({} if unseen is None else {GAP: statistics.fmean(np.subtract(returns, unseen))}),
            "training_return_mean": last_return(self.metrics),
            "steps_per_second": statistics.median(speeds),
            "first_chunk_seconds": self.chunks[0]["seconds"],
            **{name: fact for name, fact in self.facts.items() if name not in SHARED_FACTS},
        }

    def of_one_process(self) -> "Record":
        """Keep the chunks of the process that ran most of them, whose memory can be compared."""
        return replace(self, chunks=max(self._by_process(), key=len, default=[]))

    def _by_process(self) -> list[list[JSONDict]]:
        by_number = itertools.groupby(self.chunks, key=lambda chunk: chunk["process"])
        return [list(chunks) for _, chunks in by_number]

    def save(self, folder: Path) -> None:
        """Write everything into a job's folder, the JSON last."""
        save_file(self.metrics, folder / "metrics.safetensors")
        save_file(self.params, folder / "params.safetensors")
        save_file(self.probe, folder / "probe.safetensors")
        named = {
            f"{update}/{name}": array
            for update, arrays in self.snapshots.items()
            for name, array in arrays.items()
        }
        save_file(named, folder / "snapshots.safetensors")
        (folder / PROGRAM).write_text(self.program)
        write_json(folder / FACTS, {"facts": self.facts, "chunks": self.chunks})

    @classmethod
    def load(cls, folder: Path) -> "Record":
        """Read a job's folder."""
        content = json.loads((folder / FACTS).read_text())
        snapshots: dict[int, Arrays] = {}
        for name, array in load_file(folder / "snapshots.safetensors").items():
            update, _, rest = name.partition("/")
            snapshots.setdefault(int(update), {})[rest] = array
        return cls(
            facts=content["facts"],
            chunks=content["chunks"],
            history=[load_file(folder / "metrics.safetensors")],
            snapshots=dict(sorted(snapshots.items())),
            probe=load_file(folder / "probe.safetensors"),
            params=load_file(folder / "params.safetensors"),
            program=(folder / PROGRAM).read_text(),
        )

    @classmethod
    def of_checkpoint(cls, folder: Path) -> "Record":
        """Read what `save` wrote into a checkpoint, whose training goes on in this process.

        Raises:
          TriglotError: if it cannot be read.
        """
        try:
            record = cls.load(folder)
        # A folder of another version may hold anything.
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise TriglotError(f"{describe(error)}.") from None
        record.process = 1 + max(chunk["process"] for chunk in record.chunks)
        return record
