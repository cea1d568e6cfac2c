"""How noisy the machine is while costs are measured."""

import os
import time
from dataclasses import dataclass, field

import numpy as np

from ...core.records import JSONDict
from ...shared.machine.cores import free_cores

MAX_SPREAD = 0.10
MAX_LOAD_PER_CORE = 0.5
LOOPS = 200_000  # about 10 ms of plain Python


def load_average() -> float | None:
    """Read the number of running or waiting processes, averaged over a minute; None if unknown."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows; a sandbox
        return None


@dataclass
class Noise:
    """Repeats a fixed calculation between measurements; its spread is the machine's, not JAX's.

    Attributes:
      load: the load average before the first measurement; None if unknown.
      seconds: the time of each repetition.
    """

    load: float | None = field(default_factory=load_average)
    seconds: list[float] = field(default_factory=list)

    def calibrate(self) -> None:
        """Time the calculation once."""
        start = time.perf_counter()
        total = 0
        for number in range(LOOPS):
            total += number
        self.seconds.append(time.perf_counter() - start)

    @property
    def spread(self) -> float | None:
        """The range of the middle 80% of the times, relative to their median; None below 3."""
        if len(self.seconds) < 3:
            return None
        low, middle, high = np.quantile(self.seconds, [0.1, 0.5, 0.9])
        return float((high - low) / middle)

    def as_json(self) -> JSONDict:
        """Return `noisy`, `sentence`, `load` and `spread`."""
        spread, load = self.spread, self.load
        cores = len(free_cores())
        busy = load is not None and load > MAX_LOAD_PER_CORE * cores
        unsteady = spread is not None and spread > MAX_SPREAD
        facts = [
            f"the times of a fixed calculation vary by {spread:.0%}" if spread is not None else "",
            f"the load average was {load:.1f} on {cores} cores" if load is not None else "",
        ]
        described = " and ".join(filter(None, facts)) or "neither load nor spread is known"
        noisy = busy or unsteady
        sentence = f"The machine was {'busy' if noisy else 'quiet'}: {described}."
        if noisy:
            sentence += " Repeat the measurement on an idle machine."
        return {"noisy": noisy, "sentence": sentence, "load": load, "spread": spread}
