"""Which differences of costs are beyond the noise of their measurement, and of the machine."""

import os
import time
from dataclasses import dataclass, field

import numpy as np

from ...backends import libraries
from ...core.records import JSON, JSONDict
from ...shared.machine.cores import free_cores

MIN_RATIO = 1.1
GAINS = ("steps_per_second",)  # more is better
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


def slower(stages: list[dict[str, str]], backends: JSON) -> list[JSONDict]:
    """List the costs whose interval is above that of the cheapest library, by 10% or more.

    Args:
      stages: of a cost measurement.
      backends: by name and stage, `median`, `low` and `high`; without intervals nothing is listed.

    Returns:
      For each, the largest first: `stage`, `backend`, `cheapest`, `ratio` of the medians, and a
      `sentence`.
    """
    above = []
    for stage in stages:
        if stage["name"] in GAINS:
            continue
        costs = {name: rows[stage["name"]] for name, rows in backends.items()}
        if any(cost["low"] is None for cost in costs.values()):
            continue
        cheapest = min(costs, key=lambda name: costs[name]["median"])
        least = costs[cheapest]
        for name, cost in costs.items():
            if least["median"] <= 0 or cost["low"] <= least["high"]:
                continue
            ratio = cost["median"] / least["median"]
            if ratio >= MIN_RATIO:
                sentence = (
                    f"{stage['title']}: {libraries.title(name)} {_three(cost['median'])} "
                    f"{stage['unit']}, {ratio:.2f} times {libraries.title(cheapest)}'s "
                    f"{_three(least['median'])} {stage['unit']}."
                )
                above.append(
                    {
                        "stage": stage["name"],
                        "backend": name,
                        "cheapest": cheapest,
                        "ratio": ratio,
                        "sentence": sentence,
                    }
                )
    return sorted(above, key=lambda row: -row["ratio"])


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
