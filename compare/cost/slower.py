"""Which libraries cost surely more than the cheapest one, and how much."""

from collections.abc import Mapping
from typing import Any

from ...backends import libraries

MIN_RATIO = 1.1
GAINS = ("steps_per_second",)  # more is better


def slower(stages: list[dict[str, str]], backends: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the costs whose interval is above that of the cheapest library, by 10% or more.

    Args:
      stages: of a cost measurement.
      backends: by name and stage, `median`, `low` and `high`; without intervals nothing is listed.

    Returns:
      For each, the largest first: `stage`, `backend`, `cheapest`, `ratio` of the medians, and a
      `sentence`.
    """
    found = []
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
                found.append(
                    {
                        "stage": stage["name"],
                        "backend": name,
                        "cheapest": cheapest,
                        "ratio": ratio,
                        "sentence": sentence,
                    }
                )
    return sorted(found, key=lambda row: -row["ratio"])


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
