"""Send the metrics of a run that another program trains to loggers."""

from collections.abc import Sequence
from pathlib import Path

from ...core.errors import TriglotError
from ...shared.statistics.curves import finite_mean
from ..storage.config import read_config
from ..storage.journal import read_metrics
from ..storage.logs import LOGS, MAX_POINTS, check


class Forwarding:
    """Reads what a run has written since the last call, and logs it at most `MAX_POINTS` times.

    Args:
      folder: the run directory, in which the loggers write their files.
      names: of `--log`.
      wandb: the words of `--wandb`.

    Raises:
      TriglotError: if a logger is unknown, is not installed, or is one of the run itself.
    """

    def __init__(self, folder: Path, names: Sequence[str], wandb: Sequence[str]) -> None:
        check(names, wandb)
        config = read_config(folder)
        if both := [name for name in names if name in config["log"]]:
            raise TriglotError(
                f"{folder} logs to {' '.join(both)} itself: leave out --log {' '.join(both)}."
            )
        self._folder, self._num_points = folder, 0
        updates_per_point = -(-config["num_updates"] // MAX_POINTS)
        every = config["metrics_every"]  # updates without a line in between
        updates_per_point = every * -(-updates_per_point // every)
        self._steps_per_point = updates_per_point * config["steps_per_update"]
        self._logs = [LOGS[name](folder, config | {"wandb": wandb}, 0) for name in names]

    def send(self) -> None:
        """Log the points that are complete."""
        if not self._logs:
            return
        try:
            env_steps, metrics = read_metrics(self._folder)
        except TriglotError:  # none yet
            return
        points = -(-env_steps // self._steps_per_point)  # of each line, from 1
        complete = int(env_steps[-1]) // self._steps_per_point
        for point in range(self._num_points + 1, complete + 1):
            lines = points == point
            if not lines.any():  # they are damaged
                continue
            means = {name: finite_mean(values[:, lines]) for name, values in metrics.items()}
            for log in self._logs:
                log.add(point * self._steps_per_point, means)
        self._num_points = max(self._num_points, complete)

    def close(self) -> None:
        """Flush and close the loggers."""
        for log in self._logs:
            log.close()
