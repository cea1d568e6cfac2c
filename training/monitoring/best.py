"""Keep the checkpoint with the highest evaluated return."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import TriglotError
from ...core.loop.checkpoint import Checkpoints
from ...machine.files import write_json
from ..storage.records import BEST, recorded

FOLDER = "best"


def best_checkpoints(folder: Path) -> Checkpoints:
    """Give the place of a run's best checkpoint.

    Args:
      folder: the run directory.
    """
    return Checkpoints(folder / FOLDER, keep=1)


class Best:
    """The best checkpoint of a run, by the mean over seeds of the evaluated return.

    Args:
      folder: the run directory, whose best return so far is read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        found = recorded(folder, BEST) if best_checkpoints(folder).numbers() else None
        self.return_mean: float | None = None if found is None else float(found["return_mean"])

    def offer(self, num_updates: int, returns: np.ndarray, state: Any) -> bool:
        """Keep a state if its return is higher than all before; equal ones keep the earlier.

        Args:
          num_updates: updates done.
          returns: mean evaluated return of each seed, `[S]`.
          state: the runner states `[S, ...]`.

        Returns:
          Whether it was kept.

        Raises:
          CannotWrite: if it cannot be written; the one before is kept.
        """
        mean = float(returns.mean())
        if not mean > (-np.inf if self.return_mean is None else self.return_mean):
            return False
        checkpoints = best_checkpoints(self._folder)
        # After a kill between the two writes below, or of an interrupted run that was continued.
        for number in checkpoints.numbers():
            if number >= num_updates:
                shutil.rmtree(checkpoints.path(number))
        checkpoints.save(num_updates, state)
        content = {"num_updates": num_updates, "return_mean": mean, "return_per_seed": returns}
        write_json(self._folder / BEST, content)
        self.return_mean = mean
        return True


def check_best(folder: Path) -> Checkpoints:
    """Give a run's best checkpoint, which must exist.

    Raises:
      TriglotError: if there is none.
    """
    found = best_checkpoints(folder)
    if not found.numbers():
        raise TriglotError(
            f"{folder} has no best checkpoint: `triglot train --eval-every N` keeps one. Leave "
            "--checkpoint out for the last."
        )
    return found
